"""The SSH front: its supervisor, over the services."""

from controller.app.core import Core
from controller.service.front.ssh import NoSsh, SshFront
from controller.service.services import Services
from controller.ssh.channels import SandboxWork
from controller.ssh.supervisor import SshParts, Supervisor


def make_ssh(core: Core, services: Services, instance: str) -> SshFront:
    """Return the supervisor, which starts the SSH process with the first connection.

    A daemon that keeps no host has none: requests for sandboxes of others are passed on to theirs.
    """
    if not core.settings.is_host:
        return NoSsh()
    work = SandboxWork(
        registry=services.registry,
        objects=services.objects,
        sandbox_streams=services.sandbox_streams,
        files=services.files,
        forward=services.forward,
        recorder=services.recorder,
    )
    supervisor = Supervisor(SshParts(work, core.meter, core.settings.state_dir / "ssh" / "host_key", instance))
    core.undo.callback(supervisor.close)
    return supervisor
