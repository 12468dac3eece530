"""One sandbox.

Modules that only files, contexts or code need are imported with the first use of these: the command line starts
quicker without.
"""

import base64
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httpx

from paddock._async.objects import AsyncObjects
from paddock._async.ports import AsyncForward
from paddock._async.process import AsyncBackgroundCommand, AsyncProcess
from paddock._client.channels import PROTOCOL
from paddock._client.command import as_json, as_query, checked_code, checked_command, checked_line
from paddock._client.connection import segment
from paddock._client.errors import ClientError, NotFound, Refused
from paddock._client.port_forward import Forwarding, open_port, own_host
from paddock._models import (
    MAX_OUTPUT_BYTES,
    CommandResult,
    Decoder,
    KeptStreams,
    Metrics,
    Object,
    PreviewLink,
    SandboxFailed,
    TaskResult,
    WatchEvent,
    condition_of,
    failure_of,
    holds,
    is_building,
    metrics_of,
    obstacle,
)
from paddock._spec import deadline_seconds, lifetime_from
from paddock._transport.aio import AsyncPortConnection, AsyncTransport, TextCallback, beside, opening, pause, tell
from paddock._version import API_VERSION

if TYPE_CHECKING:
    from paddock._async.contexts import AsyncContexts, ErrorCallback, ResultCallback
    from paddock._async.files import AsyncFiles
    from paddock._execution import Execution
    from paddock._last_value import Values

_PLURAL, _SNAPSHOTS = "sandboxes", "sandboxsnapshots"
_READY_SECONDS = 120.0
_PORT_SECONDS = 60.0
_POLL_SECONDS = 0.2
_MOST_CODE = 2 << 20  # characters of code that a context takes


