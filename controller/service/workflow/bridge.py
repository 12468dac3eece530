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
from controller.ports.fleet import SINGLE, Fleet
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

    def wait(self, count: int, seconds: float) -> None:
        """Wait until there was a change since `count`, for at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, seconds)


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
        place: Fleet = SINGLE,
    ) -> None:
        """Without `sandbox_files` an answer has the copied files alone, and not those that were changed."""
        self._sandbox_files = sandbox_files
        self._objects, self._write, self._files, self._commands = objects, write, files, commands
        self._place = place
        self.finished = Finished()

    def run(self, namespace: str, sandbox: str, request: BridgeRequest, key: str) -> dict[str, Any]:
        """Run the stage to its end, and return the answer. With a key: once for it, whoever asks again."""
        _check(request)
        document = _document(sandbox, request, key, access.caller())
        name = document["metadata"]["name"]
        try:
            stored = self._write.create(KIND, namespace, json.dumps(document), written_by=_WRITTEN_BY)
        except errors.AlreadyExists:
            stored = self._objects.get(KIND, namespace, name)
            if stored.annotations.get(DIGEST) != document["metadata"]["annotations"][DIGEST]:
                raise errors.Invalid(
                    f"Idempotency-Key `{key}` was used for another request in namespace `{namespace}`; use a new key"
                ) from None
        return self._answer(self._until_finished(stored, request), sandbox, request)

    def _until_finished(self, obj: StoredObject, request: BridgeRequest) -> Run:
        seconds_left = request.timeout_seconds + _SPARE_SECONDS
        while not obj.status.get("completionTime"):
            count = self.finished.count
            obj = self._objects.get(KIND, obj.namespace, obj.name)
            if obj.status.get("completionTime"):
                break
            if seconds_left <= 0:
                raise errors.ServiceUnavailable(f"workflowrun `{obj.name}` has not ended; ask again with the same key")
            self.finished.wait(count, _PIECE_SECONDS)
            seconds_left -= _PIECE_SECONDS
        run = read_run(obj)
        if run is None:
            raise errors.Conflict(f"workflowrun `{obj.name}`: this version can't read it; use a new key")
        return run

    def _answer(self, run: Run, sandbox: str, request: BridgeRequest) -> dict[str, Any]:
        """Return the answer to a task: text of the agent, output, changed files, and how it ended."""
        if run.progress.host not in ("", self._place.host):
            message = (
                f"workflowrun `{run.obj.name}` was done on host `{run.progress.host}`, and its sandbox is not there"
            )
            raise errors.Conflict(f"{message}; read it by its name (`paddock workflow logs`), or use a new key")
        stage = run.progress.stage(STAGE)
        key = RunKey(run.obj.namespace, run.uid)
        lines = self._files.transcript(key, STAGE, stage.attempt) if not request.command else []
        last = next((line["text"] for line in reversed(lines) if line["role"] == "assistant"), "")
        output = self._commands.output(stage_id(run.uid, STAGE, stage.attempt)).decode("utf-8", "replace")
        files = self._changed(run, sandbox, request)
        end = self._files.end_of(key, STAGE, stage.attempt) or StageEnd("Cancelled")
        good = run.progress.phase == "Succeeded"
        return {
            "success": good,
            "output": output if request.command else last,
            "files": [asdict(file) for file in files],
            "metrics": {
                "durationSeconds": round(max(0.0, run.progress.finished_at - run.progress.started_at), 3),
                "cpuSeconds": None if end.cpu_seconds is None else round(end.cpu_seconds, 3),
                "memoryPeakBytes": end.memory_peak_bytes,
                "promptTokens": sum(line.get("promptTokens", 0) for line in lines),
                "completionTokens": sum(line.get("completionTokens", 0) for line in lines),
                "toolCalls": sum(line["role"] == "tool" for line in lines) if lines else int(bool(request.command)),
            },
            "error": None if good else stage.message or run.progress.message,
            "run": run.obj.name,
        }

    def _changed(self, run: Run, sandbox: str, request: BridgeRequest) -> Sequence[ArtifactFile]:
        """Return the copied files, if a folder was to be copied; else those that the stage changed."""
        if request.copy_out or self._sandbox_files is None:
            artifacts = self._files.artifacts(RunKey(run.obj.namespace, run.uid))
            return [file for artifact in artifacts for file in artifact.files]
        since, until = run.obj.created_at, run.progress.finished_at + _ROUNDED_SECONDS
        return changed_files(self._sandbox_files, run.obj.namespace, sandbox, since, until)


def _check(request: BridgeRequest) -> None:
    if bool(request.command) == bool(request.context):
        raise errors.BadRequest("send one of `command` and `context`, and not both")
    if request.context and not (request.provider and request.model):
        raise errors.BadRequest("`context` needs `provider` and `model`, the model that works on it")


def _document(sandbox: str, request: BridgeRequest, key: str, caller: Any) -> dict[str, Any]:
    """Return the run of a request. A key gives its name: of one caller's requests to one sandbox."""
    digest = hashlib.sha256(json.dumps(asdict(request), sort_keys=True).encode()).hexdigest()
    who = caller.name if caller is not None else ""
    unique = hashlib.sha256(json.dumps([who, sandbox, key]).encode()).hexdigest()[:16] if key else secrets.token_hex(8)
    stages: list[Mapping[str, Any]] = [{"name": STAGE, "timeoutSeconds": request.timeout_seconds, **_work(request)}]
    if request.copy_out:
        stages.append({"name": COPY, "copy": {"from": request.copy_out, "artifact": ARTIFACT, "optional": True}})
    return {
        "apiVersion": API_VERSION,
        "kind": KIND.name,
        "metadata": {"name": f"{sandbox[:30].rstrip('-')}-{unique}", "annotations": {DIGEST: digest}},
        "spec": {
            "sandboxRef": {"name": sandbox},
            "workflow": {"stages": stages},
            "activeDeadlineSeconds": request.timeout_seconds + int(_SPARE_SECONDS),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
    }


def _work(request: BridgeRequest) -> dict[str, Any]:
    if request.command:
        return {"exec": {"command": request.command}}
    agent = {
        "provider": request.provider,
        "model": request.model,
        "instructions": request.context,
        "tools": request.tools,
    }
    return {"agent": agent}
