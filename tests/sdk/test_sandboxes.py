"""The package paddock on a real engine: sandboxes, commands, files, ports, and both clients with the same names."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import AsyncPaddock, CommandFailed, Invalid, NotFound, Paddock, Sandbox, SandboxFailed, WaitTimedOut
from tests.daemon import RunningDaemon, docker, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
POOL = """
kind: SandboxTemplate
apiVersion: paddock/v1alpha1
metadata: {name: python}
spec: {image: "paddock/python:1", command: [sleep, infinity]}
---
kind: SandboxPool
apiVersion: paddock/v1alpha1
metadata: {name: warm}
spec: {templateRef: {name: python}, warmReplicas: 1}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


@pytest.fixture
def paddock(daemon: RunningDaemon) -> Iterator[Paddock]:
    with Paddock(f"unix://{daemon.socket}") as created:
        yield created


@pytest.fixture(scope="module")
def shared(daemon: RunningDaemon) -> Iterator[Sandbox]:
    """One sandbox for the tests that change nothing of it."""
    with (
        Paddock(f"unix://{daemon.socket}") as created,
        created.sandboxes.create("shared", env={"A": "1"}, memory="256Mi", cpu=1.5) as sandbox,
    ):
        yield sandbox


def test_a_sandbox_lives_as_long_as_its_with(paddock: Paddock) -> None:
    with paddock.sandboxes.create(labels={"app": "sdk"}, lifetime=3600, idle_timeout=600) as sandbox:
        assert (sandbox.ready, sandbox.name[:3]) == (True, "sb-")
        assert [entry.name for entry in paddock.sandboxes.list(selector="app=sdk")] == [sandbox.name]
        assert paddock.sandboxes.get(sandbox.name).object["spec"]["lifecycle"]["idleTimeoutSeconds"] == 600
        assert sandbox.run("python3 --version | wc -l").text == "1"
    wait_for("it is gone", lambda: not paddock.sandboxes.list(selector="app=sdk"))
    with pytest.raises(NotFound):
        paddock.sandboxes.get(sandbox.name)


def test_commands(shared: Sandbox) -> None:
    done = shared.run("echo out; echo err >&2; echo $A$B; pwd; exit 3", env={"B": "2"}, cwd="/tmp")
    assert (done.exit_code, done.stdout, done.stderr, done.ok) == (3, "out\n12\n/tmp\n", "err\n", False)
    assert shared.exec(["printf", "%s", "a b|c"]).stdout == "a b|c"
    assert shared.exec(["cat"], stdin="grüß\n").text == "grüß"
    with pytest.raises(TypeError, match=r'exec\(\["sh", "-c", "ls -l"\]\)'):
        shared.exec("ls -l")
    with pytest.raises(TypeError, match=r"exec\(\['ls', '-l'\]\)"):
        shared.run(["ls", "-l"])  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="exit code 7: why") as failed:
        shared.run("echo why >&2; exit 7", check=True)
    assert failed.value.result.exit_code == 7
    late = shared.run("sleep 60", timeout=0.5)
    assert (late.exit_code, late.timed_out) == (124, True)


def test_code_of_any_language(shared: Sandbox) -> None:
    assert shared.run_code("print(6 * 7)").text == "42"
    pieces: list[str] = []
    for callback in (None, pieces.append):
        valued = shared.run_code("print('printed', end='')\n{'a': 6 * 7}", on_stdout=callback)
        assert (valued.text, valued.stdout) == ("{'a': 42}", "printed")
    assert "".join(pieces) == "printed"
    assert shared.run_code("import sys; print(sys.argv[1:])", args=["a", "-b"]).text == "['a', '-b']"
    assert shared.run_code('echo "$1" "${BASH_VERSION:+bash}"', "bash", args=["x"]).text == "x bash"
    long = "x = 1\n" * 100_000 + "print('long')"
    assert shared.run_code(long, fresh=True).text == "long"
    assert "ZeroDivisionError" in shared.run_code("1 / 0").stderr
    with pytest.raises(ValueError, match="unknown language 'cobol'; use one of python"):
        shared.run_code("x", "cobol")


