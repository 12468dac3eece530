"""A checkout of its own for each test of the scripts, and settings that point nowhere real."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n'
FEDORA = 'ID=fedora\nPRETTY_NAME="Fedora Linux 42"\n'
# What a test has to put on the path itself, if it is to be found.
HIDDEN = re.compile(r"docker.*|apt-.*|systemctl|python.*|busybox|mmdebstrap")


class Checkout:
    """One copy of the scripts, with the commands that they may find under control."""

    def __init__(self, base: Path, tools: Path) -> None:
        self.root = base / "checkout"
        self.bin = base / "bin"
        self.base = base
        for folder in ("deploy", "images"):
            shutil.copytree(CHECKOUT / folder, self.root / folder)
        for file in (
            "pyproject.toml",
            "requirements.lock",
            "requirements-dev.lock",
            "requirements-panel.lock",
            "Makefile",
        ):
            shutil.copy(CHECKOUT / file, self.root / file)
        (self.root / "controller/client").mkdir(parents=True)
        shutil.copy(CHECKOUT / "controller/client/pyproject.toml", self.root / "controller/client")
        self.bin.mkdir()
        (base / "os-release").write_text(DEBIAN)
        self.env = {
            "PATH": f"{self.bin}:{tools}",
            "HOME": str(base),
            "TMPDIR": str(base),
            "LC_ALL": "C",
            "DOCKER_HOST": f"unix://{base}/no-engine.sock",
            "PADDOCK_SBIN": "/nonexistent",
            "PADDOCK_OS_RELEASE": str(base / "os-release"),
            "PADDOCK_STATE_DIR": str(base / "state"),
            "PADDOCK_ENGINE_STATE_DIR": str(base / "engine-state"),
            "PADDOCK_SOCKET": str(base / "run" / "paddock.sock"),
            "PADDOCK_VENV": str(base / "venv"),
            "PADDOCK_DAEMON_TIMEOUT": "10",
        }

    def command(self, name: str, text: str) -> Path:
        """Puts a command of the test's own on the path."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def system(self, os_release: str) -> None:
        (self.base / "os-release").write_text(os_release)

    def run(
        self, script: str, *args: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, str(self.root / script), *args],
            env={**self.env, **(env or {})},
            cwd=self.root,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def as_nobody(self) -> list[str]:
        """A prefix that takes root away where the tests run as root."""
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def tools() -> Iterator[Path]:
    """The machine's ordinary commands."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-tools-", dir="/tmp"))
    folder.chmod(0o755)
    for tool in [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]:
        if not HIDDEN.fullmatch(tool.name) and not (folder / tool.name).is_symlink():
            (folder / tool.name).symlink_to(tool)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def checkout(tools: Path) -> Iterator[Checkout]:
    # Short, because of sockets; open to all, because some runs are nobody's.
    base = Path(tempfile.mkdtemp(prefix="pdk-", dir="/tmp"))
    base.chmod(0o755)
    try:
        yield Checkout(base, tools)
    finally:
        pid_file = base / "state" / "daemon.pid"
        if pid_file.exists():
            os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
        shutil.rmtree(base)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process of somebody else's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def real_docker(checkout: Checkout) -> Checkout:
    """The checkout with the real engine in reach."""
    for name in ("docker", "apt-get", "apt-config", "mmdebstrap"):
        if which := shutil.which(name):
            (checkout.bin / name).symlink_to(which)
    checkout.env["DOCKER_HOST"] = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    checkout.env["PADDOCK_SBIN"] = "/usr/sbin:/sbin"
    checkout.env["PADDOCK_OS_RELEASE"] = "/etc/os-release"
    return checkout


PYTHON = sys.executable
