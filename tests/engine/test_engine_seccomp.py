"""Our seccomp profiles on a real engine: programs work, and dangerous calls are refused."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.engine.docker.seccomp import NoProfile, profile
from controller.kinds.observed.observed import Container
from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.container import Limits, Tmpfs
from controller.policy.levels.seccomp import LOG_ONLY, MINIMAL, STANDARD
from tests.contract.engine_hosts import EngineHost, docker_host, read_all

PYTHON = "paddock/python:1"
# Prints one JSON object: how each attempt ended. Numbers of calls are those of x86_64.
ATTEMPTS = """
import ctypes, errno, json, mmap, os, platform, socket
libc, found = ctypes.CDLL(None, use_errno=True), {}
def attempt(name, number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *[ctypes.c_long(each) for each in args])
    if name == "clone" and result == 0:
        os._exit(0)
    found[name] = "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def opened(name, *args):
    try:
        socket.socket(*args).close()
        found[name] = "ok"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
for name, family, kind, protocol in (
    ("AF_VSOCK", 40, 1, 0), ("AF_ALG", 38, 5, 0), ("AF_PACKET", 17, 3, 0), ("netlink audit", 16, 3, 9),
    ("raw", 2, 3, 1), ("tcp", 2, 1, 0), ("unix", 1, 1, 0), ("tcp6", 10, 1, 0), ("netlink route", 16, 3, 0),
):
    opened(name, family, kind, protocol)
assert platform.machine() == "x86_64"
NEWUSER = 0x10000000
for name, number, *args in (
    ("io_uring", 425, 1, 0), ("unshare", 272, NEWUSER), ("clone", 56, NEWUSER | 17, 0, 0, 0, 0), ("setns", 308, -1, 0),
    ("mount", 165, 0, 0, 0, 0, 0), ("keyctl", 250, 0, 0), ("bpf", 321, 0, 0, 0), ("perf", 298, 0, 0, -1, -1, 0),
    ("userfaultfd", 323, 1), ("open_by_handle", 304, -100, 0, 0), ("clone3", 435, 0, 0),
    ("shmget", 29, 0, 4096, 0o600), ("splice", 275, -1, 0, -1, 0, 0, 0), ("mlock", 149, 0, 0), ("ptrace", 101, 16, 1),
):
    attempt(name, number, *args)
if not os.fork():  # getpid by the 32-bit way in: the kernel ends whoever tries
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex("b814000000cd80c3"))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    os._exit(0)
found["int 0x80"] = "ok" if os.wait()[1] == 0 else "killed"
print(json.dumps(found))
"""
AT_WORK = """
import asyncio, concurrent.futures, multiprocessing, os, shutil, socket, sqlite3, ssl, subprocess, tempfile, threading
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
with concurrent.futures.ThreadPoolExecutor() as threads:
    assert list(threads.map(abs, [-1])) == [1]
assert subprocess.check_output(["sh", "-c", "ls -l / | sort | wc -l; tar --version >/dev/null; id"])
async def main():
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 8000)
    _, writer = await asyncio.open_connection("127.0.0.1", 8000)
    writer.close()
    server.close()
asyncio.run(main())
with tempfile.TemporaryDirectory() as folder:
    base = sqlite3.connect(folder + "/a.db")
    base.execute("create table t (a)")
    base.commit()
    base.close()
    shutil.copy(folder + "/a.db", folder + "/b.db")
    os.replace(folder + "/b.db", folder + "/c.db")
assert ssl.create_default_context() and socket.getaddrinfo("127.0.0.1", 80)
print("works")
"""
ALWAYS_REFUSED = {
    "AF_VSOCK": "EPERM",
    "AF_ALG": "EPERM",
    "AF_PACKET": "EPERM",
    "netlink audit": "EPERM",
    "raw": "EPERM",
    "io_uring": "ENOSYS",
    "unshare": "EPERM",
    "clone": "EPERM",
    "setns": "EPERM",
    "mount": "EPERM",
    "keyctl": "EPERM",
    "bpf": "EPERM",
    "perf": "EPERM",
    "userfaultfd": "ENOSYS",
    "open_by_handle": "EPERM",
    "clone3": "ENOSYS",
    "int 0x80": "killed",
}


def test_a_profile_of_another_content_is_not_used() -> None:
    assert json.loads(profile(MINIMAL))["defaultAction"] == "SCMP_ACT_ERRNO"
    with pytest.raises(NoProfile, match="not the one of this version"):
        profile("minimal@0000000000000000")
    with pytest.raises(NoProfile, match="reinstall paddock"):
        profile("no-such@0000000000000000")


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


Run = Callable[[str, str], str]


@pytest.fixture(scope="module")
def run(host: EngineHost) -> Run:
    """Run a Python program in the sandbox of a profile; return its output."""

    @functools.cache
    def sandbox(seccomp: str) -> Container:
        options: dict[str, Any] = {"tmpfs": (Tmpfs("/tmp", 16 << 20),), "limits": Limits(1000, 128 << 20, 64)}
        return host.running(host.new_uid(), image=PYTHON, seccomp=seccomp, user="20000:20000", **options)

    def run(seccomp: str, script: str) -> str:
        output, trouble, code = read_all(host.streams.exec(sandbox(seccomp).id, ["python", "-c", script]))
        assert code == b"0", trouble.decode()
        return output.decode()

    return run


@pytest.mark.docker
def test_what_minimal_refuses(run: Run) -> None:
    document = json.loads(run(MINIMAL, ATTEMPTS))
    further = {"shmget": "ENOSYS", "splice": "ENOSYS", "mlock": "EPERM", "ptrace": "EPERM"}
    fine = {"tcp": "ok", "unix": "ok", "tcp6": "ok", "netlink route": "ok"}
    assert document == {**ALWAYS_REFUSED, **further, **fine}


@pytest.mark.docker
def test_what_standard_refuses(run: Run) -> None:
    document = json.loads(run(STANDARD, ATTEMPTS))
    assert ALWAYS_REFUSED.items() <= document.items()
    assert {document[name] for name in ("shmget", "splice", "mlock", "tcp")} == {"ok"}


@pytest.mark.docker
@pytest.mark.parametrize("seccomp", [MINIMAL, STANDARD, LOG_ONLY])
def test_programs_work(run: Run, seccomp: str) -> None:
    assert "works" in run(seccomp, AT_WORK)


@pytest.mark.docker
def test_without_its_profile_nothing_is_made(host: EngineHost) -> None:
    outcome = host.engine.act(host.create(host.new_uid(), seccomp="minimal@0000000000000000"))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "NoSeccompProfile"


@pytest.mark.docker
def test_a_low_port_takes_the_capability(host: EngineHost) -> None:
    bind = "import socket; socket.socket().bind(('127.0.0.1', 80))"
    uid = host.new_uid()
    sysctls = (("net.ipv4.ip_unprivileged_port_start", "1024"),)
    running = host.running(uid, image=PYTHON, seccomp=MINIMAL, user="20000:20000", sysctls=sysctls)
    _, trouble, code = read_all(host.streams.exec(running.id, ["python", "-c", bind]))
    assert code == b"1"
    assert b"Permission denied" in trouble
