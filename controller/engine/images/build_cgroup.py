"""Cgroup that is the parent of all containers of image builds: it limits their processes, which the builder can't.

It is written below the engine's root folder: the daemon's own view of cgroups may be read-only.
"""

import subprocess
from pathlib import Path

from controller.engine.docker.client import Client
from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.kinds.runtime.images import BUILD_PIDS

_NAME, _SLICE = "paddock-builds", "paddockbuilds.slice"
_SYSTEMD = Path("/run/systemd/system")
_TIMEOUT_SECONDS = 10.0


class BuildCgroup:
    """Parent cgroup of builds on one engine. The constructor does no I/O."""

    def __init__(self, client: Client) -> None:
        self._client, self._namespace = client, EngineNamespace(client.base_url)

    def parent(self) -> tuple[str, str]:
        """Return the parent for a build, with its limit set; else "", and why there is none. Raises Fault."""
        facts = self._client.call("info", lambda api: api.info())
        try:
            root = self._namespace.root()
            if facts.get("CgroupDriver") == "systemd":
                return _limited_slice(root)
            return _limited_folder(root / "sys/fs/cgroup", str(facts.get("CgroupVersion") or "1"))
        except NamespaceUnreachable as error:
            return "", str(error)
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)


def _limited_folder(cgroups: Path, version: str) -> tuple[str, str]:
    folder = (cgroups if version == "2" else cgroups / "pids") / _NAME
    folder.mkdir(exist_ok=True)
    (folder / "pids.max").write_text(str(BUILD_PIDS))
    return f"/{_NAME}", ""


def _limited_slice(root: Path) -> tuple[str, str]:
    """Set the limit by systemd, which would take back one that is written past it.

    A daemon in a container, where systemd is not to be seen, asks it from the engine's root folder.
    """
    command = ["systemctl", "set-property", "--runtime", _SLICE, f"TasksMax={BUILD_PIDS}"]
    if not _SYSTEMD.is_dir():
        command = ["chroot", str(root), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        return "", (done.stderr.strip() or f"systemctl ended with {done.returncode}").splitlines()[0]
    return _SLICE, ""
