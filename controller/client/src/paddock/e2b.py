"""E2B's common calls on Paddock: `from paddock.e2b import Sandbox` instead of `from e2b import Sandbox`.

    with Sandbox.create(timeout=600) as sandbox:
        sandbox.files.write("/tmp/a.txt", "hello")
        print(sandbox.commands.run("cat /tmp/a.txt").stdout)

A `template` is a SandboxTemplate, or an image if its name has a `:` or `/`. As in E2B, a command that fails raises
CommandExitException, one that runs too long TimeoutException, and a sandbox lives until its `timeout` or `kill`. A
paused one stays, with its files and memory, until `connect` lets it go on. `get_host` is an address on this machine.
"""

import builtins
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from paddock import _models
from paddock._client.errors import NotFound, PaddockError, TimedOut
from paddock._client.files import FileInfo
from paddock._spec import SandboxOptions
from paddock._sync.client import Paddock
from paddock._sync.ports import Forward
from paddock._sync.process import Process
from paddock._sync.sandbox import Sandbox as PaddockSandbox

DEFAULT_TIMEOUT_SECONDS = 300
_LABEL = "paddock.e2b"
Callback = Callable[[str], object]
SandboxException = PaddockError
NotFoundException = NotFound
TimeoutException = TimedOut


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command."""

    stderr: str
    stdout: str
    exit_code: int
    error: str | None = None


class CommandExitException(PaddockError):
    """A command ended with another exit code than 0."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__(f"Command exited with code {result.exit_code} and error:\n{result.stderr}")
        self.stdout, self.stderr = result.stdout, result.stderr
        self.exit_code, self.error = result.exit_code, result.error


class CommandHandle:
    """A running command; iterate over (stdout, stderr, None), or `wait` for its end."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._kept = _models.KeptStreams(_models.MAX_OUTPUT_BYTES)

    def __iter__(self) -> Iterator[tuple[str | None, str | None, None]]:
        for output in self._process:
            self._kept.add(output.stream, output.data)
            yield (output.text, None, None) if output.stream == "stdout" else (None, output.text, None)

    def wait(self, on_stdout: Callback | None = None, on_stderr: Callback | None = None) -> CommandResult:
        """Wait for its end. Raises CommandExitException, TimeoutException."""
        for stdout, stderr, _ in self:
            if stdout is not None and on_stdout is not None:
                on_stdout(stdout)
            if stderr is not None and on_stderr is not None:
                on_stderr(stderr)
        done = self._kept.result(self._process.exit_code or 0, timed_out=self._process.timed_out)
        self._process.kill()  # closes the connection of a command that has ended
        return _checked(done)

    def send_stdin(self, data: str) -> None:
        """Write to its stdin."""
        self._process.write(data)

    def kill(self) -> bool:
        """Kill it."""
        self._process.kill()
        return True


class Commands:
    """Commands of a sandbox."""

    def __init__(self, sandbox: PaddockSandbox) -> None:
        self._sandbox = sandbox

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[False] | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
    ) -> CommandResult: ...

    @overload
    def run(
        self,
        cmd: str,
        background: Literal[True],
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: None = None,
        on_stderr: None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
    ) -> CommandHandle: ...

    def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
    ) -> CommandResult | CommandHandle:
        """Run a shell line. `background` returns a handle at once; `timeout` 0 or None: no limit.

        Raises CommandExitException, and TimeoutException after `timeout` seconds.
        """
        if user is not None:
            raise SandboxException(f"user {user}: every command has the sandbox's user; leave `user` out")
        seconds = timeout or 0
        if background:
            started = self._sandbox.start(
                ["bash", "-l", "-c", cmd], env=envs, cwd=cwd or "", stdin=bool(stdin), timeout=seconds
            )
            return CommandHandle(started)
        done = self._sandbox.exec(
            ["bash", "-l", "-c", cmd],
            env=envs,
            cwd=cwd or "",
            timeout=seconds,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )
        return _checked(done)


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """A file or folder; `type` is file or dir."""

    name: str
    path: str
    type: str
    size: int


class Filesystem:
    """Files of a sandbox."""

    def __init__(self, sandbox: PaddockSandbox) -> None:
        self._sandbox, self._files = sandbox, sandbox.files

    def read(self, path: str, format: Literal["text", "bytes"] = "text") -> Any:  # noqa: A002 - E2B's name
        """Read a file as text, or as a bytearray."""
        return self._files.read(path) if format == "text" else bytearray(self._files.read_bytes(path))

    def write(self, path: str, data: str | bytes) -> EntryInfo:
        """Create or replace a file, and its folder if it is missing."""
        self._files.write(path, data)
        return _entry(path, self._files.stat(path))

    def list(self, path: str) -> builtins.list[EntryInfo]:
        """List a folder."""
        return [_entry(f"{path.rstrip('/')}/{entry.name}", entry) for entry in self._files.list(path)]

    def exists(self, path: str) -> bool:
        """Tell if something exists at the path."""
        return self._files.exists(path)

    def get_info(self, path: str) -> EntryInfo:
        """Return metadata. Raises NotFoundException."""
        return _entry(path, self._files.stat(path))

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its content."""
        self._files.remove(path, recursive=True)

    def rename(self, old_path: str, new_path: str) -> EntryInfo:
        """Move a file or folder."""
        self._sandbox.exec(["mv", "-T", "--", old_path, new_path], check=True)
        return self.get_info(new_path)

    def make_dir(self, path: str) -> bool:
        """Create a folder with its parents; False if it exists."""
        if self._files.exists(path):
            return False
        self._files.mkdir(path)
        return True


