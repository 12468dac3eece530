"""A machine with systemd as PID 1, in namespaces of its own over this host's files.

What it writes stays in memory (an overlay over /), its cgroups are its own, and it sees no process, socket or device
of the host's; nothing of the kernel's settings can be written. It runs what it is told to and no unit that this host
has enabled. Needs root, and systemd's package (which need not run on this host).

    with systemd_machine() as machine:
        machine.run("systemctl", "start", "docker")
"""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemon import wait_for

SYSTEMD = Path("/lib/systemd/systemd")
UP_SECONDS = 120.0
_CGROUPS = Path("/sys/fs/cgroup")
# They would touch what is the whole machine's: settings and modules of the kernel, devices.
_MASKED = ("sysctl", "modules-load", "binfmt", "udevd", "udev-trigger", "networkd", "resolved", "timesyncd")
_MASKED_UNITS = (
    *(f"systemd-{name}.service" for name in (*_MASKED, "remount-fs", "random-seed")),
    *("systemd-journald-audit.socket", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket"),
    *("dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount"),
)
_TARGET = "[Unit]\nRequires=basic.target\nAfter=basic.target\n"
# $1: an empty folder, $2: the units that it has. Runs in the new namespaces, and becomes systemd.
_BOOT = r"""
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" none "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys
mount -t tmpfs -o mode=0755 none sys/fs/cgroup
while IFS=: read -r _ controllers _; do
    at=sys/fs/cgroup/${controllers#name=}
    if [ -z "$controllers" ]; then
        if [ -e /sys/fs/cgroup/cgroup.controllers ]; then mount -t cgroup2 none sys/fs/cgroup; continue; fi
        mkdir "${at}unified"; mount -t cgroup2 none "${at}unified"
    else
        mkdir "$at"
        case $controllers in name=*) controllers=none,$controllers ;; esac
        mount -t cgroup -o "$controllers" none "$at"
    fi
done </proc/self/cgroup
mount -t tmpfs -o mode=0755 none dev
mkdir dev/pts dev/shm dev/mqueue
for each in null zero full random urandom tty loop-control; do
    touch "dev/$each"; mount --bind "/dev/$each" "dev/$each"
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 none dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for each in run tmp var/lib/docker var/lib/containerd; do mkdir -p "$each"; mount -t tmpfs none "$each"; done
mkdir run/lock
chmod 1777 tmp dev/shm
rm -rf etc/systemd/system var/lib/paddock etc/paddock usr/local/lib/paddock var/log/journal
cp -R "$2" etc/systemd/system
: >etc/machine-id
ip link set lo up
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=lab.target --show-status=no --log-target=journal
"""


class Machine:
    """One that is up. `root` is its /, seen from outside; its network is `pid`'s."""

    def __init__(self, pid: int) -> None:
        self.pid, self.root = pid, Path(f"/proc/{pid}/root")

    def run(
        self, *command: str, check: bool = True, stdin: str | None = None, seconds: float = 120.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in there, but on this host's network: for packages."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--wd"]
        done = subprocess.run(
            [*enter, "--", *command],
            env={**os.environ, **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def shows(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--boot", f"--unit={unit}", "--lines=60", check=False).stdout

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "sh", path, stdin=text)


@contextmanager
def systemd_machine() -> Iterator[Machine]:
    """A machine that is up, and gone with everything at the end."""
    folder, name = Path(tempfile.mkdtemp(prefix="pdk-sd-")), f"paddock-lab-{uuid.uuid4().hex[:8]}"
    (folder / "units").mkdir()
    for masked_unit in _MASKED_UNITS:
        (folder / "units" / masked_unit).symlink_to("/dev/null")
    (folder / "units/lab.target").write_text(_TARGET)
    (folder / "machine").mkdir()
    enter = "; ".join(f"echo $$ >{cgroup}/cgroup.procs" for cgroup in _make_cgroups(name))
    unshare = "unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child"
    message = [
        "sh",
        "-ec",
        f'{enter}; exec {unshare} sh -c "$0" boot "$@"',
        _BOOT,
        folder / "machine",
        folder / "units",
    ]
    holder = subprocess.Popen(message, stdin=subprocess.DEVNULL)
    try:
        machine = Machine(wait_for("systemd begins", lambda: _first_process(holder), UP_SECONDS))
        up = ("running", "degraded")
        wait_for("it is up", lambda: machine.run("systemctl", "is-system-running", check=False).stdout.strip() in up)
        yield machine
    finally:
        holder.kill()  # and with it the first process, and with that all others
        holder.wait(30)
        wait_for("all have ended", lambda: _remove_cgroups(name), 60)
        shutil.rmtree(folder)


def _first_process(holder: "subprocess.Popen[bytes]") -> int:
    """systemd's pid, once it is systemd; 0 before."""
    assert holder.poll() is None, "systemd did not start"
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    with suppress(IndexError, OSError):
        if Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
            return int(children[0])
    return 0


def _hierarchies() -> list[Path]:
    return [
        path for path in (_CGROUPS, *_CGROUPS.iterdir()) if (path / "cgroup.procs").exists() and not path.is_symlink()
    ]


def _make_cgroups(name: str) -> list[Path]:
    """One in each hierarchy of this host's."""
    names = [
        hierarchy / name
        for hierarchy in _hierarchies()
        if hierarchy != _CGROUPS or (hierarchy / "cgroup.controllers").exists()
    ]
    for path in names:
        path.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (path / file).exists() and not (path / file).read_text().strip():
                (path / file).write_text((path.parent / file).read_text())
    return names


def _remove_cgroups(name: str) -> bool:
    """Tell whether they are gone."""
    for top in (hierarchy / name for hierarchy in _hierarchies()):
        for entry in sorted(top.glob("**/"), key=lambda path: -len(path.parts)):
            with suppress(OSError):
                entry.rmdir()
    return not any((hierarchy / name).exists() for hierarchy in _hierarchies())
