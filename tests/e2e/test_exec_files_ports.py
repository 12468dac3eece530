"""Files, ports and streams of real sandboxes by the command line, also when one side dies.

One sandbox has no network and a read-only root, as the strictest level has it, and serves a port in it; a second one is
suspended as soon as nobody uses it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.daemon import ROOT, RunningDaemon, docker, running, wait_for
from tests.raw_client import Paddock, Sandbox

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
MIB = 1 << 20
# Says what it is asked, or sends without an end; how many connections there are is in a file.
SERVER = """
import os, socket, threading
count, lock = 0, threading.Lock()
def note(step):
    global count
    with lock:
        count += step
        with open("/tmp/new", "w") as file: file.write(str(count))
        os.replace("/tmp/new", "/tmp/count")
def serve(c):
    note(1)
    try:
        with c:
            asked = c.recv(6)
            if asked == b"flood\\n":
                while True: c.sendall(b"x" * 65536)
            if asked == b"sleep\\n":
                while True: threading.Event().wait()
            while asked: c.sendall(asked); asked = c.recv(65536)
    except OSError: pass
    finally: note(-1)
s = socket.create_server(("127.0.0.1", 8500))
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template:
    image: paddock/python:1
    command: ["python3", "-c", %s]
    tmpfs: [{mountPath: /workspace, size: 300Mi}]
  resources: {limits: {memory: 640Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0, idleTimeoutSeconds: %d}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        created.apply(SANDBOX % ("open", json.dumps(SERVER), 1800))
        created.apply(SANDBOX % ("dozing", json.dumps(SERVER), 2))
        created.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/open")
        yield created


@pytest.fixture
def sandbox(daemon: RunningDaemon) -> Iterator[Sandbox]:
    with Paddock(f"unix://{daemon.socket}") as paddock:
        sandbox = paddock.sandbox("open")
        wait_for("its server listens", lambda: asked(sandbox))
        yield sandbox


def asked(sandbox: Sandbox) -> bool:
    """Tell if it answers; by then it has noticed the end of this connection."""
    with contextlib.suppress(Exception):
        with sandbox.connect(8500) as link:
            link.send(b"hello")
            assert link.receive() == b"hello"
            with_it = connections(sandbox)
        wait_for("it is over", lambda: connections(sandbox) < with_it)
        return True
    return False


def connections(sandbox: Sandbox) -> int:
    """Connect to its port."""
    return int(sandbox.files.read("/tmp/count") or b"0")


def start(daemon: RunningDaemon, *words: str, **options: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "controller", *words]
    return subprocess.Popen(command, cwd=ROOT, env=daemon.environment, stdout=subprocess.PIPE, **options)


def workers(daemon: RunningDaemon) -> list[str]:
    """Return the worker processes for files of the daemon, or of the one whose host has its sandboxes."""
    server = children(daemon.works_at.process.pid, "-f", "engine/files/fork_server.py")
    return children(int(server[0])) if server else []


def children(pid: int, *words: str) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(pid), *words], capture_output=True, text=True).stdout.split()


def processes(daemon: RunningDaemon, name: str) -> str:
    return docker("top", str(daemon.get(name)["status"]["instanceRef"]["name"]), "-o", "pid,args")


def test_files_and_folders_go_in_and_come_out_as_they_are(daemon: RunningDaemon, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "binary").write_bytes(os.urandom(3 * MIB + 1))
    (source / "script").write_text("#!/bin/sh\n")
    (source / "script").chmod(0o750)
    (source / "link").symlink_to("deep/er/binary")
    for folder in ("/workspace", "/tmp"):  # both are tmpfs: all else is read-only
        daemon.paddock("cp", str(source), f"open:{folder}/tree")
        back = tmp_path / folder.strip("/")
        daemon.paddock("cp", f"open:{folder}/tree", str(back))
        assert tree(back) == tree(source)
    output = daemon.paddock("cp", str(source / "script"), "open:/etc/script", check=False)
    assert (output.returncode, "read-only" in output.stderr.lower()) == (1, True)
    packed = subprocess.run(["tar", "-C", str(source), "-cf", "-", "deep"], capture_output=True, check=True).stdout
    copied = start(daemon, "cp", "-", "open:/workspace", stdin=subprocess.PIPE)
    copied.communicate(packed, timeout=60)
    assert copied.returncode == 0
    out = start(daemon, "cp", "open:/workspace/deep", "-")
    (tmp_path / "out.tar").write_bytes(out.communicate(timeout=60)[0])
    with tarfile.open(tmp_path / "out.tar") as file:
        assert sorted(file.getnames()) == ["deep", "deep/er", "deep/er/binary"]


def tree(top: Path) -> dict[str, Any]:
    """Describe a tree: types, permission bits, contents and link targets."""
    document: dict[str, Any] = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode & 0o777
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        document[str(path.relative_to(top))] = (what, None if path.is_symlink() else mode)
    return document