class AsyncSandbox:
    """One sandbox. As a context manager it is deleted at the end.

        async with paddock.sandboxes.create(image="paddock/python:1") as sandbox:
            result = await sandbox.run("pip list | head")
            print(result.stdout)

    `env` are variables that every command of this handle gets.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        namespace: str,
        name: str,
        *,
        document: Object | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace, self.name = namespace, name
        self.env = dict(env or {})
        self._transport = transport
        self._objects = AsyncObjects(transport, namespace, _PLURAL)
        self._found: Object = document or {}
        self._path = f"namespaces/{segment(namespace)}/{_PLURAL}/{segment(name)}"

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(NotFound):
            await self.delete()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name} {self.phase or 'not read yet'}>"

    # The object

    @property
    def object(self) -> Object:
        """The object as it was read last: `metadata`, `spec` and `status`. Empty before the first read."""
        return self._found

    @property
    def phase(self) -> str:
        """Phase when it was read last, such as Running."""
        return str(self._found.get("status", {}).get("phase", "Pending")) if self._found else ""

    @property
    def ready(self) -> bool:
        """True if it was Ready when it was read last, maybe before a change that the daemon has yet to look at."""
        return str((condition_of(self._found, "Ready") or {}).get("status")) == "True"

    @property
    def files(self) -> "AsyncFiles":
        """Files of the sandbox."""
        from paddock._async.files import AsyncFiles

        return AsyncFiles(self._transport, self._path)

    @property
    def contexts(self) -> "AsyncContexts":
        """Code contexts of the sandbox: interpreters that keep their state."""
        from paddock._async.contexts import AsyncContexts

        return AsyncContexts(self._transport, self._path, self.env)

    def condition(self, type_: str) -> Mapping[str, Any] | None:
        """Return a condition as it was read last, such as `condition("Ready")`; None if it has none."""
        return condition_of(self._found, type_)

    async def refresh(self) -> "AsyncSandbox":
        """Read the object again."""
        self._found = await self._objects.get(self.name)
        return self

    async def patch(self, change: Mapping[str, Any]) -> "AsyncSandbox":
        """Change fields of the object by a merge patch, such as `{"spec": {"priority": 5}}`."""
        self._found = await self._objects.patch(self.name, change)
        return self

    async def set_limits(self, **limits: str | int) -> "AsyncSandbox":
        """Change limits while it runs: `set_limits(cpu="2", memory="1Gi", pids=256)`."""
        return await self.patch({"spec": {"resources": {"limits": limits}}})

    async def set_lifetime(self, seconds: float, *, shorten: bool = True) -> "AsyncSandbox":
        """Delete it so many seconds from now, whatever it does; never earlier than so far with `shorten=False`.

        A start after `suspend` begins the time anew.
        """
        now = await self._transport.daemon_time()
        current = (await self.refresh()).object
        lifecycle = lifetime_from(now, current, seconds)
        if not shorten and lifecycle["activeDeadlineSeconds"] <= deadline_seconds(current):
            return self
        return await self.patch({"spec": {"lifecycle": lifecycle}})

    async def delete(self, *, wait: bool = False, timeout: float = 60.0) -> None:
        """Delete it; `wait`: until its container is gone. Raises NotFound, WaitTimedOut."""
        await self._objects.delete(self.name, wait=wait, timeout=timeout)

    async def suspend(self, *, timeout: float = 60.0) -> "AsyncSandbox":
        """Stop its container, and keep its files, except those in memory. The next command starts it again."""
        await self.patch({"spec": {"runState": "Suspended"}})
        return await self.wait_until("Suspended", timeout=timeout)

    async def pause(self, *, timeout: float = 60.0) -> "AsyncSandbox":
        """Freeze its processes, and keep their memory."""
        await self.patch({"spec": {"runState": "Paused"}})
        return await self.wait_until(_is_paused, timeout=timeout)

    async def hibernate(self, *, timeout: float = 60.0) -> "AsyncSandbox":
        """Freeze its processes, and move their memory to the host's swap. The next use wakes it."""
        await self.patch({"spec": {"runState": "Hibernated"}})
        return await self.wait_until(_is_hibernated, timeout=timeout)

    async def resume(self, *, timeout: float | None = None) -> "AsyncSandbox":
        """Let it run again after `suspend`, `pause` or `hibernate`, and wait until it is Ready."""
        await self.patch({"spec": {"runState": "Running"}})
        return await self.wait_until("Ready", timeout=timeout)

    async def snapshot(self, name: str = "", *, timeout: float = 180.0) -> Object:
        """Take a snapshot: all its files at one instant. It runs on. Return the SandboxSnapshot, once it is captured.

        Without a name one is made up. Raises WaitTimedOut; ClientError if it can't be taken, and then none stays.
        """
        snapshots = AsyncObjects(self._transport, self.namespace, _SNAPSHOTS)
        name = name or f"{self.name[:40].rstrip('-')}-{secrets.token_hex(4)}"
        metadata = {"name": name, "namespace": self.namespace}
        spec = {"sandboxRef": {"name": self.name}}
        await snapshots.create(
            {"apiVersion": API_VERSION, "kind": "SandboxSnapshot", "metadata": metadata, "spec": spec}
        )
        taken = await snapshots.wait(name, _is_decided, timeout=timeout, reason=_capture_text)
        if taken is None or not holds(taken, "Captured", "True"):
            if taken is not None:
                await snapshots.delete(name)
            raise ClientError(f"snapshot `{name}` can't be taken: {_capture_text(taken)}")
        return taken

    async def fork(
        self,
        count: int = 1,
        *,
        name_prefix: str = "",
        snapshot: str = "",
        allow_partial: bool = False,
        timeout: float | None = None,
    ) -> "list[AsyncSandbox]":
        """Create sandboxes with the files that this one has now, or had in a snapshot; wait until they are Ready.

        All of them are created, or none; with `allow_partial` as many as the quotas have room for. They share what code
        has created, such as random seeds and keys.
        """
        request = {"count": count, "namePrefix": name_prefix, "snapshot": snapshot, "allowPartial": allow_partial}
        forks = await self._transport.request("POST", f"{self._path}/fork", json=request)
        sandboxes = [
            AsyncSandbox(self._transport, self.namespace, each["metadata"]["name"], document=each, env=self.env)
            for each in forks["items"]
        ]
        for sandbox in sandboxes:
            await sandbox.wait_until("Ready", timeout=timeout)
        return sandboxes

    async def rollback(self, snapshot: str, *, backup: bool = True, timeout: float | None = None) -> "AsyncSandbox":
        """Give it the files of a snapshot again, in a new container, and wait until that is Ready.

        `backup`: its present files are saved in another snapshot first.
        """
        request = {"snapshot": snapshot, "backup": backup}
        result = await self._transport.request("POST", f"{self._path}/rollback", json=request)
        self._found = result["sandbox"]
        return await self.wait_until("Ready", timeout=timeout)

    async def wait_until(
        self,
        condition: str | Callable[[Object], bool] = "Ready",
        *,
        status: str = "True",
        timeout: float | None = None,
    ) -> "AsyncSandbox":
        """Wait until a condition has that status, or until a function of the object returns true.

        Without `timeout` for 120 seconds, in which the time of a build of its image does not count.

        Raises SandboxFailed when it was refused or has ended, NotFound when it is gone, WaitTimedOut.

            await sandbox.wait_until("Ready")
            await sandbox.wait_until(lambda sandbox: sandbox["status"].get("restartCount", 0) > 0)
        """
        name = condition if isinstance(condition, str) else ""

        def done(current: Object | None) -> bool:
            if current is None:
                raise NotFound(f"sandboxes/{self.name}: not found; it was deleted", "NotFound", 404)
            self._found = current
            if holds(current, name, status) if isinstance(condition, str) else condition(current):
                return True
            failure = failure_of(current) if name.lower() == "ready" and status == "True" else None
            if failure is not None:
                raise SandboxFailed(f"sandboxes/{self.name}: failed: {failure[0]}: {failure[1]}", failure[0])
            return False

        def reason(current: Object | None) -> str:
            return "it does not exist" if current is None else obstacle(current, name or "Ready")

        limit, goes_on = (_READY_SECONDS, is_building) if timeout is None else (timeout, lambda _: False)
        await self._objects.wait(self.name, done, timeout=limit, reason=reason, goes_on=goes_on)
        return self

    async def watch(self, *, timeout: float | None = None) -> AsyncIterator[WatchEvent]:
        """Yield the object as it is, then every change of it, until `timeout` seconds are over."""
        async for event in self._objects.watch(name=self.name, timeout=timeout):
            yield event

    async def events(self) -> list[dict[str, Any]]:
        """List its events, newest last."""
        query = {"kind": "Sandbox", "name": self.name}
        path = f"namespaces/{segment(self.namespace)}/events"
        return list((await self._transport.request("GET", path, params=query))["items"])

    async def why(self) -> dict[str, Any]:
        """Explain its state and what it waits for."""
        return cast("dict[str, Any]", await self._transport.request("GET", f"{self._path}/why"))

    async def metrics(self) -> Metrics:
        """Measure its use of CPU, memory, network, disk and processes."""
        return metrics_of(await self._transport.request("GET", f"{self._path}/metrics"))

    # Commands

    async def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: str | bytes = "",
        timeout: float | None = None,
        on_stdout: TextCallback | None = None,
        on_stderr: TextCallback | None = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        shell: str = "sh",
    ) -> CommandResult:
        """Run a shell line to its end. A program with a list of arguments is run by `exec`.

        After `timeout` seconds it is killed with exit code 124; without it the daemon's limit holds. `on_stdout` and
        `on_stderr` get the output as it comes. `check`: CommandFailed for another exit code than 0.

        Of each stream at most `max_output_bytes` are kept for the result: head and tail, and `truncated` is true.

            result = await sandbox.run("pip list | head -3")
            await sandbox.run("make test", cwd="/workspace", on_stdout=print, check=True)
        """
        return await self._run(
            [shell, "-c", checked_line(command)],
            env=env,
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
            callbacks=(on_stdout, on_stderr),
            check=check,
            max_output_bytes=max_output_bytes,
        )

    async def exec(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: str | bytes = "",
        timeout: float | None = None,
        on_stdout: TextCallback | None = None,
        on_stderr: TextCallback | None = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> CommandResult:
        """Run a program with its arguments to its end; options as for `run`. TypeError for a string.

        await sandbox.exec(["python3", "-c", "print(6 * 7)"])
        """
        argv = checked_command(command, "exec")
        return await self._run(
            argv,
            env=env,
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
            callbacks=(on_stdout, on_stderr),
            check=check,
            max_output_bytes=max_output_bytes,
        )

    async def run_code(
        self,
        code: str,
        language: str = "python",
        *,
        fresh: bool = False,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        timeout: float | None = None,
        on_stdout: TextCallback | None = None,
        on_stderr: TextCallback | None = None,
        on_result: "ResultCallback | None" = None,
        on_error: "ErrorCallback | None" = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> "Execution":
        """Run code in the sandbox's interpreter of that language, which keeps its variables: python, node or bash.

        `text` is the value of the last expression, as a notebook shows it, or what was printed; `results` has charts
        and tables. The callbacks get output, results and an error as they come. At the time limit it is interrupted.

        A new interpreter runs it with `fresh=True`, with `args`, in a folder `cwd`, in sh, ruby or perl, and where the
        sandbox has no agent: `stateful` is False then.

            await sandbox.run_code("x = 6")
            assert (await sandbox.run_code("x * 7")).text == "42"
        """
        from paddock._async.contexts import execute
        from paddock._execution import language_of_context

        code = checked_code(code)
        context_language = None if fresh or args or cwd else language_of_context(language)
        if context_language is not None and isinstance(code, str) and len(code) <= _MOST_CODE:
            variables = as_json({**self.env, **(env or {})})
            body = {"code": code, "language": context_language, "env": variables, "timeoutSeconds": timeout}
            callbacks = (on_stdout, on_stderr, on_result, on_error)
            path = f"{self._path}/contexts/execute"
            try:
                return await execute(
                    self._transport, path, body, callbacks, check=check, max_output_bytes=max_output_bytes
                )
            except Refused as error:
                if not _has_no_contexts(error):
                    raise
        execution = await self._run_fresh(
            language,
            args,
            env=env,
            cwd=cwd,
            stdin=code,
            timeout=timeout,
            callbacks=(on_stdout, on_stderr),
            check=check,
            max_output_bytes=max_output_bytes,
        )
        for result in execution.results:
            await tell(on_result, result)
        return execution

    async def _run_fresh(self, language: str, args: Sequence[str], **options: Any) -> "Execution":
        """Run code, the `stdin` of the options, in a new interpreter."""
        from paddock._execution import of_command
        from paddock._interpreters import interpreter, language_of
        from paddock._last_value import Values

        values = Values() if language_of(language) == "python" else None
        command = [*(values.command if values else interpreter(language)), *args]
        return of_command(await self._run(command, values=values, **options))

    @opening
    async def start(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: bool = False,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        timeout: float | None = None,
    ) -> AsyncProcess:
        """Start a shell line, or a program with a list of arguments, and stream its output.

        `stdin`: it can be written to. `tty`: give it a terminal, of this `size` (rows, columns) at first. A suspended
        sandbox is resumed first. The time limit of a command with a terminal is `timeout` alone.

            async with sandbox.start("pip install requests") as process:
                async for output in process:
                    print(output.text, end="")
        """
        query = [("command", argument) for argument in _argv(command, "start")]
        query += as_query({**self.env, **(env or {})})
        query += [("stdin", "true")] if stdin else []
        query += [("tty", "true")] if tty else []
        query += [("rows", str(size[0])), ("columns", str(size[1]))] if tty and size else []
        query += [("workingDir", cwd)] if cwd else []
        query += [("timeoutSeconds", f"{timeout:g}")] if timeout is not None else []
        return AsyncProcess(await self._transport.websocket(f"{self._path}/exec", query, PROTOCOL))

    async def background(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        timeout: float | None = None,
    ) -> AsyncBackgroundCommand:
        """Start a shell line, or a program with a list of arguments, that outlives this program.

        server = await sandbox.background("python3 -m http.server 8000")
        """
        request = {
            "command": _argv(command, "background"),
            "env": as_json({**self.env, **(env or {})}),
            "workingDir": cwd,
            "timeoutSeconds": timeout,
        }
        started = await self._transport.request("POST", f"{self._path}/execs", json=request)
        return AsyncBackgroundCommand(self._transport, self._path, started)

    async def run_task(
        self,
        context: str = "",
        *,
        command: Sequence[str] = (),
        tools: Sequence[str] = (),
        provider: str = "",
        model: str = "",
        copy_out: str = "",
        timeout: int = 600,
        idempotency_key: str = "",
    ) -> TaskResult:
        """Have a model work on `context` with tools of the sandbox, or run a command; wait for the result.

        With an `idempotency_key` the same task runs once, however often it is asked for.

        done = await sandbox.run_task("fix the test", tools=["exec"], provider="anthropic", model="claude-x")
        """
        request = {
            **({"command": list(command)} if command else {}),
            **({"copyOut": copy_out} if copy_out else {}),
            **({"context": context, "tools": list(tools), "provider": provider, "model": model} if context else {}),
            "timeoutSeconds": timeout,
        }
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        task = await self._transport.request("POST", f"{self._path}/run", json=request, headers=headers)
        names = ("success", "output", "error", "files", "metrics", "run")
        return TaskResult(**{name: task[name] for name in names})

    async def background_commands(self) -> list[AsyncBackgroundCommand]:
        """List the background commands, oldest first."""
        page = await self._transport.request("GET", f"{self._path}/execs")
        return [AsyncBackgroundCommand(self._transport, self._path, entry) for entry in page["items"]]

    async def _run(
        self,
        command: list[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str,
        stdin: str | bytes,
        timeout: float | None,
        callbacks: tuple[TextCallback | None, TextCallback | None],
        check: bool,
        max_output_bytes: int,
        values: "Values | None" = None,
    ) -> CommandResult:
        raw, streams = stdin.encode() if isinstance(stdin, str) else stdin, KeptStreams(max_output_bytes)
        if callbacks == (None, None):
            result = await self._collected(
                command, env, cwd, stdin=raw, timeout=timeout, streams=streams, values=values
            )
        else:
            process = await self.start(command, env=env, cwd=cwd, stdin=bool(raw), timeout=timeout)
            async with process:
                result = await self._streamed(process, raw, callbacks, streams, values)
        return result.check() if check else result

    async def _collected(
        self,
        command: list[str],
        env: Mapping[str, str] | None,
        cwd: str,
        stdin: bytes,
        timeout: float | None,
        streams: KeptStreams,
        values: "Values | None",
    ) -> CommandResult:
        request = {
            "command": command,
            "env": as_json({**self.env, **(env or {})}),
            "workingDir": cwd,
            "stdin": base64.b64encode(stdin).decode(),
            "encoding": "base64",
            "timeoutSeconds": timeout,
        }
        done = await self._transport.request("POST", f"{self._path}/exec", json=request)
        for stream in ("stdout", "stderr"):
            data = base64.b64decode(done[stream])
            streams.add(stream, values.output(data) + values.flush() if values and stream == "stdout" else data)
        return streams.result(
            done["exitCode"],
            timed_out=done["timedOut"],
            duration_seconds=done["durationSeconds"],
            truncated=done["truncated"],
            value=values.value if values else None,
        )

    async def _streamed(
        self,
        process: AsyncProcess,
        stdin: bytes,
        callbacks: tuple[TextCallback | None, TextCallback | None],
        streams: KeptStreams,
        values: "Values | None",
    ) -> CommandResult:
        callback_by_stream, decoder = dict(zip(("stdout", "stderr"), callbacks, strict=True)), Decoder()

        async def take(stream: str, data: bytes) -> None:
            streams.add(stream, data)
            await tell(callback_by_stream[stream], decoder.output(stream, data).text)

        async def read() -> None:
            async for output in process:
                filtered = values is not None and output.stream == "stdout"
                await take(output.stream, values.output(output.data) if values and filtered else output.data)
            if values:
                await take("stdout", values.flush())

        if stdin:
            async with beside(process.feed, stdin):
                await read()
        else:
            await read()
        return streams.result(
            process.exit_code or 0,
            timed_out=process.timed_out,
            duration_seconds=process.duration_seconds,
            value=values.value if values else None,
        )

    # Logs and ports

    async def logs(
        self, *, tail: int | None = None, since: float | None = None, timestamps: bool = False, previous: bool = False
    ) -> str:
        """Return the log of the main process: its last `tail` lines, or those of the last `since` seconds.

        `previous`: of the run before the last restart.
        """
        query = _log_query(tail, since, timestamps) | ({"previous": "true"} if previous else {})
        return (await self._transport.download(f"{self._path}/logs", query)).decode(errors="replace")

    async def follow_logs(
        self, *, tail: int | None = None, since: float | None = None, timestamps: bool = False
    ) -> AsyncIterator[str]:
        """Yield the lines of the log, without line breaks, as they come; until the main process ends."""
        query = _log_query(tail, since, timestamps) | {"follow": "true"}
        async with self._transport.lines(f"{self._path}/logs", query, float("inf")) as lines:
            async for line in lines:
                yield line

    @opening
    async def connect(self, port: int) -> AsyncPortConnection:
        """Connect to a TCP port on the sandbox's 127.0.0.1, also without a network. Raises Refused if none listens."""
        return await self._transport.connect(self._path, port)

    @opening
    async def forward(
        self, port: int, *, local: int = 0, address: str = "127.0.0.1", timeout: float = 0.0
    ) -> AsyncForward:
        """Listen locally, and relay each connection to a port of the sandbox until closed. `local` 0: any port.

        With a `timeout` wait so many seconds until the port accepts connections. For people's browsers use `preview`.

            async with sandbox.forward(8000, timeout=30) as forward:
                print(httpx.get(forward.url))
        """
        if timeout:
            await self._accepting(port, timeout)
        return await self._forward(port, local, address)

    @opening
    async def preview(
        self, port: int, *, path: str = "/", local: int = 0, timeout: float = _PORT_SECONDS
    ) -> AsyncForward:
        """Wait until a port of the sandbox accepts connections, and return its address for a browser of this machine.

        The address has a random host name of its own, and nothing else is served: a page of the sandbox gets none of
        the browser's cookies for other ports. A program uses `forward`: it may not know names below `localhost`.

            await sandbox.background("python3 -m http.server 8000")
            async with sandbox.preview(8000) as preview:
                webbrowser.open(preview.url)
        """
        await self._accepting(port, timeout)
        return await self._forward(port, local, "127.0.0.1", path, own_host())

    @opening
    async def proxy(self, port: int, *, timeout: float = 0.0) -> httpx.AsyncClient:
        """Return an HTTP client of a program that listens at a port of the sandbox; paths are relative to it.

        Nothing listens on this machine: requests go through the daemon's own address, with your credentials for it.
        The program never gets these, nor an `Authorization` header. Answers of Paddock itself (nothing listens, no
        right) have a JSON body with `kind: Status`. With a `timeout` wait so many seconds until the port accepts
        connections. Close the client, or use it in an `async with`.

            async with sandbox.proxy(8000, timeout=30) as http:
                print((await http.get("/status", params={"verbose": "1"})).json())
        """
        if timeout:
            await self._accepting(port, timeout)
        return self._transport.proxy(f"{self._path}/proxy/{port}")

    async def preview_link(self, port: int, *, expires: float = 8 * 3600.0) -> PreviewLink:
        """Return a link to a port for a browser, which may be passed on: whoever has it has the port until it expires.

        `expires` is in seconds, a week at most. Programs send `token` in the header `X-Paddock-Preview-Token`.
        """
        request = {"port": port, "expiresSeconds": int(expires)}
        link = await self._transport.request("POST", f"{self._path}/previews", json=request)
        return PreviewLink(str(link["url"]), str(link["token"]), float(link["expires"]))

    async def void_preview_links(self) -> None:
        """End all links to ports of this sandbox, and what is open through them."""
        await self._transport.request("DELETE", f"{self._path}/previews")

    @property
    def ssh_command(self) -> list[str]:
        """Command that opens an SSH session in the sandbox, by the command line `paddock`."""
        return ["paddock", "--server", str(self._transport.server), "ssh", "-n", self.namespace, self.name]

    async def _accepting(self, port: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                connection = await self.connect(port)
            except ClientError:
                if time.monotonic() >= deadline:
                    raise
                await pause(_POLL_SECONDS)
            else:
                await connection.close()
                return

    async def _forward(self, port: int, local: int, address: str, path: str = "/", host: str = "") -> AsyncForward:
        open_ = partial(open_port, self._transport.server, self._path)
        inner = await self._transport.call(Forwarding, open_, port, local=local, address=address, host=host)
        return AsyncForward(self._transport, inner, path)


def _argv(command: str | Sequence[str], method: str) -> list[str]:
    """Return the program and its arguments; a string is a shell line."""
    return ["sh", "-c", command] if isinstance(command, str) else checked_command(command, method)


def _has_no_contexts(error: Refused) -> bool:
    """Return True if the sandbox, or a daemon from before them, has no contexts; a new interpreter is to do it then."""
    older = isinstance(error, NotFound) and not error.causes
    return older or error.has_cause("NoContexts", "spec.template.agent")


def _is_paused(document: Object) -> bool:
    return (condition_of(document, "Ready") or {}).get("reason") == "Paused"


def _is_hibernated(document: Object) -> bool:
    return (condition_of(document, "Ready") or {}).get("reason") == "Hibernated"


def _is_decided(snapshot: Object | None) -> bool:
    condition = condition_of(snapshot, "Captured") if snapshot is not None else {"status": "False"}
    return condition is not None and condition["status"] != "Unknown"


def _capture_text(snapshot: Object | None) -> str:
    """Return the state of a capture as text."""
    condition = condition_of(snapshot, "Captured") if snapshot is not None else None
    if condition is None:
        return "it was deleted" if snapshot is None else "it has not begun"
    return f"{condition['reason']}: {condition.get('message', '')}"


def _log_query(tail: int | None, since: float | None, timestamps: bool) -> dict[str, str]:
    parameters = {
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": "" if since is None else f"{since:g}",
        "timestamps": "true" if timestamps else "",
    }
    return {key: value for key, value in parameters.items() if value}
