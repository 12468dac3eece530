"""A loop harness that also drives workflow runs, over the fake engine: no thread but those of stages."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.kinds.workflowrun import Run
from controller.loop.workflows import WorkflowRuns
from controller.policy.levels.levels import Policy
from controller.ports import ModelReply, ModelRequest, Models, RunWork
from controller.ports.fleet import SINGLE, Fleet
from controller.service.objects.apply import Source
from controller.store.sql_store import SqlStore
from tests.loop.harness import TINY, Crash, Fuse, FusedStore, LoopHarness

TEMPLATE: dict[str, Any] = {"image": TINY, "workspace": {}}


class FusedWork:
    """The work of one daemon's runs: it fails once the daemon was killed."""

    def __init__(self, work: RunWork, fuse: Fuse) -> None:
        self._work, self._fuse = work, fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._work, name)
        if name in ("end_of", "forget"):  # they only read, or remove what nobody needs
            return method

        def fused(*arguments: Any) -> Any:
            self._fuse.step(after=False)
            answer = method(*arguments)
            self._fuse.step(after=True)
            return answer

        return fused


class ScriptedModels:
    """Models whose answers a test writes; `asked` are the requests."""

    def __init__(self, *answers: ModelReply | BaseException) -> None:
        self.answers, self.asked = list(answers), list[ModelRequest]()

    def complete(self, request: ModelRequest, *, seconds: float, stopped: Callable[[], bool]) -> ModelReply:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else ModelReply("done")
        if isinstance(answer, BaseException):
            raise answer
        return answer


class RunHarness(LoopHarness):
    """A harness whose daemons drive runs, too."""

    def __init__(
        self,
        store: SqlStore,
        folder: Path,
        models: Models | None = None,
        *,
        artifact_bytes: int = 1 << 20,
        place: Fleet = SINGLE,
    ) -> None:
        self._release: Callable[[], None] = lambda: None
        self._ready = False
        self.hanging = 0  # stages that do not end by themselves
        super().__init__(store, place=place, policy=Policy(scheduler="manual" if place.shares_store else "single"))
        self.engine.at_rest = self.engine.hanging = True
        self.run_folder = folder
        self.artifact_bytes = artifact_bytes
        self.models = models or ScriptedModels()
        self._ready = True
        self.daemon()

    def daemon(self) -> None:
        # A killed daemon's threads end with it; those of this process can only be waited for. Some died in their work.
        deadline = time.monotonic() + 3
        stages = getattr(self, "stages", None)
        while stages is not None and stages.running_count > self.hanging and time.monotonic() < deadline:
            time.sleep(0.002)
        self._release()
        super().daemon()
        if not self._ready:
            return
        self.stages = self.services.run_stages
        self._release = self.stages.resume()
        work: Any = FusedWork(self.stages, self.fuse)
        store: Any = FusedStore(self.store, self.fuse)
        self.runs = WorkflowRuns(store, work, self.clock, place=self.place)
        self.reconcile_pass.report_runs = self.runs.observe_pass

    def close(self) -> None:
        self._release()
        super().close()
        self.engine.close()

    def put(self, kind: str, name: str, **spec: Any) -> StoredObject:
        document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.services.apply.apply([Source("test", json.dumps(document))])[0].obj

    def tick(self) -> None:
        """A pass, a step of the runs, and their work as far as it goes."""
        self.run_pass()
        self.runs.step()
        deadline = time.monotonic() + 60
        while self.stages.running_count > self.hanging:
            assert time.monotonic() < deadline, "a stage never ends"
            time.sleep(0.002)

    def go_until_running(self, stage: str) -> None:
        """Tick until the command of a stage that does not end by itself runs; those before it end."""
        self.hanging, deadline = 1, time.monotonic() + 60
        while True:
            states = self.states()
            total = sum(state not in ("Waiting", "Running") for state in states.values())
            if states[stage] == "Running" and len(self.engine.commands) > total:
                self.hanging = 0
                return
            assert time.monotonic() < deadline, f"it does not start: {states}"
            self.tick()
            time.sleep(0.001)

    def finish(self, name: str = "r", ticks: int = 60) -> StoredObject:
        """Tick until the run has ended and nothing of it is left to do."""
        for _ in range(ticks):
            self.tick()
            self.clock.advance(0.2)
            output = self.run(name)
            if output is not None and output.status.get("completionTime"):
                for _ in range(6):
                    self.tick()
                again = self.run(name)
                return again if again is not None else output
        raise AssertionError(f"the run does not end: {output and output.status}")

    def run(self, name: str = "r") -> StoredObject | None:
        return self.store.get("WorkflowRun", "default", name)

    def states(self, name: str = "r") -> dict[str, str]:
        output = self.run(name)
        assert output is not None
        return {stage["name"]: stage["state"] for stage in output.status["stages"]}

    def commands(self) -> list[str]:
        """The scripts that were started, in order."""
        return [group[-1] for _, group in self.engine.commands]

    def cancel(self, name: str = "r") -> None:
        kind = discover().by_name("WorkflowRun")
        assert kind is not None
        self.services.patch.patch(kind, "default", name, {"spec": {"runState": "Cancelled"}})


def exec_stage(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "exec": {"commands": list(commands) or ["true"]}, **more}


def workflow(*stages: dict[str, Any], final: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    return {"sandbox": {"template": TEMPLATE}, "stages": list(stages), "finally": list(final), **more}


__all__ = ["Crash", "Run", "RunHarness", "ScriptedModels", "exec_stage", "workflow"]
