"""Folders of root layers: the upper folder of a container's overlay, running or not.

The overlay2 driver names it. The containerd image store does not: there `ctr` asks containerd, which has a snapshot of
the container's id. What a container's own mounts say is not believed: its code could have made them.
"""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.kinds.observed.observed import Container

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SOCKETS = ("/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock")
_OPTIONS = (("--containerd", ""), ("--exec-root", "/containerd/containerd.sock"))  # of the engine's command
_UPPER = re.compile(r"[ ,]upperdir=(/[^,\s]+)")
_STORE_TYPE, _STORE_DIR = ["driver-type", "io.containerd.snapshotter.v1"], "/var/lib/containerd"
_SECONDS = 20.0


class LayerUnknown(Exception):
    """The folder of a root layer is not known; the message says why and what to do."""


class RootLayers:
    """Root layers of the containers of one engine. The constructor does no I/O."""

    def __init__(self, namespace: EngineNamespace, *, is_local: bool = True) -> None:
        self._namespace, self._is_local = namespace, is_local

    def open(self, container: Container) -> int:
        """Open the folder of a container's root layer. Raises LayerUnknown, OSError."""
        if not self._is_local:
            raise LayerUnknown("its engine is on another machine")
        if container.layer_path:
            return os.open(container.layer_path, _READ)
        try:
            path = self._containerd_path(container.id)
            return os.open(f"{self._namespace.root()}/{path.lstrip('/')}", _READ)
        except NamespaceUnreachable as error:
            raise LayerUnknown(f"its root layer can't be reached: {error}") from error

    def free_bytes(self, info: Mapping[str, Any]) -> int | None:
        """Return the free bytes of the engine's disk, given its answer to /info; None for one elsewhere.

        Raises OSError, also if none of its folders is there.
        """
        if not self._is_local:
            return None
        try:
            root = self._namespace.root()
        except NamespaceUnreachable as error:
            raise OSError(errno.EACCES, str(error)) from error
        sizes = []
        for folder in filter(None, (info.get("DockerRootDir"), _STORE_DIR if is_store(info) else "")):
            with suppress(FileNotFoundError):
                sizes.append(shutil.disk_usage(root / folder.lstrip("/")).free)
        if not sizes:
            raise FileNotFoundError(errno.ENOENT, "the engine's folders are not there")
        return min(sizes)

    def _containerd_path(self, container_id: str) -> str:
        """Ask containerd for the upper folder of a container. Raises LayerUnknown, NamespaceUnreachable, OSError."""
        command = shutil.which("ctr")
        if command is None:
            problem = "this engine's image store names no root layers, and `ctr` is not there to ask containerd"
            raise LayerUnknown(f"{problem}; install containerd's `ctr`, or use a read-only root file system")
        for socket in dict.fromkeys(self._sockets()):
            arguments = ["--address", socket, "--namespace", "moby", "snapshots", "--snapshotter", "overlayfs"]
            with suppress(subprocess.TimeoutExpired):
                answer = subprocess.run(
                    [command, *arguments, "mounts", "/", container_id],
                    capture_output=True,
                    text=True,
                    timeout=_SECONDS,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
                if answer.returncode == 0 and (upper := _UPPER.search(answer.stdout)):
                    return upper[1]
        problem = "this engine's image store gives no access to its root layer"
        raise LayerUnknown(f"{problem}; use a read-only root file system, the overlay2 driver, or overlayfs snapshots")

    def _sockets(self) -> Iterator[str]:
        """Yield the sockets of containerd, as this process reaches them: the engine's own first."""
        root, pid = self._namespace.root(), self._namespace.engine_pid()
        configured = []
        with suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            options = dict(pairwise(arguments))
            options |= dict(
                argument.split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument
            )
            configured = [options[key] + end for key, end in _OPTIONS if key in options]
        for path in (*configured, *_SOCKETS):
            if (place := root / path.lstrip("/")).exists():
                yield str(place)


def is_store(info: Mapping[str, Any]) -> bool:
    """Tell whether the engine has containerd's image store, given its answer to /info."""
    return _STORE_TYPE in (info.get("DriverStatus") or ())
