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
sandbox = Sandbox.create(timeout=300, metadata={"k": "a b&c"}, envs={"FOO": "bar"}, allow_internet_access=True)


def background() -> None:
    handle = sandbox.commands.run("read a; echo got $a; cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "hi\n")
    assert any(process.pid == handle.pid for process in sandbox.commands.list())
    if hasattr(handle, "close_stdin"):
        handle.send_stdin("more\n")
        handle.close_stdin()
        same(handle.wait().stdout, "got hi\nmore\n")
    else:
        same(handle.kill(), True)


def streamed_input() -> None:
    handle = sandbox.commands.run("wc -c", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, (b"x" * 1000 for _ in range(5)))
    sandbox.commands.close_stdin(handle.pid)
    same(handle.wait().stdout.strip(), "5000")


def rejoined() -> None:
    handle = sandbox.commands.run("sleep 0.7; echo late", background=True)
    handle.disconnect()
    same(sandbox.commands.connect(handle.pid).wait().stdout, "late\n")


def killed() -> None:
    handle = sandbox.commands.run("sleep 60", background=True)
    same((sandbox.commands.kill(handle.pid), sandbox.commands.kill(999999)), (True, False))
    same(raises(CommandExitException, handle.wait).exit_code, -1)  # type: ignore[attr-defined]


def terminal() -> None:
    from e2b import PtySize

    handle = sandbox.pty.create(size=PtySize(rows=30, cols=100), timeout=20)
    sandbox.pty.resize(handle.pid, PtySize(rows=31, cols=101))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    output: list[bytes] = []
    with contextlib.suppress(CommandExitException):
        handle.wait(on_pty=lambda data: output.append(bytes(data)))
    assert b"31 101" in b"".join(output), output
    other = sandbox.pty.create(size=PtySize(rows=24, cols=80), timeout=20)
    if hasattr(sandbox.pty, "connect"):
        other.disconnect()
        sandbox.pty.connect(other.pid).disconnect()
    if hasattr(sandbox.pty, "stream_input"):
        sandbox.pty.stream_input(other.pid, [b"echo streamed\n"])
    same(sandbox.pty.kill(other.pid), True)


def watched() -> None:
    handle = sandbox.files.watch_dir("a", recursive=True)
    sandbox.files.write("a/deep/new", "1")
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
    assert {sandbox.sandbox_id, other.sandbox_id} <= {item.sandbox_id for item in pages}
    same((sandbox.sandbox_id in ids, other.sandbox_id in ids), (True, False))


def git() -> None:
    sandbox.git.init("repo", initial_branch="main")
    sandbox.git.configure_user("n", "n@example.org", scope="local", path="repo")
    sandbox.git.set_config("core.autocrlf", "false", scope="local", path="repo")
    same(sandbox.git.get_config("core.autocrlf", scope="local", path="repo"), "false")
    sandbox.files.write("repo/file", "1")
    sandbox.git.add("repo")
    sandbox.git.commit("repo", "first")
    sandbox.git.create_branch("repo", "other")
    sandbox.git.checkout_branch("repo", "main")
    assert "other" in str(sandbox.git.branches("repo"))
    sandbox.git.delete_branch("repo", "other", force=True)
    sandbox.files.write("repo/file", "2")
    same(len(sandbox.git.status("repo").file_status), 1)
    sandbox.git.restore("repo", ["file"])
    sandbox.git.reset("repo")
    sandbox.commands.run("git init -q --bare remote.git")
    sandbox.git.remote_add("repo", "origin", "/home/user/remote.git")
    assert "remote.git" in str(sandbox.git.remote_get("repo", "origin"))
    sandbox.git.push("repo", remote="origin", branch="main")
    sandbox.git.pull("repo", remote="origin", branch="main")
    sandbox.git.clone("/home/user/remote.git", path="clone", branch="main")
    same(sandbox.files.read("clone/file"), "1")
    sandbox.git.dangerously_authenticate("user", "token", host="example.org")
    same("example.org" in sandbox.files.read(".git-credentials"), True)


def paused() -> None:
    id_ = sandbox.sandbox_id
    (sandbox.pause if hasattr(sandbox, "pause") else sandbox.beta_pause)()
    same(sandbox.is_running(), False)
    raises(GONE, lambda: sandbox.commands.run("true"))
    raises(GONE, lambda: sandbox.files.read("a/c.txt"), "not found")
    connected = Sandbox.connect(id_, timeout=60)
    same(connected.files.read("a/c.txt"), "hé")


check("is_running", lambda: same(sandbox.is_running(), True))
check("commands.run", lambda: same(sandbox.commands.run("echo $FOO; echo e >&2").stdout, "bar\n"))
lines: list[str] = []
check(
    "commands.run callbacks", lambda: sandbox.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=lines.append)
)
check("commands.run streamed", lambda: same("".join(lines), "1\n2\n3\n"))
check("commands.run cwd", lambda: same(sandbox.commands.run("pwd", cwd="/tmp").stdout, "/tmp\n"))
check("commands.run envs", lambda: same(sandbox.commands.run("echo $A", envs={"A": "1"}).stdout, "1\n"))
check("exit code", lambda: same(raises(CommandExitException, lambda: sandbox.commands.run("exit 3")).exit_code, 3))  # type: ignore[attr-defined]
check("commands background", background)
if hasattr(sandbox.commands, "stream_input"):
    check("commands.stream_input", streamed_input)