def test_readiness_does_not_flap_after_a_change(shared: Sandbox) -> None:
    for number in range(30):
        shared.patch({"metadata": {"annotations": {"number": str(number)}}, "spec": {"priority": number}})
        assert shared.ready
        assert shared.refresh().ready


def test_a_sandbox_without_its_gpu_fails_at_once(paddock: Paddock) -> None:
    start = time.monotonic()
    with pytest.raises(SandboxFailed, match="NoDeviceDriver") as failed:
        paddock.sandboxes.create("no-gpu", gpus=1)
    assert failed.value.reason == "NoDeviceDriver"
    assert time.monotonic() - start < 100  # it would wait for 120 seconds


def test_output_comes_while_the_command_runs(shared: Sandbox) -> None:
    messages: list[str] = []
    done = shared.run("yes | head -c 3000000", on_stdout=lambda _text: None, max_output_bytes=1000)
    assert (done.truncated, len(done.stdout) < 1100, "2999000 bytes left out" in done.stdout) == (True, True, True)
    with shared.start("yes | head -c 3000000; exit 3") as process:
        waited = process.wait(max_output_bytes=10)
    assert (waited.exit_code, waited.truncated, len(waited.stdout) < 60) == (3, True, True)
    done = shared.run("echo one; echo two >&2; cat", stdin="grüß" * 100_000, on_stdout=messages.append)
    assert ("".join(messages), done.stderr) == (done.stdout, "two\n")
    assert done.stdout == "one\n" + "grüß" * 100_000
    with shared.start(["cat"], stdin=True) as process:
        process.write("first\n")
        assert next(process).text == "first\n"
        process.write("second\n")
        process.close_stdin()
        assert [(output.stream, output.text) for output in process] == [("stdout", "second\n")]
        assert process.exit_code == 0
    with shared.start("echo begun; sleep 600") as process:
        assert next(process).text == "begun\n"
    wait_for("it was killed", lambda: "sleep 600" not in docker_top(shared))
    with shared.start("trap 'echo stopped; exit 5' INT; echo on; while :; do sleep 0.1; done") as process:
        next(process)
        process.signal("INT")
        assert (process.wait().stdout, process.exit_code) == ("stopped\n", 5)


def docker_top(sandbox: Sandbox) -> str:
    return docker("top", str(sandbox.refresh().object["status"]["instanceRef"]["name"]), "-o", "pid,args")


def test_background_commands(shared: Sandbox) -> None:
    command = shared.background("echo hi; sleep 600")
    wait_for("it wrote", lambda: command.log() == "hi\n")
    assert (
        command.refresh().running,
        command.id in [background_command.id for background_command in shared.background_commands()],
    ) == (True, True)
    with pytest.raises(WaitTimedOut, match="still runs"):
        command.wait(timeout=0)
    command.kill()
    wait_for("it is over", lambda: command.refresh().state == "Killed")
    outcome = shared.background(["sh", "-c", "echo done; exit 4"]).wait()
    assert (outcome.exit_code, outcome.stdout) == (4, "done\n")


def test_files(shared: Sandbox, tmp_path: Path) -> None:
    files = shared.files
    files.write("/tmp/text", "grüß")
    files.write("/tmp/raw", bytes(range(256)) * 5000, mode=0o700)
    assert (files.read("/tmp/text"), files.read_bytes("/tmp/raw")) == ("grüß", bytes(range(256)) * 5000)
    assert (files.stat("/tmp/raw").mode, files.exists("/tmp/text"), files.exists("/tmp/none")) == (0o700, True, False)
    files.mkdir("/tmp/a/b")
    assert "a" in [file_info.name for file_info in files.list("/tmp")]
    files.remove("/tmp/a", recursive=True)
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/f").write_text("x")
    assert files.upload(tmp_path / "tree", "/tmp") == []
    assert shared.run("cat /tmp/tree/sub/f").text == "x"
    assert files.download("/tmp/tree", tmp_path / "back") == []
    assert (tmp_path / "back/sub/f").read_text() == "x"
    with pytest.raises(NotFound, match="no such file") as missing:
        files.read("/tmp/none")
    assert missing.value.has_cause("NotFound", "path")


