"""Tests on a newer engine: docker.io of a later Debian, unpacked into a root of its own.

    python -m tests.lab.newer pytest -q tests/contract      (as root; the host's engine gives the images)
    python -m tests.lab.newer --tiny pytest -q ...          with the smallest image only
    python -m tests.lab.newer --fetch                       only fetch the packages; 75: they can't be had, and why

PADDOCK_LAB_ENGINE says which: 26 (trixie's, the default) or 28 (sid's). PADDOCK_LAB_STORE=containerd gives it the image
store that Engine 29 has by default.

The engine lives in namespaces of its own, with that root as its /. The command is in its network and sees its socket at
the place where it looks for the host's engine, and needs to know nothing of all this. Fetched once, about 80 MB, into
.cache/.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.engine import OPTIONS, ROOT, Namespaces, PrivateEngine

CHECKOUT = Path(__file__).resolve().parents[2]
# Debian's release that has this major version of the engine.
RELEASES = {"26": "trixie", "28": "sid"}
# The options of dockerd for each image store.
STORES: dict[str, tuple[str, ...]] = {"overlay2": (), "containerd": ("--feature", "containerd-snapshotter=true")}
PACKAGES = ("docker.io", "iptables", "nftables", "busybox-static", "e2fsprogs", "crun")
IMAGES = ("paddock/test-tiny:1", "paddock/base:1", "paddock/python:1", "paddock/egress:1", "paddock/agent:1")
SOCKET = "/var/run/docker.sock"
NOT_TO_BE_HAD = 75  # EX_TEMPFAIL
_SHARED = ("proc", "sys", "dev", "tmp", "srv")
_MERGED = ("bin", "sbin", "lib", "lib64")


class NotToBeHad(Exception):
    """The newer engine can't be had on this machine; says why."""


def setting(name: str, values: Iterable[str], default: str) -> str:
    """The value of an environment variable, which must be one of these."""
    value = os.environ.get(name) or default
    if value not in values:
        sys.exit(f"{name}={value}: not a known value; use {' or '.join(values)}")
    return value


def fetched(folder: Path, release: str) -> Path:
    """The root file system in there, made unless it is there already. Raises NotToBeHad."""
    root, done = folder / "root", folder / "done"
    if done.exists() and done.read_text().split() == list(PACKAGES):
        return root
    archives = download(folder, release, *PACKAGES)
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in archives:
        # Not dpkg-deb -x: it would put a folder in the place of a link to one.
        packed = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=packed.stdout, check=True)
        assert packed.wait() == 0, archive
        archive.unlink()
    for name in (*_SHARED, "run", "var/run", "old", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    subprocess.run(["chroot", root, "/bin/busybox", "--install", "-s", "/bin"], check=True)
    # Programs that packages choose among by links that their scripts make.
    for name in ("iptables", "ip6tables"):
        for end in ("", "-save", "-restore"):
            (root / f"usr/sbin/{name}{end}").unlink(missing_ok=True)
            (root / f"usr/sbin/{name}{end}").symlink_to("xtables-nft-multi")
    done.write_text("\n".join(PACKAGES))
    return root


def download(folder: Path, release: str, *packages: str) -> list[Path]:
    """These packages of that Debian release with all that they stand on, by the host's own way. Raises NotToBeHad."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotToBeHad("it needs root, and Debian's apt-get")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "host"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed: so what they stand on is fetched, too
    output = f". deploy/lib/common.sh; . deploy/lib/debian.sh; host_apt {release} '{folder}/host'"
    subprocess.run(["bash", "-c", output], cwd=CHECKOUT, check=True)
    settings = folder / "host/apt.conf"
    settings.write_text(settings.read_text().replace("/host-apt", f"{folder}/host"))
    places = {"Dir::State": "state", "Dir::Cache": "cache", "Dir::State::status": "status"}
    options = [f"-o={name}={folder}/{place}" for name, place in places.items()]
    if release == "sid":  # an archive without releases: its index is not signed anew each week
        options.append("-o=Acquire::Check-Valid-Until=false")
    apt = ["apt-get", "-q", "-y", *options, "-o=APT::Sandbox::User=root", "-o=Debug::NoLocking=1"]
    environment = {**os.environ, "APT_CONFIG": str(settings), "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["--download-only", "--no-install-recommends", "install", *packages]):
        with (folder / "apt.log").open("ab") as log:
            done = subprocess.run([*apt, *arguments], env=environment, stdout=log, stderr=log, check=False)
        if done.returncode != 0:
            last = (folder / "apt.log").read_text().splitlines()[-1:]
            raise NotToBeHad(f"the packages of Debian {release} can't be fetched: {' '.join(last)}")
    return sorted((folder / "cache/archives").glob("*.deb"))


class Rooted(Namespaces):
    """Namespaces whose / is that folder; of the host's own / it has proc, sys, dev, tmp and srv, with their mounts."""

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
def newer_engine(
    root: Path, options: tuple[str, ...] = (), images: tuple[str, ...] = IMAGES
) -> Iterator[PrivateEngine]:
    """One that is up, with these options of dockerd, and has these images."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    # The engine finds this host's name, as it does outside.
    (root / "etc/hosts").write_text(f"127.0.0.1\tlocalhost {socket.gethostname()}\n")
    namespaces = Rooted(root)
    engine = PrivateEngine(folder, *options, namespaces=namespaces)
    try:
        engine.start()
        engine.load(*images)
        yield engine
    finally:
        engine.close()
        namespaces.close()
        shutil.rmtree(folder)


def main(words: list[str]) -> int:
    """Run that command with the newer engine at the host's engine's place; its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engine is taken down then, too
    release = RELEASES[setting("PADDOCK_LAB_ENGINE", RELEASES, "26")]
    store = setting("PADDOCK_LAB_STORE", STORES, "overlay2")
    try:
        root = fetched(CHECKOUT / ".cache" / f"engine-{release}", release)
    except NotToBeHad as error:
        print(error, file=sys.stderr)
        return NOT_TO_BE_HAD
    if words == ["--fetch"]:
        return 0
    tiny = words[0] == "--tiny"
    with newer_engine(root, STORES[store], IMAGES[:1] if tiny else IMAGES) as engine:
        version = engine.docker("version", "--format", "{{.Server.Version}} (API {{.Server.APIVersion}})")
        print(f"Docker Engine {version}, image store {store}", flush=True)
        # As on a host: what the tests' daemons mount is seen by the engines that the tests start, and not by this host.
        instead = f'mount --make-rshared / && mount --bind "{engine.folder}/engine.sock" {SOCKET} && exec "$@"'
        command = [sys.executable, "-m", *words[tiny:]]
        # In the engine's network, where its bridges, its rules and the published ports are, as on a host of its own.
        inside = ["nsenter", f"--net=/proc/{engine.namespaces.pid}/ns/net"]
        inside += ["unshare", "--mount", "--propagation", "slave"]
        environment = {**os.environ, "PADDOCK_TEST_NEWER": version.partition(" ")[0]}
        environment |= {ROOT: str(root), OPTIONS: " ".join(STORES[store])}  # for further engines of the tests
        return subprocess.call([*inside, "sh", "-c", instead, "newer", *command], env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
