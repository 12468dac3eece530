"""ports.RunWork: the sandboxes of runs, and a thread for each attempt of a stage."""

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import structlog

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.workflow import Stage
from controller.kinds.workflowrun import KIND, RUN_LABEL, Run, StageEnd
from controller.policy.workflowrun import sandbox_document
from controller.ports import RetryLater, StreamError, Wake
from controller.service import errors
from controller.service.access import access
from controller.service.exec.detached import Detached
from controller.service.objects.objects import Objects
from controller.service.objects.write import Write
from controller.service.workflow.files import RunFiles, RunKey
from controller.service.workflow.stages import Attempt, Released, StageWorker, stage_id
from controller.service.workflow.usage import SandboxMeter
from controller.version import API_VERSION

_WRITTEN_BY = "workflow"
_RETRY_SECONDS = 1.0
_log = structlog.get_logger("paddock.workflow")
_CANCELLED = StageEnd("Cancelled", reason="Cancelled", message="stopped on request")


class RunStages:
    """See ports.RunWork. `workers` do the stages, by the name of the field that describes them."""

    def __init__(
        self,
        *,
        objects: Objects,
        write: Write,
        files: RunFiles,
        detached: Detached,
        workers: Mapping[str, StageWorker],
        meter: SandboxMeter,
        wake: Wake = lambda: None,
    ) -> None:
        self._objects, self._write, self._files, self._detached = objects, write, files, detached
        self._workers, self._meter, self.wake = workers, meter, wake
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._closing = False

    @property
    def running_count(self) -> int:
        """Return the number of attempts under way here."""
        return len(self._attempts)

    def create_sandbox(self, run: Run) -> str:
        """See ports.RunWork."""
        body = sandbox_document(run.obj.name, run.sandbox_name, run.workflow, {RUN_LABEL: run.obj.name}, API_VERSION)
        with access.acting(None):
            try:
                self._write.create(SANDBOX, run.obj.namespace, json.dumps(body), written_by=_WRITTEN_BY)
            except errors.AlreadyExists:
                return ""  # by this run before a crash; else observing it says so
            except (errors.ServiceUnavailable, errors.Conflict) as error:
                raise RetryLater(str(error)) from error
            except errors.ServiceError as error:
                return f"its sandbox can't be created: {error}"
        return ""

    def delete_sandbox(self, run: Run) -> None:
        """See ports.RunWork."""
        sandbox = self._own_sandbox(run)
        if sandbox is not None and sandbox.deleted_at is None:
            self._delete(lambda: self._objects.delete(SANDBOX, sandbox.namespace, sandbox.name, deleted_by=_WRITTEN_BY))

    def delete_run(self, run: Run) -> None:
        """See ports.RunWork."""
        obj = run.obj
        self._delete(lambda: self._objects.delete(KIND, obj.namespace, obj.name, deleted_by=_WRITTEN_BY))

    def start_stage(self, run: Run, stage: str, attempt: int) -> None:
        """See ports.RunWork."""
        described = run.stage(stage)
        if described is None or stage_id(run.uid, stage, attempt) in self._attempts:
            return
        if self.end_of(run, stage, attempt) is not None:
            return
        new_attempt = Attempt(run, described, attempt)
        with self._lock:
            if self._closing or new_attempt.id in self._attempts:
                return
            self._attempts[new_attempt.id] = new_attempt
        try:
            threading.Thread(target=self._work, args=(new_attempt,), name="workflow-stage", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                del self._attempts[new_attempt.id]
            raise RetryLater(str(error)) from error

    def stop_stage(self, run: Run, stage: str, attempt: int) -> None:
        """See ports.RunWork."""
        id_ = stage_id(run.uid, stage, attempt)
        with self._lock:
            running = self._attempts.get(id_)
        if running is not None:
            running.stopping = True
            running.changed.set()
            return
        if self.end_of(run, stage, attempt) is not None:
            return
        command_state = self._detached.state(id_)
        if command_state is not None and command_state.state == "Running":  # of the daemon before: follow it to its end
            self.start_stage(run, stage, attempt)
            self.stop_stage(run, stage, attempt)
            return
        self._save(RunKey(run.obj.namespace, run.uid), stage, attempt, _CANCELLED)

    def end_of(self, run: Run, stage: str, attempt: int) -> StageEnd | None:
        """See ports.RunWork."""
        if stage_id(run.uid, stage, attempt) in self._attempts:
            return None  # its thread wakes the loop once the end is stored
        try:
            return self._files.end_of(RunKey(run.obj.namespace, run.uid), stage, attempt)
        except OSError as error:
            raise RetryLater(f"the files of its stages can't be read: {error}") from error

    def forget(self, existing: Collection[str]) -> None:
        """See ports.RunWork."""
        self._files.forget(existing)
        self._detached.forget(lambda id_: id_.partition(".")[0] in existing)

    def command_ended(self, id_: str) -> None:
        """Note that a command ended: its attempt looks at once."""
        with self._lock:
            running = self._attempts.get(".".join(id_.split(".")[:3]))
        if running is not None:
            running.changed.set()

    def resume(self) -> Callable[[], None]:
        """Adopt the commands of the last daemon. Return `close`."""
        release = self._detached.resume()

        def close() -> None:
            with self._lock:
                self._closing = True
                attempts = list(self._attempts.values())
            for attempt in attempts:
                attempt.released = True
                attempt.changed.set()
            release()

        return close

    def _own_sandbox(self, run: Run) -> StoredObject | None:
        try:
            sandbox = self._objects.get(SANDBOX, run.obj.namespace, run.sandbox_name)
        except errors.NotFound:
            return None
        except errors.ServiceUnavailable as error:
            raise RetryLater(str(error)) from error
        owned = any(reference.get("uid") == run.uid for reference in sandbox.owner_references)
        return sandbox if owned else None

    def _delete(self, do: Callable[[], object]) -> None:
        with access.acting(None):
            try:
                do()
            except errors.NotFound:
                return
            except errors.ServiceError as error:
                raise RetryLater(str(error)) from error

    def _work(self, attempt: Attempt) -> None:
        """Do an attempt to its end, and store that."""
        try:
            with access.acting(None):
                before = self._meter.read(attempt.run) if self._is_measured(attempt) else None
                end = self._worker(attempt.stage).work(attempt)
                cpu, peak = self._meter.usage_since(attempt.run, before)
            end = replace(end, cpu_seconds=cpu, memory_peak_bytes=peak)
            self._save(attempt.key, attempt.stage.name, attempt.number, end)
        except Released:
            return
        except RetryLater as error:
            self._put_off(attempt, str(error))
        except (errors.ServiceError, StreamError) as error:
            self._fail(attempt, "Refused", str(error))
        except Exception as error:  # a bug must end the stage, not leave it running for ever
            _log.exception("stage raised", stage=attempt.id)
            self._fail(attempt, "InternalError", f"{type(error).__name__}: {error}; please report this")
        finally:
            with self._lock:
                self._attempts.pop(attempt.id, None)
            self.wake()

    def _is_measured(self, attempt: Attempt) -> bool:
        """Return True for a stage in a sandbox that others use, too, if it begins here and now."""
        if attempt.run.spec.sandbox_ref is None or attempt.stage.copy_ is not None:
            return False
        transcript = (
            self._files.transcript(attempt.key, attempt.stage.name, attempt.number) if attempt.stage.agent else None
        )
        return not transcript and self._detached.state(attempt.id) is None

    def _worker(self, stage: Stage) -> StageWorker:
        return self._workers["exec" if stage.exec else "agent" if stage.agent else "copy"]

    def _put_off(self, attempt: Attempt, why: str) -> None:
        """Let the loop ask again after a moment; an attempt that is to stop has ended instead."""
        if attempt.stopping:
            self._save(attempt.key, attempt.stage.name, attempt.number, _CANCELLED)
            return
        _log.info("stage postponed", stage=attempt.id, why=why)
        attempt.changed.wait(_RETRY_SECONDS)

    def _fail(self, attempt: Attempt, reason: str, message: str) -> None:
        end = _CANCELLED if attempt.stopping else StageEnd("Failed", reason=reason, message=message)
        self._save(attempt.key, attempt.stage.name, attempt.number, end)

    def _save(self, run: RunKey, stage: str, attempt: int, end: StageEnd) -> None:
        try:
            self._files.save_end(run, stage, attempt, end)
        except OSError as error:
            _log.warning("end of stage not written; its work is looked at again", stage=stage, why=str(error))