def test_a_port_of_a_sandbox_without_network(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    data = os.urandom(8 * MIB)
    with forwarded(daemon, "open") as port:
        with socket.create_connection(("127.0.0.1", port)) as link:
            sending = threading.Thread(target=lambda: (link.sendall(data), link.shutdown(socket.SHUT_WR)))
            sending.start()
            observed = b""
            while piece := link.recv(1 << 20):
                observed += piece
            sending.join()
        assert observed == data
        wait_for("the connection is freed", lambda: connections(sandbox) == 0)


@contextlib.contextmanager
def forwarded(daemon: RunningDaemon, name: str) -> Iterator[int]:
    process = start(daemon, "port-forward", name, ":8500")
    assert process.stdout is not None
    with process:
        try:
            yield int(process.stdout.readline().split(b" ->")[0].rpartition(b":")[2])
        finally:
            process.kill()


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_killed_copy_leaves_nothing(daemon: RunningDaemon, sandbox: Sandbox, direction: str, tmp_path: Path) -> None:
    if direction == "in":
        process = start(daemon, "cp", "-", "open:/workspace/", stdin=subprocess.PIPE)
        assert process.stdin is not None
        head = tarfile.TarInfo("half")
        head.size = 10 * MIB
        process.stdin.write(head.tobuf() + bytes(2 * MIB))
        process.stdin.flush()
    else:
        sandbox.files.write("/workspace/much", bytes(40 * MIB))
        process = start(daemon, "cp", "open:/workspace/much", "-")
    wait_for("it is under way", lambda: workers(daemon))
    process.kill()
    process.communicate(timeout=30)
    wait_for("its worker is gone", lambda: not workers(daemon))
    names = [entry.name for entry in sandbox.files.entries("/workspace")]
    assert "half" not in names
    assert not [name for name in names if name.startswith(".paddock")]


def test_a_killed_port_forward_leaves_nothing(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    with forwarded(daemon, "open") as port, contextlib.ExitStack() as stack:
        for message in (b"flood\n", b"sleep\n", b"hello\n"):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(message)
        wait_for("all are there", lambda: connections(sandbox) == 3)
    # Whoever sleeps in the sandbox does not look at its connection: that one goes with the sandbox.
    wait_for("they are freed", lambda: connections(sandbox) <= 1)


def test_clients_that_stop_reading_are_freed(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    before = connections(sandbox)
    sandbox.files.write("/workspace/much", bytes(40 * MIB))
    script = "while :; do echo 0123456789abcdef; done"
    with contextlib.ExitStack() as stack:
        for message in (
            ("exec", "--timeout=0", "open", "--", "sh", "-c", script),
            ("cp", "open:/workspace/much", "-"),
        ):
            client = stack.enter_context(start(daemon, *message))
            stack.callback(client.kill)
            assert client.stdout is not None
            assert client.stdout.read(16)
        port = stack.enter_context(forwarded(daemon, "open"))
        link = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        link.sendall(b"flood\n")
        assert link.recv(16)
        wait_for("the worker's end", lambda: not workers(daemon))
        wait_for("the connection's end", lambda: connections(sandbox) == before)
        assert "0123456789abcdef" in processes(daemon, "open"), "a command waits for its reader"
    wait_for("the command's end with its client", lambda: "0123456789abcdef" not in processes(daemon, "open"))


@pytest.mark.parametrize("end", ["kill", "delete"])
def test_stalled_streams_block_neither_stop_nor_removal(tmp_path: Path, end: str) -> None:
    """By hand they are killed past the daemon, which has to be quick then; else it may be patient with them."""
    patience = {"kill": "1.5", "delete": "3600"}[end]
    with running(tmp_path, PADDOCK_STALL_SECONDS=patience) as daemon, contextlib.ExitStack() as stack:
        daemon.apply(SANDBOX % ("open", json.dumps(SERVER), 1800))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/open")
        name = str(daemon.get("open")["status"]["instanceRef"]["name"])
        for _ in range(5):
            script = "while :; do echo 0123456789abcdef; done"
            client = stack.enter_context(start(daemon, "exec", "--timeout=0", "open", "--", "sh", "-c", script))
            stack.callback(client.kill)
            assert client.stdout is not None
            assert client.stdout.read(16)
        if end == "kill":
            docker("kill", name)
            wait_for("it is back", lambda: daemon.get("open")["status"].get("restartCount") == 1)
        else:
            daemon.paddock("delete", "sandbox", "open", "--wait=true", seconds=60)
            assert docker("ps", "-aq", "--filter", f"name={name}") == ""


@pytest.mark.parametrize("what", ["cp", "port-forward"])
def test_use_wakes_a_suspended_sandbox(daemon: RunningDaemon, what: str, tmp_path: Path) -> None:
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=90s", "sandbox/dozing")
    if what == "cp":
        (tmp_path / "a").write_text("hello")
        daemon.paddock("cp", str(tmp_path / "a"), "dozing:/workspace/a")  # where it is gone again with the next sleep
        return
    with forwarded(daemon, "dozing") as port:

        def answered() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link:
                link.sendall(b"hello")
                return link.recv(5) == b"hello"
            return False

        wait_for("an answer of the box, which was started for it", answered)


def at_terminal(daemon: RunningDaemon, script: str) -> pexpect.spawn:
    environment = {**daemon.environment, "TERM": "xterm", "PADDOCK": f"{sys.executable} -m controller"}
    return pexpect.spawn("/bin/sh", ["-c", script], cwd=str(ROOT), env=environment, timeout=60, dimensions=(24, 120))


def test_copy_progress_is_shown_and_cleared(daemon: RunningDaemon, tmp_path: Path) -> None:
    """The archive's end is delayed until the progress bar was shown."""
    (tmp_path / "data").write_bytes(bytes(MIB))
    script = f"(tar -C {tmp_path} -cf - data; cat {tmp_path}/go) | $PADDOCK cp - open:/workspace; echo left $?"
    os.mkfifo(tmp_path / "go")
    terminal = at_terminal(daemon, script)
    terminal.expect(r"stdin.*1\.\d/\?.*MB/s|stdin.*bytes|stdin.*MB")
    with (tmp_path / "go").open("wb"):
        pass
    terminal.expect("left 0")
    terminal.expect(pexpect.EOF)
    terminal.wait()


def test_an_interrupted_copy_is_reported(daemon: RunningDaemon, tmp_path: Path) -> None:
    process = start(daemon, "cp", "-", "open:/workspace/", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for("it is under way", lambda: workers(daemon))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    wait_for("its worker is gone", lambda: not workers(daemon))
