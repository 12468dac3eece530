"""The tests on a newer engine: docker.io of Debian trixie, taken out of its packages into a root of its own.

    python -m tests.lab.newer pytest -q tests/contract      (as root; the host's engine gives the images)

The engine lives in namespaces of its own, with that root as its /. The command sees its socket at the place where it
looks for the host's engine, and needs to know nothing of all this. Fetched once, about 80 MB, into .cache/.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.engine import Namespaces, PrivateEngine

CHECKOUT = Path(__file__).resolve().parents[2]
RELEASE = "trixie"
PACKAGES = ("docker.io", "iptables", "busybox-static")
IMAGES = ("paddock/test-tiny:1", "paddock/python:1", "paddock/egress:1")
SOCKET = "/var/run/docker.sock"
_SHARED = ("proc", "sys", "dev", "tmp")
_MERGED = ("bin", "sbin", "lib", "lib64")


def fetched(folder: Path) -> Path:
    """The root file system in there, made unless it is there already."""
    root, done = folder / "root", folder / "done"
    if done.exists():
        return root
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "host", "root/usr"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed: so all that it stands on is fetched, too
    _download(folder)
    for name in _MERGED:
        (root / "usr" / name).mkdir()
        (root / name).symlink_to(f"usr/{name}")
    for each in sorted((folder / "cache/archives").glob("*.deb")):
        # Not dpkg-deb -x: it would put a folder in the place of a link to one.
        packed = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", each], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=packed.stdout, check=True)
        assert packed.wait() == 0, each
        each.unlink()
    for name in (*_SHARED, "run", "var/run", "old", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    subprocess.run(["chroot", root, "/bin/busybox", "--install", "-s", "/bin"], check=True)
    # Programs that packages choose among by links that their scripts make.
    for name in ("iptables", "ip6tables"):
        for end in ("", "-save", "-restore"):
            (root / f"usr/sbin/{name}{end}").unlink(missing_ok=True)
            (root / f"usr/sbin/{name}{end}").symlink_to("xtables-nft-multi")
    done.touch()
    return root


def _download(folder: Path) -> None:
    """By the host's own way to Debian's packages."""
    said = f". deploy/lib/common.sh; . deploy/lib/debian.sh; host_apt {RELEASE} '{folder}/host'"
    subprocess.run(["bash", "-c", said], cwd=CHECKOUT, check=True)
    settings = folder / "host/apt.conf"
    settings.write_text(settings.read_text().replace("/host-apt", f"{folder}/host"))
    places = {"Dir::State": "state", "Dir::Cache": "cache", "Dir::State::status": "status"}
    options = [f"-o={name}={folder}/{place}" for name, place in places.items()]
    apt = ["apt-get", "-q", "-y", *options, "-o=APT::Sandbox::User=root", "-o=Debug::NoLocking=1"]
    environment = {**os.environ, "APT_CONFIG": str(settings), "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["--download-only", "--no-install-recommends", "install", *PACKAGES]):
        with (folder / "apt.log").open("ab") as log:
            done = subprocess.run([*apt, *words], env=environment, stdout=log, stderr=log, check=False)
        assert done.returncode == 0, (folder / "apt.log").read_text()[-3000:]


class Rooted(Namespaces):
    """Namespaces whose / is that folder; what is mounted on the host's own /proc, /sys, /dev and /tmp is there, too."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        shared = " ".join(_SHARED)
        self.run(
            "sh",
            "-ec",
            f"mount --rbind {root} {root}; cd {root}; mount --make-rslave .;"
            f" for each in {shared}; do mount --rbind /$each ./$each; done; mount -t tmpfs none ./run;"
            " pivot_root . old",
        )
        # The holder's own / is the old one still: whoever enters comes to the new one.
        self.run("/bin/busybox", "umount", "-l", "/old")


@contextmanager
def newer_engine(root: Path) -> Iterator[PrivateEngine]:
    """One that is up, and has the images."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    namespaces = Rooted(root)
    engine = PrivateEngine(folder, namespaces=namespaces)
    try:
        engine.start()
        engine.load(*IMAGES)
        yield engine
    finally:
        engine.close()
        namespaces.close()
        shutil.rmtree(folder)


def main(words: list[str]) -> int:
    """Run that command with the newer engine at the host's engine's place; its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engine is taken down then, too
    with newer_engine(fetched(CHECKOUT / ".cache" / "newer-engine")) as engine:
        print(engine.docker("version", "--format", "{{.Server.Version}} (API {{.Server.APIVersion}})"), flush=True)
        instead = f'mount --bind "{engine.folder}/engine.sock" {SOCKET} && exec "$@"'
        return subprocess.call(["unshare", "--mount", "sh", "-c", instead, "newer", sys.executable, "-m", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
