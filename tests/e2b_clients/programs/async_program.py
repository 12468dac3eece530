"""Every public method of E2B's Python SDK that waits, once."""

import asyncio
import contextlib
import inspect
import os
import time
from typing import Any

import e2b
import httpx
from checks import Checks, Coverage, araises, same
from e2b import (
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    PtySize,
    SandboxException,
    TimeoutException,
)
from e2b_code_interpreter import AsyncSandbox

GONE: Any = getattr(e2b, "SandboxNotRunningException", (SandboxException, NotFoundException))  # paused or deleted
VERIFY: Any = os.environ.get("SSL_CERT_FILE") or True


async def maybe(value: Any) -> Any:
    """Return a value that some clients make in a coroutine."""
    return await value if inspect.isawaitable(value) else value


async def streamed(sandbox: AsyncSandbox) -> None:
    handle = await sandbox.commands.run("wc -c", background=True, stdin=True)
    stdin = sandbox.commands.stream_input(handle.pid)
    for _ in range(5):
        await stdin.send(b"x" * 1000)
    await stdin.close()
    await sandbox.commands.close_stdin(handle.pid)
    same((await handle.wait()).stdout.strip(), "5000")
    terminal = await sandbox.pty.create(size=PtySize(rows=20, cols=90), on_data=lambda _: None)
    await sandbox.pty.resize(terminal.pid, PtySize(rows=21, cols=91))
    await terminal.disconnect()
    await (await sandbox.pty.connect(terminal.pid, on_data=lambda _: None)).disconnect()
    keys = sandbox.pty.stream_input(terminal.pid)
    await keys.send(b"true\n")
    await keys.close()
    same(await sandbox.pty.kill(terminal.pid), True)


async def signed(sandbox: AsyncSandbox) -> None:
    url = await maybe(sandbox.upload_url("up"))
    httpx.post(url, files={"file": b"up"}, verify=VERIFY).raise_for_status()
    url = await maybe(sandbox.download_url("up", use_signature_expiration=60))
    same(httpx.get(url, verify=VERIFY).text, "up")
    same(httpx.get(url + "x", verify=VERIFY).status_code, 401)


async def copied(sandbox: AsyncSandbox) -> None:
    for copy in await sandbox.fork(count=2):
        same(bytes(await copy.files.read("a/x", format="bytes")), b"\x00\x01")
        await copy.kill()
    snapshot = await sandbox.create_snapshot()
    assert snapshot.snapshot_id in [item.snapshot_id for item in await AsyncSandbox.list_snapshots().next_items()]
    same(await AsyncSandbox.delete_snapshot(snapshot.snapshot_id), True)


async def git(sandbox: AsyncSandbox) -> None:
    git = sandbox.git
    await git.init("repo", initial_branch="main")
    await git.configure_user("n", "n@example.org", scope="local", path="repo")
    await git.set_config("core.autocrlf", "false", scope="local", path="repo")
    same(await git.get_config("core.autocrlf", scope="local", path="repo"), "false")
    await sandbox.files.write("repo/file", "1")
    await git.add("repo")
    await git.commit("repo", "first")
    await git.create_branch("repo", "other")
    await git.checkout_branch("repo", "main")
    assert "other" in str(await git.branches("repo"))
    await git.delete_branch("repo", "other", force=True)
    await sandbox.files.write("repo/file", "2")
    same(len((await git.status("repo")).file_status), 1)
    await git.restore("repo", ["file"])
    await git.reset("repo")
    await sandbox.commands.run("git init -q --bare remote.git")
    await git.remote_add("repo", "origin", "/home/user/remote.git")
    assert "remote.git" in str(await git.remote_get("repo", "origin"))
    await git.push("repo", remote="origin", branch="main")
    await git.pull("repo", remote="origin", branch="main")
    await git.clone("/home/user/remote.git", path="clone", branch="main")
    await git.dangerously_authenticate("user", "token", host="example.org")


async def mcp(sandbox: AsyncSandbox) -> None:
    await maybe(sandbox.get_mcp_url())
    await araises(SandboxException, sandbox.get_mcp_token(), "user")


