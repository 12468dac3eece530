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
from controller.service.exec.detached import Detached
from controller.service.exec.exec_records import DetachedExec
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

    def expand(self, text: str) -> str:
        """Return the text with its references replaced."""
        outputs = {stage.name: stage.outputs for stage in self.run.progress.stages}
        obj = self.run.obj
        identity = {"name": obj.name, "namespace": obj.namespace, "uid": obj.uid}
        return expand(text, values_of(self.run.parameters, outputs, identity))


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
            command_state = self._detached.state(id_)
            if command_state is None:
                raise RetryLater("its command is not recorded")
            if command_state.state == "NotStarted":
                raise RetryLater("the daemon ended before it started the command")
            if command_state.state != "Running":
                return command_state
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
        exec_stage = attempt.stage.exec
        assert exec_stage is not None
        env = {variable.name: attempt.expand(variable.value) for variable in exec_stage.env}
        command = exec_stage.command or ("sh", "-ec", "\n".join(exec_stage.commands or ()))
        command_end = self._run(attempt, exec_stage, command, env)
        if command_end.state != "Exited" or command_end.exit_code:
            return _failed_end(command_end, attempt)
        return self._outputs.read(attempt, StageEnd("Succeeded", 0))

    def _run(
        self, attempt: Attempt, exec_stage: ExecStage, command: tuple[str, ...], env: Mapping[str, str]
    ) -> DetachedExec:
        folder = exec_stage.working_dir or ""
        try:
            return self._commands.run(
                attempt, attempt.id, command, env=env, working_dir=folder, seconds=attempt.seconds
            )
        except errors.BadRequest:
            if attempt.stage.timeout_seconds is not None:
                raise
        # The sandbox allows no command the usual time: it gets what it may have.
        return self._commands.run(attempt, attempt.id, command, env=env, working_dir=folder, seconds=None)


def _failed_end(command_end: DetachedExec, attempt: Attempt) -> StageEnd:
    match command_end.state:
        case "Killed":
            return StageEnd("Cancelled", reason="Cancelled", message="stopped on request")
        case "TimedOut":
            message = f"it did not end within {attempt.seconds:g} s (timeoutSeconds)"
            return StageEnd("Failed", command_end.exit_code, "TimedOut", message)
        case "Exited":
            return StageEnd("Failed", command_end.exit_code, "ExitCode", f"exit code {command_end.exit_code}")
    return StageEnd("Failed", reason="Lost", message=command_end.message)


class CopyWorker:
    """Stages that copy out of the sandbox."""

    def __init__(self, files: SandboxFiles, run_files: RunFiles, outputs: "Outputs") -> None:
        self._files, self._run_files, self._outputs = files, run_files, outputs

    def work(self, attempt: Attempt) -> StageEnd:
        """Copy the path into an artifact; a second time replaces the first."""
        copy_stage, run = attempt.stage.copy_, attempt.run
        assert copy_stage is not None
        place = run.obj.namespace, run.sandbox_name
        try:
            looked = self._files.begin(SANDBOX, *place, FileRequest("stat", copy_stage.from_, follow=False))
            try:
                is_folder = looked.result()["type"] == "folder"
            finally:
                looked.close()
            top = "." if is_folder else copy_stage.from_.rstrip("/").rpartition("/")[2]
            work = self._files.begin(SANDBOX, *place, FileRequest("pack", copy_stage.from_, top=top, follow=False))
        except errors.NotFound:
            if not copy_stage.optional:
                raise
            return StageEnd("Succeeded", message=f"{copy_stage.from_} does not exist; nothing was copied")
        except (errors.ServiceUnavailable, errors.TooManyRequests, errors.Conflict) as error:
            raise RetryLater(str(error)) from error
        timer = threading.Timer(attempt.seconds, work.close)
        timer.daemon = True
        timer.start()
        try:
            work.result()
            read = _reading(attempt, work.receive)
            artifact = self._run_files.keep(attempt.key, attempt.stage.name, copy_stage.artifact, read)
        except ArtifactRefused as error:
            return StageEnd(
                "Failed", reason="ArtifactRefused", message=f"{copy_stage.from_}: {error}", repeatable=False
            )
        finally:
            timer.cancel()
            work.close()
        message = f"{counted(len(artifact.files), 'file')}, {counted(artifact.file_bytes, 'byte')}"
        return self._outputs.read(attempt, StageEnd("Succeeded", message=message))


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
        outputs = dict(end.outputs)
        for output in attempt.stage.outputs:
            try:
                data = self._text(attempt, output.path)
            except errors.ServiceUnavailable as error:
                raise RetryLater(str(error)) from error
            except errors.ServiceError as error:
                return StageEnd("Failed", reason="OutputMissing", message=f"output `{output.name}`: {error}")
            if len(data) > OUTPUT_BYTES:
                message = (
                    f"output `{output.name}`: {output.path} is longer than {OUTPUT_BYTES} bytes; copy it as an artifact"
                )
                return StageEnd("Failed", reason="OutputTooLarge", message=message, repeatable=False)
            if b"\0" in data:  # no variable of a command can hold it
                message = f"output `{output.name}`: {output.path} has a NUL byte; copy it as an artifact instead"
                return StageEnd("Failed", reason="OutputNotText", message=message, repeatable=False)
            outputs[output.name] = data.decode("utf-8", "replace").removesuffix("\n")
        return StageEnd(end.state, end.exit_code, end.reason, end.message, outputs)

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
