"""Every public method of E2B's Python SDK that waits, once."""

import asyncio
import contextlib
import time

from checks import Checks, araises, same
from e2b import CommandExitException, NotFoundException, PtySize, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox


async def main() -> None:
    checks = Checks()
    check = checks.acheck
    box = await AsyncSandbox.create(timeout=300, metadata={"a": "1"})

    async def background() -> None:
        output: list[str] = []
        handle = await box.commands.run("read a; echo got $a", background=True, stdin=True, on_stdout=output.append)
        await box.commands.send_stdin(handle.pid, "q\n")
        same(((await handle.wait()).stdout, output), ("got q\n", ["got q\n"]))
        other = await box.commands.run("sleep 60", background=True)
        assert other.pid in [process.pid for process in await box.commands.list()]
        await other.disconnect()
        again = await box.commands.connect(other.pid)
        same(await box.commands.kill(other.pid), True)
        await araises(CommandExitException, again.wait())

    async def written() -> None:
        await box.files.write("a/x", b"\x00\x01")
        same(bytes(await box.files.read("a/x", format="bytes")), b"\x00\x01")
        await box.files.write_files([{"path": "m/1", "data": "1"}])
        same(await box.files.read("m/1"), "1")
        same((await box.files.rename("m/1", "m/2")).name, "2")
        same((await box.files.make_dir("d"), await box.files.make_dir("d")), (True, False))
        same(((await box.files.get_info("m/2")).size, await box.files.exists("m/1")), (1, False))
        await box.files.remove("d")
        same([entry.name for entry in await box.files.list("m")], ["2"])
        await araises(NotFoundException, box.files.read("none"))

    async def watched() -> None:
        seen = asyncio.Event()
        handle = await box.files.watch_dir("a", on_event=lambda event: seen.set() if event.name == "new" else None)
        await box.files.write("a/new", "1")
        async with asyncio.timeout(20):
            await seen.wait()
        await handle.stop()

    async def terminal() -> None:
        output: list[bytes] = []
        handle = await box.pty.create(
            size=PtySize(rows=20, cols=90), on_data=lambda data: output.append(bytes(data)), timeout=20
        )
        await box.pty.send_stdin(handle.pid, b"stty size; exit\n")
        with contextlib.suppress(CommandExitException):
            await handle.wait()
        assert b"20 90" in b"".join(output), output

    async def at_once() -> None:
        results = await asyncio.gather(*(box.commands.run(f"sleep .3; echo {number}") for number in range(20)))
        same([result.stdout.strip() for result in results], [str(number) for number in range(20)])

    async def interrupted() -> None:
        await box.run_code("1")  # the interpreter has started
        task = asyncio.create_task(box.run_code("import time\nk = 7\ntime.sleep(60)"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        began = time.monotonic()
        same((await box.run_code("k")).text, "7")
        assert time.monotonic() - began < 30

    async def contexts() -> None:
        context = await box.create_code_context(cwd="/tmp")
        same((await box.run_code("import os; os.getcwd()", context=context)).text, "/tmp")
        assert len(await box.list_code_contexts()) >= 2
        await box.restart_code_context(context)
        await box.remove_code_context(context)

    async def paused() -> None:
        await box.pause()
        same(await box.is_running(), False)
        connected = await AsyncSandbox.connect(box.sandbox_id)
        same(bytes(await connected.files.read("a/x", format="bytes")), b"\x00\x01")

    await check("is_running", lambda: box.is_running())
    await check("commands", background)
    await check("exit code", lambda: araises(CommandExitException, box.commands.run("exit 4")))
    await check("time-out", lambda: araises(TimeoutException, box.commands.run("sleep 5", timeout=0.4)))
    await check("files", written)
    await check("watch_dir", watched)
    await check("pty", terminal)
    await check("20 commands at once", at_once)
    await check("run_code interrupted", interrupted)
    await check("contexts", contexts)
    await check("get_info", lambda: box.get_info())
    await check("get_metrics", lambda: box.get_metrics())
    await check("set_timeout", lambda: box.set_timeout(100))
    await check("list", lambda: AsyncSandbox.list().next_items())
    await check("pause", paused)
    await check("kill", lambda: box.kill())
    await check("after kill", lambda: araises(SandboxException, box.commands.run("true")))
    checks.end()


asyncio.run(main())
