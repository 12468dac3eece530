"""Every public method of E2B's Python SDK, once. What a year-old client lacks is left out."""

import contextlib
import io
import os
import time
from typing import Any

import e2b
import httpx
from checks import Checks, Coverage, raises, same
from e2b import (
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from e2b_code_interpreter import Sandbox

# A paused or deleted sandbox; clients of a year ago raise others for files and commands of one.
GONE: Any = getattr(e2b, "SandboxNotRunningException", (SandboxException, NotFoundException))
VERIFY: Any = os.environ.get("SSL_CERT_FILE") or True
checks = Checks()
coverage = Coverage()
check = checks.check
new = hasattr(Sandbox, "fork")
box = Sandbox.create(timeout=300, metadata={"k": "a b&c"}, envs={"FOO": "bar"}, allow_internet_access=True)


def background() -> None:
    handle = box.commands.run("read a; echo got $a; cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "hi\n")
    assert any(process.pid == handle.pid for process in box.commands.list())
    if hasattr(handle, "close_stdin"):
        handle.send_stdin("more\n")
        handle.close_stdin()
        same(handle.wait().stdout, "got hi\nmore\n")
    else:
        same(handle.kill(), True)


def streamed_input() -> None:
    handle = box.commands.run("wc -c", background=True, stdin=True)
    box.commands.stream_input(handle.pid, (b"x" * 1000 for _ in range(5)))
    box.commands.close_stdin(handle.pid)
    same(handle.wait().stdout.strip(), "5000")


def rejoined() -> None:
    handle = box.commands.run("sleep 0.7; echo late", background=True)
    handle.disconnect()
    same(box.commands.connect(handle.pid).wait().stdout, "late\n")


def killed() -> None:
    handle = box.commands.run("sleep 60", background=True)
    same((box.commands.kill(handle.pid), box.commands.kill(999999)), (True, False))
    same(raises(CommandExitException, handle.wait).exit_code, -1)  # type: ignore[attr-defined]


def terminal() -> None:
    from e2b import PtySize

    handle = box.pty.create(size=PtySize(rows=30, cols=100), timeout=20)
    box.pty.resize(handle.pid, PtySize(rows=31, cols=101))
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    output: list[bytes] = []
    with contextlib.suppress(CommandExitException):
        handle.wait(on_pty=lambda data: output.append(bytes(data)))
    assert b"31 101" in b"".join(output), output
    other = box.pty.create(size=PtySize(rows=24, cols=80), timeout=20)
    if hasattr(box.pty, "connect"):
        other.disconnect()
        box.pty.connect(other.pid).disconnect()
    if hasattr(box.pty, "stream_input"):
        box.pty.stream_input(other.pid, [b"echo streamed\n"])
    same(box.pty.kill(other.pid), True)


def watched() -> None:
    handle = box.files.watch_dir("a", recursive=True)
    box.files.write("a/deep/new", "1")
    deadline, events = time.monotonic() + 20, []
    while "deep/new" not in [event.name for event in events]:
        assert time.monotonic() < deadline, events
        events += handle.get_new_events()
        time.sleep(0.05)
    handle.stop()


def listed() -> None:
    other = Sandbox.create(timeout=60, metadata={"k": "other"})
    pages, paginator = [], Sandbox.list(limit=1)
    while paginator.has_next:
        pages += paginator.next_items()
    from e2b import SandboxQuery

    ids = [item.sandbox_id for item in Sandbox.list(query=SandboxQuery(metadata={"k": "a b&c"})).next_items()]
    same(other.kill(), True)
    assert {box.sandbox_id, other.sandbox_id} <= {item.sandbox_id for item in pages}
    same((box.sandbox_id in ids, other.sandbox_id in ids), (True, False))


def git() -> None:
    box.git.init("repo", initial_branch="main")
    box.git.configure_user("n", "n@example.org", scope="local", path="repo")
    box.git.set_config("core.autocrlf", "false", scope="local", path="repo")
    same(box.git.get_config("core.autocrlf", scope="local", path="repo"), "false")
    box.files.write("repo/file", "1")
    box.git.add("repo")
    box.git.commit("repo", "first")
    box.git.create_branch("repo", "other")
    box.git.checkout_branch("repo", "main")
    assert "other" in str(box.git.branches("repo"))
    box.git.delete_branch("repo", "other", force=True)
    box.files.write("repo/file", "2")
    same(len(box.git.status("repo").file_status), 1)
    box.git.restore("repo", ["file"])
    box.git.reset("repo")
    box.commands.run("git init -q --bare remote.git")
    box.git.remote_add("repo", "origin", "/home/user/remote.git")
    assert "remote.git" in str(box.git.remote_get("repo", "origin"))
    box.git.push("repo", remote="origin", branch="main")
    box.git.pull("repo", remote="origin", branch="main")
    box.git.clone("/home/user/remote.git", path="clone", branch="main")
    same(box.files.read("clone/file"), "1")
    box.git.dangerously_authenticate("user", "token", host="example.org")
    same("example.org" in box.files.read(".git-credentials"), True)


def paused() -> None:
    id_ = box.sandbox_id
    (box.pause if hasattr(box, "pause") else box.beta_pause)()
    same(box.is_running(), False)
    raises(GONE, lambda: box.commands.run("true"))
    raises(GONE, lambda: box.files.read("a/c.txt"), "not found")
    connected = Sandbox.connect(id_, timeout=60)
    same(connected.files.read("a/c.txt"), "hé")


check("is_running", lambda: same(box.is_running(), True))
check("commands.run", lambda: same(box.commands.run("echo $FOO; echo e >&2").stdout, "bar\n"))
lines: list[str] = []
check("commands.run callbacks", lambda: box.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=lines.append))
check("commands.run streamed", lambda: same("".join(lines), "1\n2\n3\n"))
check("commands.run cwd", lambda: same(box.commands.run("pwd", cwd="/tmp").stdout, "/tmp\n"))
check("commands.run envs", lambda: same(box.commands.run("echo $A", envs={"A": "1"}).stdout, "1\n"))
check("exit code", lambda: same(raises(CommandExitException, lambda: box.commands.run("exit 3")).exit_code, 3))  # type: ignore[attr-defined]
check("commands background", background)
if hasattr(box.commands, "stream_input"):
    check("commands.stream_input", streamed_input)
check("commands.connect", rejoined)
check("commands.kill", killed)
check("commands time-out", lambda: raises(TimeoutException, lambda: box.commands.run("sleep 5", timeout=0.4)))
check("another user", lambda: raises(SandboxException, lambda: box.commands.run("true", user="root"), "user"))
check("files.write", lambda: same(box.files.write("a/b.txt", "hé").path, "/home/user/a/b.txt"))
check("files.read", lambda: same(box.files.read("a/b.txt"), "hé"))
check("files.read bytes", lambda: same(bytes(box.files.read("a/b.txt", format="bytes")), "hé".encode()))
check("files.read stream", lambda: same(b"".join(box.files.read("a/b.txt", format="stream")), "hé".encode()))
many: list[Any] = [{"path": "m/1", "data": "1"}, {"path": "m/2", "data": b"2"}]
check("files.write_files", lambda: same(len(getattr(box.files, "write_files", box.files.write)(many)), 2))
check("files.read again", lambda: same(box.files.read("m/2"), "2"))
if new:
    check("files.write gzip", lambda: box.files.write("io", io.BytesIO(b"z" * 100000), gzip=True))
    check("files.read gzip", lambda: same(len(box.files.read("io", gzip=True)), 100000))
check("files.list", lambda: same({"b.txt", "1"} <= {e.name for e in box.files.list(".", depth=2)}, True))
check("files.exists", lambda: same((box.files.exists("a/b.txt"), box.files.exists("no")), (True, False)))
check("files.get_info", lambda: same(box.files.get_info("a/b.txt").size, 3))
check("files.rename", lambda: same(box.files.rename("a/b.txt", "a/c.txt").path, "/home/user/a/c.txt"))
check("files.make_dir", lambda: same((box.files.make_dir("d/e"), box.files.make_dir("d/e")), (True, False)))
check("files.remove", lambda: box.files.remove("d"))
check("files missing", lambda: raises(NotFoundException, lambda: box.files.read("nope")))
check("files.list missing", lambda: raises(NotFoundException, lambda: box.files.list("nope")))
check("files.watch_dir", watched)
signed = check("download_url", lambda: box.download_url("a/c.txt", use_signature_expiration=60))
check("download_url read", lambda: same(httpx.get(signed, verify=VERIFY).text, "hé"))
check("upload_url", lambda: httpx.post(box.upload_url("up"), files={"file": b"up"}, verify=VERIFY).raise_for_status())
check("upload_url written", lambda: same(box.files.read("up"), "up"))
wrong = box.download_url("a/c.txt") + "x"
check("download_url tampered", lambda: same(httpx.get(wrong, verify=VERIFY).status_code, 401))
check("pty", terminal)
check("set_timeout", lambda: box.set_timeout(600))
check("get_info", lambda: same((box.get_info().metadata, box.get_info().state.value), ({"k": "a b&c"}, "running")))
check("list", listed)
check("get_metrics", lambda: box.get_metrics())
check("get_host", lambda: same(box.get_host(3000).startswith(f"3000-{box.sandbox_id}."), True))
if hasattr(box, "git"):
    check("git", git)
check("run_code", lambda: same(box.run_code("x = 41\nprint('hi'); x + 1").text, "42"))
check("run_code state", lambda: same(box.run_code("x").text, "41"))
check("run_code stdout", lambda: same("".join(box.run_code("print('hi')").logs.stdout), "hi\n"))
check("run_code error", lambda: same(box.run_code("1/0").error.name, "ZeroDivisionError"))
FRAME = "import pandas as pd; pd.DataFrame({'a': [1]})"
check("run_code frame", lambda: same({"html", "data"} <= set(box.run_code(FRAME).results[0].formats()), True))
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('t'); plt.show()"
check("run_code plot", lambda: same("png" in box.run_code(PLOT).results[0].formats(), True))
SLOW = "import time; y = 5; time.sleep(9)"
check("run_code time-out", lambda: raises(TimeoutException, lambda: box.run_code(SLOW, timeout=0.5)))
check("run_code language", lambda: raises(SandboxException, lambda: box.run_code("1", language="r"), "not offered"))
check("run_code keeps state", lambda: same(box.run_code("y").text, "5"))
if hasattr(box, "list_code_contexts"):
    context = check("create_code_context", lambda: box.create_code_context(cwd="/tmp"))
    check("context", lambda: same(box.run_code("'x' in globals()", context=context).text, "False"))
    check("list_code_contexts", lambda: same(len(box.list_code_contexts()) >= 2, True))
    check("restart_code_context", lambda: box.restart_code_context(context))
    check("remove_code_context", lambda: box.remove_code_context(context))
    check("removed context", lambda: raises(NotFoundException, lambda: box.run_code("1", context=context)))
if new:
    check("update_network", lambda: box.update_network({"allow_internet_access": False}))
    wider: Any = {"allow_out": ["a.org"]}
    check("network wider", lambda: raises(SandboxException, lambda: box.update_network(wider), "full-isolation"))
    for name, call in (
        ("fork", lambda: [(f.files.read("a/c.txt"), f.kill()) for f in box.fork(count=2)]),
        ("snapshot", lambda: Sandbox.delete_snapshot(box.create_snapshot().snapshot_id)),
        ("list_snapshots", lambda: Sandbox.list_snapshots().next_items()),
    ):
        check(name, call)
    check("mcp refused", lambda: raises(SandboxException, lambda: Sandbox.create(mcp={"a": {}}), "mcp"))
check("pause and connect", paused)
check("template missing", lambda: raises(SandboxException, lambda: Sandbox.create("none-such"), "not found"))
check("wrong key", lambda: raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 76)))
if new:
    check("MCP", lambda: (box.get_mcp_url(), raises(SandboxException, box.get_mcp_token, "user")))
    check("beta_pause", lambda: (box.beta_pause(), Sandbox.connect(box.sandbox_id)))
check("kill", lambda: same((box.kill(), box.kill()), (True, False)))
check("after kill", lambda: raises(GONE, lambda: box.commands.run("true")))
check("files after kill", lambda: raises(GONE, lambda: box.files.read("a/c.txt")))
check("connect after kill", lambda: raises(NotFoundException, lambda: Sandbox.connect(box.sandbox_id)))
if new:
    classes = (Sandbox, type(box.commands), type(box.files), type(box.pty), type(box.git))
    check("every public method", lambda: same(coverage.missing(*classes), []))
checks.end()