@dataclass(frozen=True, slots=True)
class Logs:
    """Output of code, in pieces."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExecutionError:
    """The exception that ended a program."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Execution:
    """Result of `run_code`; `text` is the value of its last expression, else what it printed."""

    logs: Logs
    error: ExecutionError | None = None
    value: str | None = None

    @property
    def text(self) -> str | None:
        """Value of the last expression, else the output without the last line break."""
        if self.value is not None:
            return self.value
        return "".join(self.logs.stdout).removesuffix("\n") or None


class Sandbox:
    """A sandbox with E2B's names."""

    def __init__(self, paddock: Paddock, sandbox: PaddockSandbox, *, owns_client: bool = False) -> None:
        """`owns_client`: the client is this object's, and is closed when the sandbox is killed."""
        self._paddock, self._sandbox = paddock, sandbox
        self._own, self._killed = owns_client, False
        self._previews: dict[int, Forward] = {}
        self.commands, self.files = Commands(sandbox), Filesystem(sandbox)

    @classmethod
    def create(
        cls,
        template: str | None = None,
        timeout: int | None = None,
        metadata: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        paddock: Paddock | None = None,
    ) -> "Sandbox":
        """Create a sandbox that lives for `timeout` seconds. `metadata` are labels; `paddock` is the client to use."""
        client = paddock or Paddock()
        source = template or "paddock/python:1"
        image = ":" in source or "/" in source
        lifetime = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
        labels = {**(metadata or {}), _LABEL: "true"}
        options = SandboxOptions(env=envs or {}, lifetime=lifetime, keep_running=True)
        options |= SandboxOptions(image=source) if image else SandboxOptions(template=source)
        with _closed_on_error(client, paddock is None):
            created = client.sandboxes.create(labels=labels, **options)
        return cls(client, created, owns_client=paddock is None)

    @classmethod
    def connect(cls, sandbox_id: str, paddock: Paddock | None = None, timeout: int | None = None) -> "Sandbox":
        """Return an existing sandbox; a paused one is resumed. Raises NotFoundException.

        It lives for at least `timeout` seconds from now; the default is that of `create`.
        """
        client = paddock or Paddock()
        with _closed_on_error(client, paddock is None):
            sandbox = client.sandboxes.get(sandbox_id)
            if sandbox.object["spec"].get("runState", "Running") != "Running":
                sandbox.resume()
            # A sandbox that others created has a lifetime only if it is asked for.
            if timeout is not None or _LABEL in sandbox.object["metadata"].get("labels", {}):
                sandbox.set_lifetime(DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout, shorten=False)
        return cls(client, sandbox, owns_client=paddock is None)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def sandbox_id(self) -> str:
        """Its name."""
        return self._sandbox.name

    def is_running(self) -> bool:
        """Tell if it runs."""
        if self._killed:
            return False
        try:
            current = self._sandbox.refresh()
        except NotFound:
            return False
        return current.ready and current.phase != "Terminating"

    def kill(self) -> bool:
        """Delete it; False if it was gone."""
        for preview in self._previews.values():
            preview.close()
        self._previews.clear()
        if self._killed:
            return False
        is_deleted = True
        try:
            self._sandbox.delete()
        except NotFound:
            is_deleted = False
        self._killed = True
        if self._own:
            self._paddock.close()
        return is_deleted

    def set_timeout(self, timeout: int) -> None:
        """Let it live for so many seconds from now."""
        self._sandbox.set_lifetime(timeout)

    def pause(self) -> None:
        """Freeze it, and keep its files and memory until `connect` or `kill`, however long that is."""
        self._sandbox.pause()
        self._sandbox.patch({"spec": {"lifecycle": {"activeDeadlineSeconds": None}}})

    def get_host(self, port: int) -> str:
        """Return host and port on this machine that reach a port of the sandbox: for programs, not for a browser."""
        if port not in self._previews:
            self._previews[port] = self._sandbox.forward(port)
        forward = self._previews[port]
        return f"{forward.address}:{forward.port}"

    def run_code(
        self,
        code: str,
        language: str | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Execution:
        """Run code in a new interpreter: unlike E2B's, it knows nothing of earlier code. Raises TimeoutException."""
        done = self._sandbox.run_code(
            code, language or "python", env=envs, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr
        )
        _refuse_late(done)
        logs = Logs([done.stdout] if done.stdout else [], [done.stderr] if done.stderr else [])
        if done.ok:
            return Execution(logs, value=done.value)
        name, _, value = (done.stderr.strip().splitlines() or [f"ExitCode: {done.exit_code}"])[-1].partition(": ")
        return Execution(logs, ExecutionError(name, value, done.stderr))


def _refuse_late(done: _models.CommandResult) -> None:
    if done.timed_out:
        raise TimeoutException("the command did not end within its `timeout`, and was killed; ask for a longer one")


def _checked(done: _models.CommandResult) -> CommandResult:
    _refuse_late(done)
    result = CommandResult(done.stderr, done.stdout, done.exit_code)
    if result.exit_code:
        raise CommandExitException(result)
    return result


def _entry(path: str, file_info: FileInfo) -> EntryInfo:
    return EntryInfo(
        path.rpartition("/")[2], path, "dir" if file_info.type == "folder" else file_info.type, file_info.size
    )


@contextlib.contextmanager
def _closed_on_error(client: Paddock, owns_client: bool) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if owns_client:
            client.close()
        raise