check("commands.connect", rejoined)
check("commands.kill", killed)
check("commands time-out", lambda: raises(TimeoutException, lambda: sandbox.commands.run("sleep 5", timeout=0.4)))
check("another user", lambda: raises(SandboxException, lambda: sandbox.commands.run("true", user="root"), "user"))
check("files.write", lambda: same(sandbox.files.write("a/b.txt", "hé").path, "/home/user/a/b.txt"))
check("files.read", lambda: same(sandbox.files.read("a/b.txt"), "hé"))
check("files.read bytes", lambda: same(bytes(sandbox.files.read("a/b.txt", format="bytes")), "hé".encode()))
check("files.read stream", lambda: same(b"".join(sandbox.files.read("a/b.txt", format="stream")), "hé".encode()))
many: list[Any] = [{"path": "m/1", "data": "1"}, {"path": "m/2", "data": b"2"}]
check("files.write_files", lambda: same(len(getattr(sandbox.files, "write_files", sandbox.files.write)(many)), 2))
check("files.read again", lambda: same(sandbox.files.read("m/2"), "2"))
if new:
    check("files.write gzip", lambda: sandbox.files.write("io", io.BytesIO(b"z" * 100000), gzip=True))
    check("files.read gzip", lambda: same(len(sandbox.files.read("io", gzip=True)), 100000))
