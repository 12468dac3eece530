"""The bridge: one request, one stage in a sandbox, one answer. It is a WorkflowRun with a name that the key gives."""

import hashlib
import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.workflowrun import KIND, Run, StageEnd, read_run
from controller.ports.place import ALONE, Place
from controller.service import errors
from controller.service.access import access
from controller.service.objects.objects import Objects
from controller.service.objects.write import Write
from controller.service.sandbox.files import SandboxFiles
from controller.service.workflow.changes import changed_files
from controller.service.workflow.files import ArtifactFile, RunFiles, RunKey
from controller.service.workflow.stages import Commands, stage_id
from controller.version import API_VERSION

STAGE, COPY, ARTIFACT = "run", "files", "files"
DIGEST = "paddock/request-digest"
_KEPT_SECONDS = 86_400
_WRITTEN_BY = "bridge"
_SPARE_SECONDS = 120.0
_PIECE_SECONDS = 0.25
_ROUNDED_SECONDS = 1.0  # the end of a run is a whole second


@dataclass(frozen=True, slots=True)
class BridgeRequest:
    """A command, or the instructions of an agent."""

    command: tuple[str, ...] = ()
    context: str = ""
    tools: tuple[str, ...] = ()
    provider: str = ""
    model: str = ""
    copy_out: str = ""
    timeout_seconds: int = 600


class Finished:
    """Notifies those who wait for a run. `notify` is called when any work has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def notify(self) -> None:
        """Wake all who wait."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until there was a change since `seen`, for at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != seen, seconds)


class Bridge:
    """The use-case. Raises ServiceError."""

    def __init__(
        self,
        *,
        objects: Objects,
        write: Write,
        files: RunFiles,
        commands: Commands,
        sandbox_files: SandboxFiles | None = None,
        place: Place = ALONE,
    ) -> None:
        """Without `sandbox_files` an answer has the copied files alone, and not those that were changed."""
        self._sandbox_files = sandbox_files
        self._objects, self._write, self._files, self._commands = objects, write, files, commands
        self._place = place
        self.finished = Finished()

    def run(self, namespace: str, sandbox: str, asked: BridgeRequest, key: str) -> dict[str, Any]:
        """Run the stage to its end, and return the answer. With a key: once for it, whoever asks again."""
        _check(asked)
        document = _document(sandbox, asked, key, access.caller())
        name = document["metadata"]["name"]
        try:
            found = self._write.create(KIND, namespace, json.dumps(document), written_by=_WRITTEN_BY)
        except errors.AlreadyExists:
            found = self._objects.get(KIND, namespace, name)
            if found.annotations.get(DIGEST) != document["metadata"]["annotations"][DIGEST]:
                raise errors.Invalid(
                    f"Idempotency-Key `{key}` was used for another request in namespace `{namespace}`; use a new key"
                ) from None
        return self._answer(self._until_finished(found, asked), sandbox, asked)

    def _until_finished(self, found: StoredObject, asked: BridgeRequest) -> Run:
        left = asked.timeout_seconds + _SPARE_SECONDS
        while not found.status.get("completionTime"):
            seen = self.finished.count
            found = self._objects.get(KIND, found.namespace, found.name)
            if found.status.get("completionTime"):
                break
            if left <= 0:
                raise errors.ServiceUnavailable(
                    f"workflowrun `{found.name}` has not ended; ask again with the same key"
                )
            self.finished.wait(seen, _PIECE_SECONDS)
            left -= _PIECE_SECONDS
        run = read_run(found)
        if run is None:
            raise errors.Conflict(f"workflowrun `{found.name}`: this version can't read it; use a new key")
        return run

    def _answer(self, run: Run, sandbox: str, asked: BridgeRequest) -> dict[str, Any]:
        if run.progress.host not in ("", self._place.host):
            words = f"workflowrun `{run.obj.name}` was done on host `{run.progress.host}`, and its sandbox is not there"
            raise errors.Conflict(f"{words}; read it by its name (`paddock workflow logs`), or use a new key")
        stage = run.progress.stage(STAGE)
        key = RunKey(run.obj.namespace, run.uid)
        lines = self._files.transcript(key, STAGE, stage.attempt) if not asked.command else []
        last = next((each["text"] for each in reversed(lines) if each["role"] == "assistant"), "")
        output = self._commands.output(stage_id(run.uid, STAGE, stage.attempt)).decode("utf-8", "replace")
        files = self._changed(run, sandbox, asked)
        end = self._files.end_of(key, STAGE, stage.attempt) or StageEnd("Cancelled")
        good = run.progress.phase == "Succeeded"
        return {
            "success": good,
            "output": output if asked.command else last,
            "files": [asdict(file) for file in files],
            "metrics": {
                "durationSeconds": round(max(0.0, run.progress.finished_at - run.progress.started_at), 3),
                "cpuSeconds": None if end.cpu_seconds is None else round(end.cpu_seconds, 3),
                "memoryPeakBytes": end.memory_peak_bytes,
                "promptTokens": sum(each.get("promptTokens", 0) for each in lines),
                "completionTokens": sum(each.get("completionTokens", 0) for each in lines),
                "toolCalls": sum(each["role"] == "tool" for each in lines) if lines else int(bool(asked.command)),
            },
            "error": None if good else stage.message or run.progress.message,
            "run": run.obj.name,
        }

    def _changed(self, run: Run, sandbox: str, asked: BridgeRequest) -> Sequence[ArtifactFile]:
        """Return the copied files, if a folder was to be copied; else those that the stage changed."""
        if asked.copy_out or self._sandbox_files is None:
            artifacts = self._files.artifacts(RunKey(run.obj.namespace, run.uid))
            return [file for artifact in artifacts for file in artifact.files]
        since, until = run.obj.created_at, run.progress.finished_at + _ROUNDED_SECONDS
        return changed_files(self._sandbox_files, run.obj.namespace, sandbox, since, until)


