"""A private PostgreSQL server, which tests may disconnect and restart."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import wait_for
from tests.lab.engine import Namespaces

_OPTIONS = {"listen_addresses": "", "fsync": "off", "max_connections": "50"}


class Postgres:
    """One cluster in one folder, reached by a socket in it.

    With `address`, it runs in these namespaces, and is reached there by that IPv4 address, too: `network_url`.
    """

    def __init__(self, folder: Path, namespaces: Namespaces | None = None, address: str = "") -> None:
        self._folder, self._bin = folder, programs()
        self._options = {**_OPTIONS, "listen_addresses": address}
        self._as = ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()
        if self._as:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._run("initdb", "--pgdata", str(folder / "data"), "--username=postgres", "--auth=trust", "--no-sync")
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        self.network_url = f"postgresql+psycopg://postgres@{address}/postgres" if address else ""
        if namespaces is not None:
            self._as = (*namespaces.enter(), *self._as)
        if address:
            with (folder / "data/pg_hba.conf").open("a") as file:
                file.write("host all all samenet trust\n")

    def start(self) -> "Postgres":
        """Start it, and wait until it answers."""
        self._control("--log", str(self._folder / "log"), "--wait", "--options", self._words(), "start")
        return self

    def restart(self) -> None:
        """As an upgrade of its package does: sessions are ended in order, and it starts again."""
        log = str(self._folder / "log")
        self._control("--log", log, "--mode", "fast", "--wait", "--options", self._words(), "restart")

    def cut(self) -> None:
        """As a power cut would end it: every connection breaks, and nothing is tidied up."""
        self._control("--mode", "immediate", "--wait", "stop")

    def freeze(self) -> None:
        """It hangs: it takes connections, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        if (self._folder / "data/postmaster.pid").exists():
            self.thaw()
            self.cut()

    def _signal(self, number: signal.Signals) -> None:
        main = int((self._folder / "data/postmaster.pid").read_text().split()[0])
        children = (Path(f"/proc/{main}/task/{main}/children")).read_text().split()
        for pid in (main, *map(int, children)):
            os.kill(pid, number)

    def _words(self) -> str:
        message = " ".join(f"-c {name}='{value}'" for name, value in self._options.items())
        return f"{message} -c unix_socket_directories={self._folder}"

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "--pgdata", str(self._folder / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # Not to a pipe: the server inherits it, and would keep it open.
        with (self._folder / "said").open("ab") as file:
            done = subprocess.run(
                [*self._as, str(self._bin / program), *arguments], cwd="/", stdout=file, stderr=file, timeout=120
            )
        assert done.returncode == 0, (self._folder / "said").read_text()


def programs() -> Path:
    """The folder of PostgreSQL's programs, which Debian keeps off the PATH."""
    paths = [Path(which) for which in (shutil.which("initdb"),) if which]
    paths += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert paths, "PostgreSQL is not installed here"
    return paths[-1].resolve().parent


@contextmanager
def postgres(namespaces: Namespaces | None = None, address: str = "") -> Iterator[Postgres]:
    """A server that is up, and gone at the end with its data."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-pg-"))  # a socket's path has little room
    server = Postgres(folder, namespaces, address)
    try:
        yield server.start()
    finally:
        server.close()
        wait_for("the server has ended", lambda: not (folder / "data/postmaster.pid").exists())
        shutil.rmtree(folder)
