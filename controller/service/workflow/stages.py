"""The work of one attempt of a stage: commands and copies. Each blocks until its end, and can be taken up again."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.kinds.common.plural import counted
from controller.kinds.runtime.files import FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.workflow import OUTPUT_BYTES, ExecStage, Stage
from controller.kinds.workflowrun import Run, StageEnd
from controller.policy.workflow import expand, values_of
from controller.ports import RetryLater, StreamError
from controller.service import errors
from controller.service.sandbox.detached import Detached
from controller.service.sandbox.exec_records import DetachedExec
from controller.service.sandbox.files import SandboxFiles
from controller.service.workflow.files import ArtifactRefused, RunFiles, RunKey

USUAL_SECONDS = 3600.0
_COMMON_SECONDS = 0.5  # between looks at a command's end, besides the notification


@dataclass(eq=False, slots=True)
class Attempt:
    """An attempt under way. `stopping`: it is to end. `changed` is set for whatever it may wait for."""

    run: Run
    stage: Stage
    number: int
    stopping: bool = False
    released: bool = False
    changed: threading.Event = field(default_factory=threading.Event)

    @property
    def id(self) -> str:
        return stage_id(self.run.uid, self.stage.name, self.number)

    @property
    def key(self) -> RunKey:
        return RunKey(self.run.obj.namespace, self.run.uid)

    @property
    def seconds(self) -> float:
        return float(self.stage.timeout_seconds or USUAL_SECONDS)

    def expanded(self, text: str) -> str:
        """Return the text with its references replaced."""
        outputs = {each.name: each.outputs for each in self.run.progress.stages}
        obj = self.run.obj
        own = {"name": obj.name, "namespace": obj.namespace, "uid": obj.uid}
        return expand(text, values_of(self.run.parameters, outputs, own))


class Released(Exception):
    """The daemon is stopping: the attempt goes on without it."""


class StageWorker(Protocol):
    """A kind of stage. Returns its end. Raises RetryLater, Released, ServiceError, StreamError."""

    def work(self, attempt: Attempt) -> StageEnd: ...


def stage_id(uid: str, stage: str, attempt: int) -> str:
    """Return the id of an attempt: the run, the stage and the number."""
    return f"{uid}.{stage}.{attempt}"


class Commands:
    """Detached commands with ids that were written before they start. Followed after a restart, never repeated."""

    def __init__(self, detached: Detached) -> None:
        self._detached = detached

    def run(
        self,
        attempt: Attempt,
        id_: str,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        working_dir: str = "",
        seconds: float | None,
    ) -> DetachedExec:
        """Run a command once, and return its end. Raises RetryLater, Released, ServiceError."""
        obj = attempt.run.obj
        options: dict[str, Any] = {"env": env, "working_dir": working_dir, "id_": id_}
        try:
            starting = self._detached.start(
                SANDBOX, obj.namespace, attempt.run.sandbox_name, command, timeout_seconds=seconds, **options
            )
            starting.result()
        except (errors.ServiceUnavailable, errors.TooManyRequests, errors.Conflict, StreamError) as error:
            raise RetryLater(str(error)) from error
        while True:
            if attempt.released:
                raise Released
            if attempt.stopping:
                self._detached.end(id_)
            found = self._detached.state(id_)
            if found is None:
                raise RetryLater("its command is not recorded")
            if found.state == "NotStarted":
                raise RetryLater("the daemon ended before it started the command")
            if found.state != "Running":
                return found
            attempt.changed.wait(_COMMON_SECONDS)
            attempt.changed.clear()

    def output(self, id_: str) -> bytes:
        """Return the output of a command, head and tail of a long one."""
        return self._detached.output(id_)


class ExecWorker:
    """Stages of commands."""

    def __init__(self, commands: Commands, outputs: "Outputs") -> None:
        self._commands, self._outputs = commands, outputs

    def work(self, attempt: Attempt) -> StageEnd:
        """Run the commands in one shell, then read the stage's outputs."""
        asked = attempt.stage.exec
        assert asked is not None
        env = {each.name: attempt.expanded(each.value) for each in asked.env}
        command = asked.command or ("sh", "-ec", "\n".join(asked.commands or ()))
        found = self._run(attempt, asked, command, env)
        if found.state != "Exited" or found.exit_code:
            return _failed(found, attempt)
        return self._outputs.read(attempt, StageEnd("Succeeded", 0))

    def _run(
        self, attempt: Attempt, asked: ExecStage, command: tuple[str, ...], env: Mapping[str, str]
    ) -> DetachedExec:
        folder = asked.working_dir or ""
        try:
            return self._commands.run(
                attempt, attempt.id, command, env=env, working_dir=folder, seconds=attempt.seconds
            )
        except errors.BadRequest:
            if attempt.stage.timeout_seconds is not None:
                raise
        # The sandbox allows no command the usual time: it gets what it may have.
        return self._commands.run(attempt, attempt.id, command, env=env, working_dir=folder, seconds=None)