def _check(asked: BridgeRequest) -> None:
    if bool(asked.command) == bool(asked.context):
        raise errors.BadRequest("send one of `command` and `context`, and not both")
    if asked.context and not (asked.provider and asked.model):
        raise errors.BadRequest("`context` needs `provider` and `model`, the model that works on it")


def _document(sandbox: str, asked: BridgeRequest, key: str, caller: Any) -> dict[str, Any]:
    """Return the run of a request. A key gives its name: of one caller's requests to one sandbox."""
    digest = hashlib.sha256(json.dumps(asdict(asked), sort_keys=True).encode()).hexdigest()
    who = caller.name if caller is not None else ""
    unique = hashlib.sha256(json.dumps([who, sandbox, key]).encode()).hexdigest()[:16] if key else secrets.token_hex(8)
    stages: list[Mapping[str, Any]] = [{"name": STAGE, "timeoutSeconds": asked.timeout_seconds, **_work(asked)}]
    if asked.copy_out:
        stages.append({"name": COPY, "copy": {"from": asked.copy_out, "artifact": ARTIFACT, "optional": True}})
    return {
        "apiVersion": API_VERSION,
        "kind": KIND.name,
        "metadata": {"name": f"{sandbox[:30].rstrip('-')}-{unique}", "annotations": {DIGEST: digest}},
        "spec": {
            "sandboxRef": {"name": sandbox},
            "workflow": {"stages": stages},
            "activeDeadlineSeconds": asked.timeout_seconds + int(_SPARE_SECONDS),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
    }


def _work(asked: BridgeRequest) -> dict[str, Any]:
    if asked.command:
        return {"exec": {"command": asked.command}}
    agent = {"provider": asked.provider, "model": asked.model, "instructions": asked.context, "tools": asked.tools}
    return {"agent": agent}
