"""Any order of wishes, meddling and crashes: when it is quiet, every object is as asked, and nothing else is there.

A hypothesis state machine over the real store and the fake engine (which passes the real one's contract suite).
"""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.kinds.observed.observed import State
from controller.kinds.runtime.container import Limits
from controller.kinds.sandbox import SandboxSpec
from controller.store.sql_store import SqlStore
from tests.examples import examples
from tests.loop.harness import Crash, LoopHarness
from tests.migrated import place_migrated

NAMES = st.sampled_from(["a", "b", "c"])
SPECS = st.fixed_dictionaries(
    {
        "template": st.sampled_from([{"image": "paddock/test-tiny:1"}, {"image": "other:1"}]),
        "resources": st.sampled_from([{"limits": {"memory": m}} for m in ("64Mi", "128Mi")]),
        "runState": st.sampled_from(["Running", "Running", "Suspended", "Paused"]),
    }
)


class Life(RuleBasedStateMachine):
    """Deeds of users, operators, bad luck and time against one daemon."""

    @initialize()
    def move_in(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqlStore(place_migrated(Path(self.folder.name) / "paddock.db"))
        self.store.open()
        self.harness = LoopHarness(self.store)
        self.foreign = "not-ours"
        self.harness.engine.add_foreign(self.foreign)
        self.down = False

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        try:
            self.engine_comes()
            self.quiet()
        finally:
            self.harness.close()
            self.store.close()
            self.folder.cleanup()

    def _running(self) -> list[str]:
        """Names of our containers."""
        names = [self.harness.container_name(name) for name in self.harness.names()]
        return [name for name in names if self.harness.engine.exists(name)]

    def _remembered(self, name: str) -> bool:
        """Return True if the store knows this container as ours; only its name tells that of one just made."""
        containers = {instance.state.container.id for instance in self.harness.store.instances()}
        return self.harness.engine.container(name).id in containers

    @rule(name=NAMES, spec=SPECS, patient=st.booleans())
    def apply(self, name: str, spec: dict[str, object], patient: bool) -> None:
        sandbox = self.harness.get(name)
        if sandbox is None or sandbox.deleted_at is None:
            self.harness.apply(name, **spec)
        if patient and not self.down:
            self.harness.settle(seconds=0)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.harness.get(name) is not None:
            self.harness.delete(name)

    @rule(
        pick=st.randoms(use_true_random=False),
        what=st.sampled_from(["kill", "remove", "pause", "rename", "limits", "network"]),
    )
    @precondition(lambda self: not self.down)
    def meddle(self, pick: object, what: str) -> None:
        own_texts = self._running()
        if not own_texts:
            return
        engine, name = self.harness.engine, pick.choice(own_texts)  # type: ignore[attr-defined]
        running = engine.container(name).state is State.RUNNING
        if what == "kill" and running:
            engine.kill(name)
        elif what == "remove":
            engine.remove(name)
        elif what == "pause" and running:
            engine.pause(name)
        elif what == "rename" and not engine.exists("moved") and self._remembered(name):
            engine.rename(name, "moved")
        elif what == "network":
            engine.connect(name, "bridge", "other")
        elif what == "limits":
            engine.update_limits(name, Limits(500, 32 << 20, 10))

    @rule()
    def engine_goes(self) -> None:
        self.harness.engine.go_down()
        self.down = True

    @rule()
    def engine_comes(self) -> None:
        self.harness.engine.come_up()
        self.harness.engine.observe_now(full=True)
        self.down = False

    @rule(passes=st.integers(1, 3))
    def some_passes(self, passes: int) -> None:
        for _ in range(passes):
            self.harness.run_pass()

    @rule(step=st.integers(1, 4), after=st.booleans())
    def crash(self, step: int, after: bool) -> None:
        self.harness.fuse.blow_at, self.harness.fuse.after = self.harness.fuse.steps + step, after
        try:
            for _ in range(3):
                self.harness.run_pass()
        except Crash:
            pass
        self.harness.daemon()

    @rule(seconds=st.sampled_from([1, 11, 700]))
    def time_passes(self, seconds: int) -> None:
        self.harness.clock.advance(seconds)

    @rule()
    @precondition(lambda self: not self.down)
    def quiet(self) -> None:
        """Left alone for long enough, everything is as asked."""
        self.harness.settle(seconds=3000)
        uids = set()
        for name in self.harness.names():
            self._as_asked(name)
            sandbox = self.harness.get(name)
            assert sandbox is not None
            uids.add(sandbox.uid)
        assert set(self.harness.ours()) <= uids, "nothing of a deleted object is left"

    def _as_asked(self, name: str) -> None:
        sandbox = self.harness.get(name)
        assert sandbox is not None
        assert sandbox.deleted_at is None, f"{name} should be gone"
        spec = SandboxSpec.model_validate(sandbox.spec)
        container = self.harness.container_name(name)
        state = {"Running": State.RUNNING, "Paused": State.PAUSED}.get(spec.run_state)
        if state is None:
            assert not self.harness.engine.exists(container) or self.harness.engine.container(container).state in (
                State.EXITED,
                State.CREATED,
            )
            return
        running = self.harness.engine.container(container)
        assert running.state is state
        assert running.networks == ("none",)
        assert running.image_id == self.harness.engine.images[spec.template.image]
        assert running.limits.memory_bytes == spec.resources.limits.memory

    @invariant()
    def at_most_one_container_each(self) -> None:
        if hasattr(self, "harness"):
            assert all(len(names) <= 1 for names in self.harness.ours().values())

    @invariant()
    def the_stranger_is_untouched(self) -> None:
        if hasattr(self, "harness"):
            assert self.harness.engine.container(self.foreign).state is State.RUNNING


Life.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase
