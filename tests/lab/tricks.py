"""Attacks on a sandbox's host: an image that brings along what it must not, and folders that are not what they
are called. For the probes of every level."""

import io
import socket
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.internet import Lab
from tests.lab.sandboxes import IMAGE, document

TRICKY = "lab/tricky:1"
_CHANGES = (
    "VOLUME /data",
    "LABEL paddock.uid=somebody paddock.instance=elses paddock.name=x paddock.made-up=1",
    "ENV LD_PRELOAD=/usr/local/bin/own.so",
)


def tricky_image(place: Lab) -> None:
    """Make TRICKY on the lab's engine: a VOLUME, labels of ours, a loader's variable, and `gain`, a setuid `id`."""
    output = place.docker("create", "--network", "none", IMAGE)
    try:
        folder = place.folder / "id"
        place.docker("cp", f"{output}:/usr/bin/id", str(folder))
        entry = tarfile.TarInfo("gain")
        entry.mode, entry.size = 0o4755, folder.stat().st_size
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.addfile(entry, io.BytesIO(folder.read_bytes()))
        (place.folder / "gain.tar").write_bytes(packed.getvalue())
        place.host.run(
            "sh", "-c", f"docker -H {place.engine.base_url} cp - {output}:/usr/local/bin < {place.folder}/gain.tar"
        )
        place.docker("commit", *(word for change in _CHANGES for word in ("--change", change)), output, TRICKY)
    finally:
        place.docker("rm", "-f", output)


def tricked(level: str) -> dict[str, str]:
    """Two specs with that image, by name: one that does nothing about it, and one that covers what it may not have."""
    plain = {"image": TRICKY, "command": ["sleep", "100000"], "user": "20000:20000"}
    cover = {"tmpfs": [{"mountPath": "/data", "size": "1Mi"}], "env": [{"name": "LD_PRELOAD", "value": ""}]}
    observed = {f"plain-{level}": plain, f"covered-{level}": {**plain, **cover}}
    return {name: document(name, level, entry) for name, entry in observed.items()}


@contextmanager
def host_root() -> Iterator[Path]:
    """A root of the operator's for folders of the host: in it a folder, one with a socket, one with keys, and links."""
    with TemporaryDirectory(dir="/srv", prefix="pdl-") as temporary_directory:
        root = Path(temporary_directory)
        for name in ("plain", "listening", "keys/.ssh"):
            (root / name).mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(root / "listening" / "door"))
        (root / "link").symlink_to("/etc")
        yield root


# Paths below the root, and their errors. Admission refuses bad paths; links are detected when a path is opened.
AT_THE_DOOR = ("{root}/../../etc", "{root}//plain", "{root}/./plain", "/proc/self/root/etc", "/etc", "{root}", "/srv")
WHEN_OPENED = {
    "link": "contains a link",
    "listening": "a socket",
    "keys": "credentials",
}


def binding(name: str, level: str, path: str) -> str:
    """Return the spec of a sandbox with that host folder as its workspace."""
    return document(name, level, {"image": IMAGE, "workspace": {}}, workspace={"hostPath": path, "readOnly": True})


def refused_at_the_door(level: str, root: Path) -> list[str]:
    """Return specs that admission refuses, one of them with a volume that is a host folder."""
    volume = {"name": "v", "mountPath": "/v", "size": "1Mi", "driverOpts": {"o": "bind", "device": "/etc"}}
    paths = [binding(f"door-{level}", level, name.format(root=root)) for name in AT_THE_DOOR]
    return [*paths, document(f"door-{level}", level, {"image": IMAGE, "volumes": [volume]})]
