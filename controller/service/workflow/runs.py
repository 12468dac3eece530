"""Requests about workflow runs: logs and transcripts of their stages, and artifacts."""

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from controller.kinds.workflowrun import KIND, Run, read_run
from controller.service import errors
from controller.service.objects.objects import Objects
from controller.service.workflow.agent import transcript_text
from controller.service.workflow.files import Artifact, RunFiles, RunKey
from controller.service.workflow.stages import Commands, stage_id


class Runs:
    """The use-cases. Raises ServiceError."""

    def __init__(self, objects: Objects, files: RunFiles, commands: Commands) -> None:
        self._objects, self._files, self._commands = objects, files, commands

    def get(self, namespace: str, name: str) -> Run:
        """Return a run. Raises NotFound; Conflict if it can't be read."""
        run = read_run(self._objects.get(KIND, namespace, name))
        if run is None:
            raise errors.Conflict(f"workflowrun `{name}`: this version can't read it; create another one")
        return run

    def log(self, namespace: str, name: str, stage: str, attempt: int | None = None) -> bytes:
        """Return the output of an attempt of a stage (default: the last one); a transcript as text for an agent's."""
        run, number = self._attempt(namespace, name, stage, attempt)
        described = run.stage(stage)
        if described is not None and described.agent is not None:
            return transcript_text(self._transcript(run, stage, number)).encode("utf-8", "replace")
        return self._commands.output(stage_id(run.uid, stage, number))

    def transcript(
        self, namespace: str, name: str, stage: str, attempt: int | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Return the messages of an agent stage."""
        run, number = self._attempt(namespace, name, stage, attempt)
        described = run.stage(stage)
        if described is None or described.agent is None:
            raise errors.BadRequest(f"stage `{stage}` has no transcript: it is no agent; read its log")
        return self._transcript(run, stage, number)

    def artifacts(self, namespace: str, name: str) -> Sequence[Artifact]:
        """Return the artifacts of a run by name."""
        try:
            return self._files.artifacts(_key(self.get(namespace, name)))
        except OSError as error:
            raise errors.ServiceUnavailable(f"the artifacts of `{name}` can't be read: {error}") from error

    def open_artifact(self, namespace: str, name: str, artifact: str) -> BinaryIO:
        """Open an artifact's tar archive. Raises NotFound."""
        try:
            archive = self._files.open_artifact(_key(self.get(namespace, name)), artifact)
        except OSError as error:
            raise errors.ServiceUnavailable(f"artifact `{artifact}` can't be read: {error}") from error
        if archive is None:
            names = ", ".join(stored.name for stored in self.artifacts(namespace, name)) or "none"
            raise errors.NotFound(f"workflowrun `{name}` has no artifact `{artifact}`; it has {names}")
        return archive

    def _attempt(self, namespace: str, name: str, stage: str, attempt: int | None) -> tuple[Run, int]:
        run = self.get(namespace, name)
        if run.stage(stage) is None:
            names = ", ".join(stage_progress.name for stage_progress in run.progress.stages)
            raise errors.NotFound(f"workflowrun `{name}` has no stage `{stage}`; it has {names}")
        return run, attempt or run.progress.stage(stage).attempt

    def _transcript(self, run: Run, stage: str, attempt: int) -> Sequence[Mapping[str, Any]]:
        try:
            return self._files.transcript(_key(run), stage, attempt)
        except (OSError, ValueError) as error:
            raise errors.ServiceUnavailable(f"the transcript of `{stage}` can't be read: {error}") from error


def _key(run: Run) -> RunKey:
    return RunKey(run.obj.namespace, run.uid)
