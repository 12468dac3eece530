"""Code contexts of a sandbox: interpreters that keep their state between calls."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from paddock._client.connection import segment
from paddock._execution import Collector, Execution, ExecutionError, Result
from paddock._models import MAX_OUTPUT_BYTES
from paddock._transport.aio import AsyncTransport, TextCallback, tell

ResultCallback = Callable[[Result], object]
ErrorCallback = Callable[[ExecutionError], object]


class AsyncContext:
    """One interpreter of a sandbox: variables, imports and its folder stay between calls.

        context = await sandbox.contexts.create("python")
        await context.run("x = 41")
        assert (await context.run("x + 1")).text == "42"

    `facts` are what the daemon said of it last: state, engine, cwd, memoryBytes and others.
    """

    def __init__(
        self, transport: AsyncTransport, path: str, facts: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self._transport, self._path = transport, path
        self._env = dict(env or {})
        self.facts: Mapping[str, Any] = facts

    @property
    def name(self) -> str:
        """Its name in the sandbox."""
        return str(self.facts["name"])

    @property
    def language(self) -> str:
        """Its language: python, javascript or bash."""
        return str(self.facts["language"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.language})>"

    async def run(
        self,
        code: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_stdout: TextCallback | None = None,
        on_stderr: TextCallback | None = None,
        on_result: ResultCallback | None = None,
        on_error: ErrorCallback | None = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> Execution:
        """Run code, after what runs here already. `env` are variables for this call.

        At `timeout` seconds it is interrupted, and so it is if the caller is cancelled; the state stays. The callbacks
        get output, results and an error as they come. `check`: CommandFailed if it did not succeed.
        """
        return await execute(
            self._transport,
            f"{self._path}/{segment(self.name)}/execute",
            {"code": code, "env": {**self._env, **(env or {})}, "timeoutSeconds": timeout},
            (on_stdout, on_stderr, on_result, on_error),
            check=check,
            max_output_bytes=max_output_bytes,
        )

    async def interrupt(self) -> bool:
        """Interrupt what runs; after 4 seconds it is killed, and its state is lost. False: nothing runs."""
        answer = await self._transport.request("POST", f"{self._path}/{segment(self.name)}/interrupt")
        return bool(answer["interrupted"])

    async def restart(self) -> "AsyncContext":
        """Begin with a new interpreter; all that the old one started ends."""
        self.facts = await self._transport.request("POST", f"{self._path}/{segment(self.name)}/restart")
        return self

    async def refresh(self) -> "AsyncContext":
        """Read what the daemon says of it again."""
        self.facts = await self._transport.request("GET", f"{self._path}/{segment(self.name)}")
        return self

    async def fork(self, name: str = "", *, force: bool = False) -> "AsyncContext":
        """Return a copy with all its state. Conflict names what forbids one, unless `force`."""
        body = {"name": name, "force": force}
        forked = await self._transport.request("POST", f"{self._path}/{segment(self.name)}/fork", json=body)
        return AsyncContext(self._transport, self._path, forked, self._env)

    async def delete(self) -> None:
        """End it, and all that it started."""
        await self._transport.upload_nothing("DELETE", f"{self._path}/{segment(self.name)}")


class AsyncContexts:
    """The code contexts of a sandbox."""

    def __init__(self, transport: AsyncTransport, path: str, env: Mapping[str, str] | None = None) -> None:
        self._transport = transport
        self._path = f"{path}/contexts"
        self._env = dict(env or {})

    async def create(
        self, language: str = "python", *, name: str = "", cwd: str = "", env: Mapping[str, str] | None = None
    ) -> AsyncContext:
        """Start an interpreter. Without a name it gets one; without `cwd` it starts in the working folder."""
        variables = {**self._env, **(env or {})}
        body = {"language": language, "name": name, "cwd": cwd, "env": variables}
        created = await self._transport.request("POST", self._path, json=body)
        return AsyncContext(self._transport, self._path, created, self._env)

    async def list(self) -> list[AsyncContext]:
        """List the contexts."""
        page = await self._transport.request("GET", self._path)
        return [AsyncContext(self._transport, self._path, entry, self._env) for entry in page["items"]]

    async def get(self, name: str) -> AsyncContext:
        """Return a context. Raises NotFound."""
        existing = await self._transport.request("GET", f"{self._path}/{segment(name)}")
        return AsyncContext(self._transport, self._path, existing, self._env)

    async def fork(self, name: str, copy: str = "", *, force: bool = False) -> AsyncContext:
        """Return a copy of a context with all its state."""
        return await (await self.get(name)).fork(copy, force=force)

    async def delete(self, name: str) -> None:
        """End a context, and all that it started."""
        await self._transport.upload_nothing("DELETE", f"{self._path}/{segment(name)}")


async def execute(
    transport: AsyncTransport,
    path: str,
    body: Mapping[str, Any],
    callbacks: tuple[TextCallback | None, TextCallback | None, ResultCallback | None, ErrorCallback | None],
    *,
    check: bool,
    max_output_bytes: int,
) -> Execution:
    """Run code by a request, and return its result."""
    on_stdout, on_stderr, on_result, on_error = callbacks
    texts = {"stdout": on_stdout, "stderr": on_stderr}
    collector = Collector(max_output_bytes)
    async with transport.lines(path, {}, math.inf, json=body) as lines:
        async for line in lines:
            event = collector.take(line)
            if isinstance(event, tuple):
                await tell(texts[event[0]], event[1])
            elif isinstance(event, Result):
                await tell(on_result, event)
            elif isinstance(event, ExecutionError):
                await tell(on_error, event)
    execution = collector.execution()
    if check:
        execution.check()
    return execution