def _failed(found: DetachedExec, attempt: Attempt) -> StageEnd:
    match found.state:
        case "Killed":
            return StageEnd("Cancelled", reason="Cancelled", message="stopped on request")
        case "TimedOut":
            words = f"it did not end within {attempt.seconds:g} s (timeoutSeconds)"
            return StageEnd("Failed", found.exit_code, "TimedOut", words)
        case "Exited":
            return StageEnd("Failed", found.exit_code, "ExitCode", f"exit code {found.exit_code}")
    return StageEnd("Failed", reason="Lost", message=found.message)


class CopyWorker:
    """Stages that copy out of the sandbox."""

    def __init__(self, files: SandboxFiles, run_files: RunFiles, outputs: "Outputs") -> None:
        self._files, self._run_files, self._outputs = files, run_files, outputs

    def work(self, attempt: Attempt) -> StageEnd:
        """Copy the path into an artifact; a second time replaces the first."""
        asked, run = attempt.stage.copy_, attempt.run
        assert asked is not None
        place = run.obj.namespace, run.sandbox_name
        try:
            looked = self._files.begin(SANDBOX, *place, FileRequest("stat", asked.from_, follow=False))
            try:
                is_folder = looked.result()["type"] == "folder"
            finally:
                looked.close()
            top = "." if is_folder else asked.from_.rstrip("/").rpartition("/")[2]
            work = self._files.begin(SANDBOX, *place, FileRequest("pack", asked.from_, top=top, follow=False))
        except errors.NotFound:
            if not asked.optional:
                raise
            return StageEnd("Succeeded", message=f"{asked.from_} does not exist; nothing was copied")
        except (errors.ServiceUnavailable, errors.TooManyRequests, errors.Conflict) as error:
            raise RetryLater(str(error)) from error
        timer = threading.Timer(attempt.seconds, work.close)
        timer.daemon = True
        timer.start()
        try:
            work.result()
            read = _reading(attempt, work.receive)
            found = self._run_files.keep(attempt.key, attempt.stage.name, asked.artifact, read)
        except ArtifactRefused as error:
            return StageEnd("Failed", reason="ArtifactRefused", message=f"{asked.from_}: {error}", repeatable=False)
        finally:
            timer.cancel()
            work.close()
        words = f"{counted(len(found.files), 'file')}, {counted(found.file_bytes, 'byte')}"
        return self._outputs.read(attempt, StageEnd("Succeeded", message=words))


def _reading(attempt: Attempt, receive: Callable[[], bytes]) -> Callable[[], bytes]:
    def read() -> bytes:
        if attempt.released:
            raise Released
        if attempt.stopping:
            raise ArtifactRefused("the copy was stopped on request")
        return receive()

    return read


class Outputs:
    """The texts that a stage leaves in files."""

    def __init__(self, files: SandboxFiles) -> None:
        self._files = files

    def read(self, attempt: Attempt, end: StageEnd) -> StageEnd:
        """Return the end of a successful attempt with its outputs; a failure if one is missing, too long or no text."""
        found = dict(end.outputs)
        for each in attempt.stage.outputs:
            try:
                data = self._text(attempt, each.path)
            except errors.ServiceUnavailable as error:
                raise RetryLater(str(error)) from error
            except errors.ServiceError as error:
                return StageEnd("Failed", reason="OutputMissing", message=f"output `{each.name}`: {error}")
            if len(data) > OUTPUT_BYTES:
                words = f"output `{each.name}`: {each.path} is longer than {OUTPUT_BYTES} bytes; copy it as an artifact"
                return StageEnd("Failed", reason="OutputTooLarge", message=words, repeatable=False)
            if b"\0" in data:  # no variable of a command can hold it
                words = f"output `{each.name}`: {each.path} has a NUL byte; copy it as an artifact instead"
                return StageEnd("Failed", reason="OutputNotText", message=words, repeatable=False)
            found[each.name] = data.decode("utf-8", "replace").removesuffix("\n")
        return StageEnd(end.state, end.exit_code, end.reason, end.message, found)

    def _text(self, attempt: Attempt, path: str) -> bytes:
        work = self._files.begin(
            SANDBOX, attempt.run.obj.namespace, attempt.run.sandbox_name, FileRequest("read", path, max_bytes=0)
        )
        try:
            work.result()
            data = b""
            while len(data) <= OUTPUT_BYTES and (piece := work.receive()):
                data += piece
            return data
        finally:
            work.close()
