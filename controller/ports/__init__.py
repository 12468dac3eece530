"""The Protocols where packages meet, so that each implementation can be replaced.

Callers of a port may not depend on its implementation. The contract suites in tests/contract define the required
behaviour.
"""

from controller.ports.common import (
    Clock as Clock,
)
from controller.ports.common import (
    Meter as Meter,
)
from controller.ports.common import (
    NullMeter as NullMeter,
)
from controller.ports.common import (
    Wake as Wake,
)
from controller.ports.engine import (
    Canary as Canary,
)
from controller.ports.engine import (
    Engine as Engine,
)
from controller.ports.engine import (
    Firewall as Firewall,
)
from controller.ports.engine import (
    HostGauge as HostGauge,
)
from controller.ports.engine import (
    Images as Images,
)
from controller.ports.engine import (
    Probes as Probes,
)
from controller.ports.engine import (
    Secrets as Secrets,
)
from controller.ports.engine import (
    UsageReader as UsageReader,
)
from controller.ports.engine import (
    VolumeInUse as VolumeInUse,
)
from controller.ports.engine import (
    Volumes as Volumes,
)
from controller.ports.engine import (
    VolumesUnreachable as VolumesUnreachable,
)
from controller.ports.loop import (
    InUse as InUse,
)
from controller.ports.loop import (
    Jobs as Jobs,
)
from controller.ports.store import (
    Audit as Audit,
)
from controller.ports.store import (
    Change as Change,
)
from controller.ports.store import (
    ChangesGone as ChangesGone,
)
from controller.ports.store import (
    Conflict as Conflict,
)
from controller.ports.store import (
    Lease as Lease,
)
from controller.ports.store import (
    Store as Store,
)
from controller.ports.store import (
    StoreError as StoreError,
)
from controller.ports.store import (
    StoreTooNew as StoreTooNew,
)
from controller.ports.store import (
    Tokens as Tokens,
)
from controller.ports.store import (
    Transaction as Transaction,
)
from controller.ports.streams import (
    ChunkStream as ChunkStream,
)
from controller.ports.streams import (
    ExecStream as ExecStream,
)
from controller.ports.streams import (
    Files as Files,
)
from controller.ports.streams import (
    FileWork as FileWork,
)
from controller.ports.streams import (
    Leavable as Leavable,
)
from controller.ports.streams import (
    LeftExecs as LeftExecs,
)
from controller.ports.streams import (
    Ports as Ports,
)
from controller.ports.streams import (
    StreamError as StreamError,
)
from controller.ports.streams import (
    Streams as Streams,
)