def test_ports_and_previews(shared: Sandbox) -> None:
    shared.files.mkdir("/tmp/www")
    shared.files.write("/tmp/www/index.html", "hello")
    server = shared.background("cd /tmp/www && python3 -m http.server 8123")
    with shared.preview(8123, path="/index.html") as preview:
        served = httpx.URL(preview.url)
        assert served.host.endswith(".localhost"), "no cookies of 127.0.0.1 go there"
        copy, name = served.copy_with(host="127.0.0.1"), {"Host": f"{served.host}:{served.port}"}
        assert httpx.get(copy, headers=name, trust_env=False, timeout=60).text == "hello"
        assert httpx.get(copy, trust_env=False, timeout=60).status_code == 421
        with shared.preview(8123) as second:
            assert second.host != preview.host
    with shared.connect(8123) as connection:
        connection.send(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.receive().startswith(b"HTTP/1.0 200")
    with shared.forward(8123, timeout=30) as forward:
        assert httpx.get(forward.url, trust_env=False, timeout=60).status_code == 200
    server.kill()


def test_state_metrics_logs_and_events(shared: Sandbox) -> None:
    metrics = shared.metrics()
    assert (metrics.memory_limit_bytes, metrics.processes > 0) == (256 << 20, True)
    assert (metrics.name, metrics.host) == (shared.name, "b" if os.environ.get("PADDOCK_TEST_FOREIGN") else "")
    assert shared.condition("ready")["status"] == "True"
    assert "Created" in str(shared.events())
    assert shared.why()
    assert shared.logs(tail=5) == ""
    shared.set_limits(memory="300Mi")
    shared.wait_until(lambda found: found["status"]["resources"]["limits"]["memory"] == "300Mi")


def test_logs_are_followed_until_the_end(paddock: Paddock) -> None:
    command = ["sh", "-c", "echo begin; sleep 1; echo end"]
    with paddock.sandboxes.create(image="paddock/python:1", command=command, restart="Never", wait=False) as sandbox:
        sandbox.wait_until(lambda found: "instanceRef" in found.get("status", {}))
        assert list(sandbox.follow_logs()) == ["begin", "end"]
        sandbox.wait_until("Finished")
        assert sandbox.logs() == "begin\nend\n"
        with pytest.raises(SandboxFailed, match="Completed"):
            sandbox.wait_until("Ready")


def test_suspend_and_resume_are_seen_by_a_watch(paddock: Paddock) -> None:
    with paddock.sandboxes.create("dozing") as sandbox:
        observed: list[str] = []
        second = paddock.sandbox("dozing")

        def follow() -> None:
            for event in second.watch(timeout=120):
                observed.append(event.type + str(event.object["spec"].get("runState")))
                if event.type == "DELETED":
                    return

        watching = threading.Thread(target=follow)
        watching.start()
        wait_for("it watches", lambda: observed)
        sandbox.suspend()
        assert sandbox.phase == "Suspended"
        sandbox.resume()
        assert sandbox.run("echo back").text == "back"
        sandbox.pause()
        sandbox.resume()
        sandbox.delete(wait=True)
        watching.join(60)
    assert not watching.is_alive()
    assert {"ADDEDRunning", "MODIFIEDSuspended", "MODIFIEDPaused"} <= set(observed)


def test_a_pool_gives_a_warm_sandbox(paddock: Paddock) -> None:
    assert [(change.kind, change.result) for change in paddock.apply(POOL)] == [
        ("SandboxTemplate", "created"),
        ("SandboxPool", "created"),
    ]
    wait_for("it is warm", lambda: paddock.pools.get("warm").get("status", {}).get("readyReplicas") == 1)
    with paddock.sandboxes.create(pool="warm", env={"A": "of the handle"}) as sandbox:
        assert sandbox.object["status"]["launchType"] == "Warm"
        assert sandbox.run("echo $A").text == "of the handle"
    with paddock.sandboxes.create(spec={"templateRef": {"name": "python"}, "poolPolicy": "Never"}) as sandbox:
        assert sandbox.object["status"]["launchType"] == "Cold"
    paddock.pools.delete("warm", wait=True)


def test_refused_and_failed_sandboxes_leave_nothing(paddock: Paddock) -> None:
    with pytest.raises(Invalid) as refusal:
        paddock.sandboxes.create("Bad_Name", memory="512m", level="none-such")
    assert {"metadata.name", "spec.resources.limits.memory"} <= {cause["field"] for cause in refusal.value.causes}
    with pytest.raises(TypeError, match=r"`template` and `image` exclude each other.*`command` must be a list"):
        paddock.sandboxes.create(template="a", image="b", command="sleep 1")
    with pytest.raises(TypeError, match="unknown option `cpus`"):
        paddock.sandboxes.create(cpus=2)  # type: ignore[call-arg]
    template = {"image": "paddock/python:1", "command": ["sleep", "0.5"], "readiness": {"exec": {"command": ["false"]}}}
    with pytest.raises(SandboxFailed, match="Completed"):
        paddock.sandboxes.create("ends", spec={"template": template, "restartPolicy": "Never"})
    with pytest.raises(SandboxFailed, match=r"ImageMissing|ImagePullFailed"):
        paddock.sandboxes.create("absent", image="paddock/none-such:1")
    wait_for("both are gone", lambda: not {"ends", "absent"} & {sandbox.name for sandbox in paddock.sandboxes.list()})


async def use(daemon: RunningDaemon, tmp_path: Path) -> None:
    async with AsyncPaddock(f"unix://{daemon.socket}") as paddock:
        async with paddock.sandboxes.create() as sandbox:
            messages: list[str] = []

            async def tell(text: str) -> None:
                messages.append(text)

            done = await sandbox.run("cat; echo end", stdin="x" * 200_000, on_stdout=tell, check=True)
            assert "".join(messages) == done.stdout == "x" * 200_000 + "end\n"
            assert (await sandbox.run_code("print(6 * 7)")).text == "42"
            await sandbox.files.write("/tmp/f", b"data")
            assert await sandbox.files.read("/tmp/f") == "data"
            await sandbox.files.download("/tmp/f", tmp_path / "f")
            assert (tmp_path / "f").read_text() == "data"
            async with sandbox.start("echo begun; sleep 600") as process:
                assert [entry.text async for entry in first(process)] == ["begun\n"]
            running_ = asyncio.create_task(sandbox.run("sleep 601"))
            while "sleep 601" not in (await sandbox.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout:
                await asyncio.sleep(0.05)
            running_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running_
            server = await sandbox.background("cd /tmp && python3 -m http.server 8124")
            async with sandbox.preview(8124) as preview:
                assert preview.url == f"http://{preview.host}:{preview.port}/"
            async with (
                await sandbox.forward(8124, timeout=60) as port,
                httpx.AsyncClient(trust_env=False, timeout=60) as web,
            ):
                assert (await web.get(f"{port.url}f")).text == "data"
            async with sandbox.connect(8124) as connection:
                await connection.send(b"GET /f HTTP/1.0\r\n\r\n")
                assert (await connection.receive()).startswith(b"HTTP/1.0 200")
            await server.kill()
            while "sleep 60" in (await sandbox.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout:
                await asyncio.sleep(0.05)  # both were killed
            with pytest.raises(NotFound):
                await sandbox.files.read_bytes("/tmp/none")
            assert (await sandbox.metrics()).processes > 0
            names = [async_sandbox.name for async_sandbox in await paddock.sandboxes.list()]
            assert sandbox.name in names
            await sandbox.suspend()
            async for event in sandbox.watch(timeout=60):
                assert event.object["metadata"]["name"] == sandbox.name
                break
        with pytest.raises(WaitTimedOut):
            await paddock.objects("sandboxes").wait("none", lambda found: found is not None, timeout=0.1, reason=str)


async def first(process: Any) -> AsyncIterator[Any]:
    async for entry in process:
        yield entry
        return


def test_asyncio(daemon: RunningDaemon, tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(use(daemon, tmp_path), 240))


def test_many_sandboxes_at_once(daemon: RunningDaemon) -> None:
    async def one(paddock: AsyncPaddock, number: int) -> str:
        async with paddock.sandboxes.create(memory="64Mi", timeout=240) as sandbox:
            return (await sandbox.run_code(f"print({number} ** 2)", check=True)).text

    async def all_() -> list[str]:
        async with AsyncPaddock(f"unix://{daemon.socket}") as paddock:
            return await asyncio.gather(*(one(paddock, index) for index in range(20)))

    assert asyncio.run(all_()) == [str(index**2) for index in range(20)]
