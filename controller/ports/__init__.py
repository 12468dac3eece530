"""The Protocols where packages meet, so that each implementation can be replaced.

Callers of a port may not depend on its implementation. The contract suites in tests/contract define the required
behaviour.
"""

from controller.ports.common import Clock, Meter, NullMeter, Wake
from controller.ports.engine import (
    Canary,
    Engine,
    Firewall,
    HostGauge,
    Images,
    Probes,
    Secrets,
    UsageReader,
    VolumeInUse,
    Volumes,
    VolumesUnreachable,
)
from controller.ports.loop import Jobs, UseTracker
from controller.ports.store import (
    Audit,
    Change,
    ChangesGone,
    Conflict,
    Lease,
    Store,
    StoreError,
    StoreTooNew,
    Tokens,
    Transaction,
)
from controller.ports.streams import (
    AdoptedExecs,
    AgentAnswer,
    AgentError,
    Agents,
    ChunkStream,
    DetachableExec,
    ExecStream,
    Files,
    FileWork,
    PortForwarder,
    StreamError,
    Streams,
)

__all__ = [
    "AdoptedExecs",
    "AgentAnswer",
    "AgentError",
    "Agents",
    "Audit",
    "Canary",
    "Change",
    "ChangesGone",
    "ChunkStream",
    "Clock",
    "Conflict",
    "DetachableExec",
    "Engine",
    "ExecStream",
    "FileWork",
    "Files",
    "Firewall",
    "HostGauge",
    "Images",
    "Jobs",
    "Lease",
    "Meter",
    "NullMeter",
    "PortForwarder",
    "Probes",
    "Secrets",
    "Store",
    "StoreError",
    "StoreTooNew",
    "StreamError",
    "Streams",
    "Tokens",
    "Transaction",
    "UsageReader",
    "UseTracker",
    "VolumeInUse",
    "Volumes",
    "VolumesUnreachable",
    "Wake",
]