check("files.list", lambda: same({"b.txt", "1"} <= {e.name for e in sandbox.files.list(".", depth=2)}, True))
check("files.exists", lambda: same((sandbox.files.exists("a/b.txt"), sandbox.files.exists("no")), (True, False)))
check("files.get_info", lambda: same(sandbox.files.get_info("a/b.txt").size, 3))
check("files.rename", lambda: same(sandbox.files.rename("a/b.txt", "a/c.txt").path, "/home/user/a/c.txt"))
check("files.make_dir", lambda: same((sandbox.files.make_dir("d/e"), sandbox.files.make_dir("d/e")), (True, False)))
check("files.remove", lambda: sandbox.files.remove("d"))
check("files missing", lambda: raises(NotFoundException, lambda: sandbox.files.read("nope")))
check("files.list missing", lambda: raises(NotFoundException, lambda: sandbox.files.list("nope")))
check("files.watch_dir", watched)
signed = check("download_url", lambda: sandbox.download_url("a/c.txt", use_signature_expiration=60))
check("download_url read", lambda: same(httpx.get(signed, verify=VERIFY).text, "hé"))
check(
    "upload_url", lambda: httpx.post(sandbox.upload_url("up"), files={"file": b"up"}, verify=VERIFY).raise_for_status()
)
check("upload_url written", lambda: same(sandbox.files.read("up"), "up"))
wrong = sandbox.download_url("a/c.txt") + "x"
check("download_url tampered", lambda: same(httpx.get(wrong, verify=VERIFY).status_code, 401))
check("pty", terminal)
check("set_timeout", lambda: sandbox.set_timeout(600))
check(
    "get_info", lambda: same((sandbox.get_info().metadata, sandbox.get_info().state.value), ({"k": "a b&c"}, "running"))
)
check("list", listed)
check("get_metrics", lambda: sandbox.get_metrics())
check("get_host", lambda: same(sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}."), True))
if hasattr(sandbox, "git"):
    check("git", git)
check("run_code", lambda: same(sandbox.run_code("x = 41\nprint('hi'); x + 1").text, "42"))
check("run_code state", lambda: same(sandbox.run_code("x").text, "41"))
check("run_code stdout", lambda: same("".join(sandbox.run_code("print('hi')").logs.stdout), "hi\n"))
check("run_code error", lambda: same(sandbox.run_code("1/0").error.name, "ZeroDivisionError"))
FRAME = "import pandas as pd; pd.DataFrame({'a': [1]})"
check("run_code frame", lambda: same({"html", "data"} <= set(sandbox.run_code(FRAME).results[0].formats()), True))
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('t'); plt.show()"
check("run_code plot", lambda: same("png" in sandbox.run_code(PLOT).results[0].formats(), True))
SLOW = "import time; y = 5; time.sleep(9)"
check("run_code time-out", lambda: raises(TimeoutException, lambda: sandbox.run_code(SLOW, timeout=0.5)))
check("run_code language", lambda: raises(SandboxException, lambda: sandbox.run_code("1", language="r"), "not offered"))
check("run_code keeps state", lambda: same(sandbox.run_code("y").text, "5"))
if hasattr(sandbox, "list_code_contexts"):
    context = check("create_code_context", lambda: sandbox.create_code_context(cwd="/tmp"))
    check("context", lambda: same(sandbox.run_code("'x' in globals()", context=context).text, "False"))
    check("list_code_contexts", lambda: same(len(sandbox.list_code_contexts()) >= 2, True))
    check("restart_code_context", lambda: sandbox.restart_code_context(context))
    check("remove_code_context", lambda: sandbox.remove_code_context(context))
    check("removed context", lambda: raises(NotFoundException, lambda: sandbox.run_code("1", context=context)))
if new:
    check("update_network", lambda: sandbox.update_network({"allow_internet_access": False}))
    wider: Any = {"allow_out": ["a.org"]}
    check("network wider", lambda: raises(SandboxException, lambda: sandbox.update_network(wider), "full-isolation"))
    for name, call in (
        ("fork", lambda: [(f.files.read("a/c.txt"), f.kill()) for f in sandbox.fork(count=2)]),
        ("snapshot", lambda: Sandbox.delete_snapshot(sandbox.create_snapshot().snapshot_id)),
        ("list_snapshots", lambda: Sandbox.list_snapshots().next_items()),
    ):
        check(name, call)
    check("mcp refused", lambda: raises(SandboxException, lambda: Sandbox.create(mcp={"a": {}}), "mcp"))
check("pause and connect", paused)
check("template missing", lambda: raises(SandboxException, lambda: Sandbox.create("none-such"), "not found"))
check("wrong key", lambda: raises(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 76)))
if new:
    check("MCP", lambda: (sandbox.get_mcp_url(), raises(SandboxException, sandbox.get_mcp_token, "user")))
    check("beta_pause", lambda: (sandbox.beta_pause(), Sandbox.connect(sandbox.sandbox_id)))
check("kill", lambda: same((sandbox.kill(), sandbox.kill()), (True, False)))
check("after kill", lambda: raises(GONE, lambda: sandbox.commands.run("true")))
check("files after kill", lambda: raises(GONE, lambda: sandbox.files.read("a/c.txt")))
check("connect after kill", lambda: raises(NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id)))
if new:
    classes = (Sandbox, type(sandbox.commands), type(sandbox.files), type(sandbox.pty), type(sandbox.git))
    check("every public method", lambda: same(coverage.missing(*classes), []))
checks.end()
