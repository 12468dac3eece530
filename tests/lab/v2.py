"""Tests on a host with cgroup v2: Debian trixie in a virtual machine, with its own kernel, systemd and engine.

    python -m tests.lab.v2 pytest -q tests/engine/test_engine_witness.py      (as root; the images are the host's)

Made once from Debian's packages, about 1 GB in .cache/. Without KVM the processor is played by software, ten times
slower and more. The machine has no network card, and forgets all that is written to its disks.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lab.newer import CHECKOUT, RELEASES

RELEASE = RELEASES["26"]
PACKAGES = ("linux-image-cloud-amd64", "systemd-sysv", "docker.io", "docker-cli", "iptables", "nftables", "python3")
PACKAGES += ("iproute2", "kmod", "procps", "apparmor", "e2fsprogs", "openssh-client")
PACKAGES += ("crun", "dbus")  # it asks systemd for cgroups by the system's bus; runc does without
IMAGES = ("paddock/test-tiny:1", "paddock/python:1", "paddock/agent:1")
NEEDED = ("qemu-system-x86_64", "mmdebstrap", "mke2fs", "docker")
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
MEMORY_MIB, PROCESSORS = "3072", "2"
_TAIL = 3000
ENGINE = '{"runtimes": {"crun": {"path": "/usr/bin/crun"}}}'  # daemons of the tests choose it
IMPORTED = "/opt/packages\n/work/paddock\n/work/paddock/controller/client/src\n"  # as an installed package is
UNIT = """
[Unit]
Description=Paddock's tests
Wants=docker.service
After=docker.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStartPre=mount -o x-mount.mkdir /dev/vdb /work
ExecStart=/bin/bash /work/run
StandardOutput=file:/dev/hvc0
StandardError=inherit
[Install]
WantedBy=multi-user.target
"""
RUN = """
docker version --format 'engine {{.Server.Version}} (API {{.Server.APIVersion}})'
docker info --format 'cgroup v{{.CgroupVersion}}, by {{.CgroupDriver}}; kernel {{.KernelVersion}}'
docker load -q -i /work/images.tar
cd /work/paddock
export HOME=/root PADDOCK_TEST_DOCKER=1
python3 -m @words@
echo "ended with $?"
"""


def made(folder: Path) -> Path:
    """The machine's disk, with the tests' packages, and its kernel in there, made unless they are there already."""
    done = folder / "done"
    want = " ".join((RELEASE, *PACKAGES, UNIT, ENGINE, IMPORTED, (CHECKOUT / "requirements-dev.lock").read_text()))
    if done.exists() and done.read_text() == want:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root = folder / "root"
    _install(folder, root)
    _packages(root)
    (root / "etc/systemd/system/paddock-tests.service").write_text(UNIT)
    (root / "etc/docker").mkdir(exist_ok=True)
    (root / "etc/docker/daemon.json").write_text(ENGINE)
    subprocess.run(["chroot", root, "systemctl", "enable", "paddock-tests.service"], check=True, capture_output=True)
    for name in ("vmlinuz", "initrd.img"):
        (path,) = (root / "boot").glob(f"{name}-*")
        shutil.move(path, folder / name)
    _disk(folder / "root.ext4", root, "8G")
    shutil.rmtree(root)
    done.write_text(want)
    return folder


def _install(folder: Path, root: Path) -> None:
    """By the host's own way to Debian's packages."""
    output = (
        ". deploy/lib/common.sh; . deploy/lib/debian.sh; options=();"
        f' sources={folder}/sources; debian_sources {RELEASE} >"$sources";'
        ' while read -r line; do options+=(--aptopt="$line"); done < <(apt_access);'
        ' progress "Debian from its packages" mmdebstrap --quiet --variant=minbase "${options[@]}"'
        " --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
        f' --include={",".join(PACKAGES)} {RELEASE} {root} $([ ! -s "$sources" ] || echo "$sources")'
    )
    subprocess.run(["bash", "-c", output], cwd=CHECKOUT, check=True)


def _packages(root: Path) -> None:
    """Install the lock file's packages for the machine's Python, compiled here: there it would take minutes."""
    (python,) = (root / "usr/bin").glob("python3.[0-9]*[0-9]")
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", root / "opt/packages", "--python-version", python.name.removeprefix("python")]
    command += ["--only-binary=:all:", *(f"--platform={platform}" for platform in PLATFORMS)]
    command += ["--no-deps", "--require-hashes", "-r", CHECKOUT / "requirements-dev.lock"]
    subprocess.run(command, check=True)
    # Not by PYTHONPATH: the daemon starts some of its processes isolated, with no environment, as from a venv.
    (root / "usr/lib/python3/dist-packages/paddock-tests.pth").write_text(IMPORTED)
    _compile(root)


def _compile(root: Path) -> None:
    # Some packages carry templates that are no Python: what can't be compiled is left as it is.
    subprocess.run(["chroot", root, "python3", "-m", "compileall", "-qq", "/opt/packages"], check=False)


def _disk(file: Path, content: Path, size: str) -> None:
    """Create a file system of that size and content; it is sparse."""
    command = ["mke2fs", "-q", "-t", "ext4", "-d", content, file, size]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": _path()})


def work(folder: Path, words: list[str]) -> Path:
    """A disk with the checkout, the images, and what to run."""
    content = folder / "content"
    (content / "paddock").mkdir(parents=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True).stdout.decode().split("\0")[:-1]
    subprocess.run(["cp", "--parents", "-Pt", content / "paddock", "--", *names], cwd=CHECKOUT, check=True)
    subprocess.run(["docker", "save", "-o", content / "images.tar", *IMAGES], check=True)
    (content / "run").write_text(RUN.replace("@words@", shlex.join(words)))
    _disk(folder / "work.ext4", content, "2G")
    shutil.rmtree(content)
    return folder / "work.ext4"


def run(machine: Path, disk: Path, console: Path) -> int:
    """Boot it, with the output of the tests on stdout; their exit code."""
    command = ["qemu-system-x86_64", "-machine", "q35", *acceleration(), "-cpu", "max"]
    command += ["-m", MEMORY_MIB, "-smp", PROCESSORS, "-display", "none", "-nic", "none", "-no-reboot"]
    command += ["-kernel", machine / "vmlinuz", "-initrd", machine / "initrd.img"]
    command += ["-append", "root=/dev/vda rw console=ttyS0 systemd.getty_auto=0"]
    for file in (machine / "root.ext4", disk):
        command += ["-drive", f"file={file},if=virtio,format=raw,snapshot=on"]
    command += ["-serial", f"file:{console}", "-device", "virtio-serial", "-device", "virtconsole,chardev=out"]
    command += ["-chardev", "stdio,id=out,signal=off"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    answer = b""
    try:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65536):
            os.write(1, piece)
            answer = (answer + piece)[-_TAIL:]
    finally:
        process.terminate()
        process.wait(30)
    match = re.search(rb"^ended with (\d+)", answer, re.MULTILINE)
    if match is None:
        print(console.read_text(errors="replace")[-_TAIL:], "The machine ended before the tests did.", sep="\n")
        return 1
    return int(match[1])


def acceleration() -> tuple[str, ...]:
    """KVM where PADDOCK_V2_KVM says so: that /dev/kvm is there does not say that it works."""
    return ("-accel", "kvm") if os.environ.get("PADDOCK_V2_KVM") else ("-accel", "tcg,thread=multi")


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the machine is taken down then, too
    missing = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    if missing:
        sys.exit(f"not here: {', '.join(missing)}; install qemu-system-x86, mmdebstrap, e2fsprogs and an engine")
    machine = made(CHECKOUT / ".cache" / "v2-host")
    with tempfile.TemporaryDirectory(prefix="pdv-") as scratch:
        disk = work(Path(scratch), words)
        return run(machine, disk, Path(scratch) / "console")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
