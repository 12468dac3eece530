"""The SSH front: its supervisor, over the services."""

from controller.api.server.server import SocketTaken
from controller.api.server.tcp import bound, resolve
from controller.app.core import Core
from controller.app.errors import CannotStart
from controller.app.identify import HostUsers, make_identify
from controller.kinds.common.address import parse_address
from controller.service.errors import ServiceUnavailable
from controller.service.front.ssh import NoSsh, SshFront
from controller.service.services import Services
from controller.ssh.channels import SandboxWork
from controller.ssh.gate import Failures, Gate
from controller.ssh.keys import Keys
from controller.ssh.supervisor import SshParts, Supervisor
from controller.store.sql_store import SqlStore


def make_ssh(core: Core, services: Services, store: SqlStore) -> SshFront:
    """Return the supervisor, which starts the SSH process with the first connection, or now if there is a port.

    A daemon that keeps no host has none: requests for sandboxes of others are passed on to theirs. Raises CannotStart.
    """
    settings = core.settings
    if not settings.is_host:
        return NoSsh()
    work = SandboxWork(
        registry=services.registry,
        objects=services.objects,
        sandbox_streams=services.sandbox_streams,
        files=services.files,
        forward=services.forward,
        recorder=services.recorder,
        host=settings.host_name if settings.scheduler != "single" else "",
    )
    folder, listening = settings.state_dir / "ssh", None
    keys = Keys(folder / "keys.json")
    try:
        if settings.ssh_address:
            listening = bound(resolve(*parse_address(settings.ssh_address, least_port=0), "ssh_address"), "ssh_address")
        address = "" if listening is None else "{}:{}".format(*listening.getsockname()[:2])
        gate = _gate(core, services, store, keys)
        parts = SshParts(work, core.meter, folder / "host_key", store.instance_id, keys, gate, listening, address)
        supervisor = Supervisor(parts)
        core.undo.callback(supervisor.close)
        supervisor.start()
    except (SocketTaken, ServiceUnavailable) as error:
        raise CannotStart(str(error)) from error
    return supervisor


def _gate(core: Core, services: Services, store: SqlStore, keys: Keys) -> Gate:
    identify = make_identify(core, store)
    return Gate(
        keys=keys,
        identify=identify,
        tokens=store.tokens,
        expirations=services.token_expirations,
        registry=services.registry,
        objects=services.objects,
        recorder=services.recorder,
        clock=core.clock,
        user_of_host=HostUsers(identify).caller,
        failures=Failures(),
    )