async def main() -> None:
    checks = Checks()
    check, coverage = checks.acheck, Coverage()
    sandbox = await AsyncSandbox.create(timeout=300, metadata={"a": "1"})

    async def background() -> None:
        output: list[str] = []
        handle = await sandbox.commands.run("read a; echo got $a", background=True, stdin=True, on_stdout=output.append)
        await sandbox.commands.send_stdin(handle.pid, "q\n")
        same(((await handle.wait()).stdout, output), ("got q\n", ["got q\n"]))
        other = await sandbox.commands.run("sleep 60", background=True)
        assert other.pid in [process.pid for process in await sandbox.commands.list()]
        await other.disconnect()
        again = await sandbox.commands.connect(other.pid)
        same(await sandbox.commands.kill(other.pid), True)
        await araises(CommandExitException, again.wait())

    async def written() -> None:
        await sandbox.files.write("a/x", b"\x00\x01")
        same(bytes(await sandbox.files.read("a/x", format="bytes")), b"\x00\x01")
        await sandbox.files.write_files([{"path": "m/1", "data": "1"}])
        same(await sandbox.files.read("m/1"), "1")
        same((await sandbox.files.rename("m/1", "m/2")).name, "2")
        same((await sandbox.files.make_dir("d"), await sandbox.files.make_dir("d")), (True, False))
        same(((await sandbox.files.get_info("m/2")).size, await sandbox.files.exists("m/1")), (1, False))
        await sandbox.files.remove("d")
        same([entry.name for entry in await sandbox.files.list("m")], ["2"])
        await araises(NotFoundException, sandbox.files.read("none"))

    async def watched() -> None:
        seen = asyncio.Event()
        handle = await sandbox.files.watch_dir("a", on_event=lambda event: seen.set() if event.name == "new" else None)
        await sandbox.files.write("a/new", "1")
        async with asyncio.timeout(20):
            await seen.wait()
        await handle.stop()

    async def terminal() -> None:
        output: list[bytes] = []
        handle = await sandbox.pty.create(
            size=PtySize(rows=20, cols=90), on_data=lambda data: output.append(bytes(data)), timeout=20
        )
        await sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
        with contextlib.suppress(CommandExitException):
            await handle.wait()
        assert b"20 90" in b"".join(output), output

    async def at_once() -> None:
        results = await asyncio.gather(*(sandbox.commands.run(f"sleep .3; echo {number}") for number in range(20)))
        same([result.stdout.strip() for result in results], [str(number) for number in range(20)])

    async def interrupted() -> None:
        await sandbox.run_code("1")  # the interpreter has started
        task = asyncio.create_task(sandbox.run_code("import time\nk = 7\ntime.sleep(60)"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        began = time.monotonic()
        same((await sandbox.run_code("k")).text, "7")
        assert time.monotonic() - began < 30

    async def contexts() -> None:
        context = await sandbox.create_code_context(cwd="/tmp")
        same((await sandbox.run_code("import os; os.getcwd()", context=context)).text, "/tmp")
        assert len(await sandbox.list_code_contexts()) >= 2
        await sandbox.restart_code_context(context)
        await sandbox.remove_code_context(context)

    async def paused() -> None:
        await sandbox.pause()
        same(await sandbox.is_running(), False)
        await araises(GONE, sandbox.commands.run("true"))
        await araises(GONE, sandbox.files.read("a/x"))
        connected = await AsyncSandbox.connect(sandbox.sandbox_id)
        same(bytes(await connected.files.read("a/x", format="bytes")), b"\x00\x01")

    await check("is_running", lambda: sandbox.is_running())
    await check("commands", background)
    await check("exit code", lambda: araises(CommandExitException, sandbox.commands.run("exit 4")))
    await check("time-out", lambda: araises(TimeoutException, sandbox.commands.run("sleep 5", timeout=0.4)))
    await check("files", written)
    await check("watch_dir", watched)
    await check("pty", terminal)
    await check("20 commands at once", at_once)
    await check("run_code interrupted", interrupted)
    await check("contexts", contexts)
    await check("get_info", lambda: sandbox.get_info())
    await check("get_metrics", lambda: sandbox.get_metrics())
    await check("set_timeout", lambda: sandbox.set_timeout(100))
    await check("list", lambda: AsyncSandbox.list().next_items())
    if hasattr(sandbox, "fork"):
        await check("input and terminals", lambda: streamed(sandbox))
        await check("signed URLs", lambda: signed(sandbox))
        await check("fork and snapshots", lambda: copied(sandbox))
        await check("git", lambda: git(sandbox))
        await check("get_host", lambda: same(sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}."), True))
        await check("update_network", lambda: sandbox.update_network({"allow_internet_access": False}))
        await check("MCP", lambda: mcp(sandbox))
    await check("pause", paused)
    await check("beta_pause", sandbox.beta_pause)
    await check("wrong key", lambda: araises(AuthenticationException, AsyncSandbox.create(api_key="e2b_" + "0" * 76)))
    await check("kill", lambda: sandbox.kill())
    await check("after kill", lambda: araises(GONE, sandbox.commands.run("true")))
    await check("connect after kill", lambda: araises(NotFoundException, AsyncSandbox.connect(sandbox.sandbox_id)))
    if hasattr(sandbox, "fork"):
        classes = (AsyncSandbox, type(sandbox.commands), type(sandbox.files), type(sandbox.pty), type(sandbox.git))
        await check("every public method", lambda: same(coverage.missing(*classes), []))
    checks.end()


asyncio.run(main())
