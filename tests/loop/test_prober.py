"""Probes over a real store and the fake engine; and the prober's threads, which know when to do nothing."""

import threading
from collections.abc import Iterator

import pytest

from controller.kinds.meta import ObjectRef
from controller.kinds.observed.observed import State
from controller.kinds.planning.plan import ProbeSchedule
from controller.kinds.runtime.probe import Probe, ProbeResult, Watch
from controller.loop.tasks.prober import Prober
from tests.conftest import HandClock
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness
from tests.threads import no_thread_starts

READINESS = {"readiness": {"tcpSocket": {"port": 8500}, "periodSeconds": 2, "failureThreshold": 15}}
LIVENESS = {"liveness": {"exec": {"command": ["alive"]}, "periodSeconds": 5}}


@pytest.fixture
def harness(backend: Backend) -> Iterator[LoopHarness]:
    harness = LoopHarness(backend.store())
    yield harness
    harness.close()


def restarts(harness: LoopHarness) -> int:
    web = harness.get("web")
    assert web is not None
    return int(web.status["restartCount"])


def test_ready_once_its_port_answers_and_then_asked_no_more(harness: LoopHarness) -> None:
    harness.apply("web", template=READINESS)
    harness.settle(seconds=5)
    assert harness.condition("web", "Ready") == "False NotReady"
    harness.engine.answers[harness.container_name("web"), 8500] = 200
    harness.settle(seconds=5)
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.prober.next_due() is None
    calls, revision = len(harness.engine.probes_run), harness.store.revision()
    harness.settle()
    assert (len(harness.engine.probes_run), harness.store.revision()) == (calls, revision)


def test_a_restart_of_the_daemon_leaves_a_ready_sandbox_ready(harness: LoopHarness) -> None:
    harness.engine.execs["alive"] = 0
    harness.apply("web", template={**READINESS, **LIVENESS})
    harness.settle(seconds=0)
    harness.engine.answers[harness.container_name("web"), 8500] = 200
    harness.settle(seconds=5)
    revision = harness.store.revision()
    harness.engine.answers.clear()
    harness.daemon()
    harness.settle(seconds=60)
    assert harness.condition("web", "Ready") == "True Running"
    assert harness.store.revision() == revision
    assert {watch.name for watch in harness.engine.probes_run[-3:]} == {"liveness"}


def test_a_restarted_sandbox_has_to_become_ready_again(harness: LoopHarness) -> None:
    harness.apply("web", template=READINESS)
    harness.settle(seconds=0)
    harness.engine.answers[harness.container_name("web"), 8500] = 200
    harness.settle(seconds=5)
    harness.engine.answers.clear()
    harness.engine.kill(harness.container_name("web"))
    harness.settle(seconds=5)
    assert harness.condition("web", "Ready") == "False NotReady"


def test_what_fails_its_liveness_probe_is_restarted_and_backs_off(harness: LoopHarness) -> None:
    harness.engine.execs["alive"] = 0
    harness.apply("web", template=LIVENESS)
    harness.settle(seconds=20)
    assert (harness.condition("web", "Ready"), restarts(harness)) == ("True Running", 0)
    harness.engine.execs["alive"] = 1
    harness.settle(seconds=35)
    assert restarts(harness) == 1
    web = harness.get("web")
    assert web is not None
    assert web.status["lastTermination"]["reason"] == "Killed"
    assert harness.condition("web", "Ready") == "False CrashLoopBackOff"
    messages = [event.message for event in harness.store.events(name="web") if event.reason == "Unhealthy"]
    assert messages == ["the liveness probe failed 3 times in a row: exit code 1; it is stopped"]
    harness.engine.execs["alive"] = 0
    harness.settle(seconds=60)
    assert (harness.condition("web", "Ready"), restarts(harness)) == ("True Running", 2)


def test_what_does_not_start_in_time_is_stopped(harness: LoopHarness) -> None:
    harness.apply("web", template=READINESS, lifecycle={"startupDeadlineSeconds": 30})
    harness.settle(seconds=29)
    assert (harness.condition("web", "Ready"), restarts(harness)) == ("False NotReady", 0)
    harness.settle(seconds=10)
    web = harness.get("web")
    assert web is not None
    assert web.status["lastTermination"]["reason"] == "StartFailed"
    assert restarts(harness) == 1


def test_an_engine_that_is_away_counts_as_no_failure(harness: LoopHarness) -> None:
    harness.engine.execs["alive"] = 0
    harness.apply("web", template=LIVENESS)
    harness.settle(seconds=20)
    harness.engine.go_down()
    harness.settle(seconds=120)
    harness.engine.come_up()
    harness.settle(seconds=20)
    assert (harness.condition("web", "Ready"), restarts(harness)) == ("True Running", 0)


def test_a_changed_probe_recreates_nothing_and_begins_anew(harness: LoopHarness) -> None:
    harness.apply("web", template=LIVENESS)
    harness.engine.execs["alive"] = 1
    harness.settle(seconds=6)
    before = harness.engine.container(harness.container_name("web")).id
    document = {"exec": {"command": ["true"]}, "periodSeconds": 5, "failureThreshold": 1}
    harness.apply("web", template={"liveness": {**document, "exec": {"command": ["true"]}}})
    harness.settle(seconds=60)
    assert harness.engine.container(harness.container_name("web")).id == before
    assert (harness.condition("web", "Ready"), restarts(harness)) == ("True Running", 0)
    assert harness.engine.probes_run[-1].probe.failure_threshold == 1


def test_probes_of_a_template_reach_its_running_sandboxes(harness: LoopHarness) -> None:
    harness.apply_template("python", image="other:1", command=["sleep", "1000"])
    harness.refer("web", "python")
    harness.settle()
    before = harness.engine.container(harness.container_name("web")).id
    harness.apply_template("python", image="other:1", command=["sleep", "1000"], **READINESS)
    harness.settle(seconds=5)
    assert harness.condition("web", "Ready") == "False NotReady"
    assert harness.condition("web", "Outdated") == "False UpToDate"
    assert harness.engine.container(harness.container_name("web")).id == before


def test_without_probes_nothing_is_asked_any_more(harness: LoopHarness) -> None:
    harness.engine.execs["alive"] = 0
    harness.apply("web", template=LIVENESS)
    harness.settle(seconds=20)
    harness.apply("web", template={"liveness": None})
    harness.settle(seconds=0)
    assert harness.prober.next_due() is None
    assert dict(harness.prober.view()) == {}


def test_a_suspended_sandbox_is_not_asked(harness: LoopHarness) -> None:
    harness.apply("web", template=LIVENESS, runState="Suspended")
    harness.settle()
    harness.apply("web", template=LIVENESS, runState="Running")
    harness.engine.execs["alive"] = 0
    harness.settle(seconds=0)
    assert harness.engine.container(harness.container_name("web")).state is State.RUNNING
    harness.apply("web", template=LIVENESS, runState="Suspended")
    harness.settle()
    assert harness.prober.next_due() is None


class Gate:
    """Probes that wait until they are let go, and are counted."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked = threading.Semaphore(0)
        self.running = self.peak = 0
        self._lock = threading.Lock()

    def probe(self, watch: Watch) -> ProbeResult:
        self._count(1)
        self.asked.release()
        self.open.wait(30)
        self._count(-1)
        return ProbeResult("success")

    def _count(self, change: int) -> None:
        with self._lock:
            self.running += change
            self.peak = max(self.peak, self.running)


def probing(name: str, *, due: float = 0.0) -> ProbeSchedule:
    probe = Probe.model_validate({"tcpSocket": {"port": 1}, "periodSeconds": 3600, "initialDelaySeconds": 3600})
    watch = Watch("liveness", probe, (name, 1.0), 1, due)
    return ProbeSchedule(ObjectRef("Sandbox", "default", name, name), (watch,))


def test_at_most_so_many_at_a_time_each_wakes_once_and_stopping_waits_for_none() -> None:
    gate, woken = Gate(), threading.Semaphore(0)
    prober = Prober(gate, clock=HandClock(), wake=woken.release, at_a_time=2)
    names = ("a", "b", "c")
    prober.set_probes([probing(name) for name in names], set(names))
    assert all(gate.asked.acquire(timeout=30) for _ in range(2))
    gate.open.set()
    assert gate.asked.acquire(timeout=30)
    assert all(woken.acquire(timeout=30) for _ in names)
    assert {
        name: probe_state.tallies["liveness"].successes for name, probe_state in prober.view().items()
    } == dict.fromkeys(names, 1)
    assert gate.peak <= 2
    gate.open.clear()
    prober.set_probes([probing("d")], {"d"})
    assert gate.asked.acquire(timeout=30)
    assert set(prober.view()) == {"d"}
    prober.stop()
    gate.open.set()


def test_probes_that_hang_hold_up_no_others() -> None:
    gate = Gate()
    prober = Prober(gate, clock=HandClock(), wake=lambda: None, at_a_time=2, stalls_seconds=0.01)
    names = ("a", "b", "c", "d", "e")
    prober.set_probes([probing(name) for name in names], set(names))
    assert all(gate.asked.acquire(timeout=30) for _ in names)
    assert not gate.open.is_set()
    prober.stop()
    gate.open.set()


def test_one_that_is_due_sooner_does_not_wait_for_one_that_is_due_later() -> None:
    gate, clock = Gate(), HandClock()
    gate.open.set()
    prober = Prober(gate, clock=clock, wake=lambda: None)
    prober.set_probes([probing("later", due=clock.now() + 3000)], {"later"})
    prober.set_probes([probing("now")], {"later", "now"})
    assert gate.asked.acquire(timeout=30)
    prober.stop()


def test_without_probes_there_is_no_thread() -> None:
    prober = Prober(Gate(), clock=HandClock(), wake=lambda: None)
    prober.set_probes([], set())
    assert not [thread for thread in threading.enumerate() if thread.name == "prober"]
    prober.stop()


def test_without_a_thread_a_probe_stays_due(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, clock = Gate(), HandClock()
    prober = Prober(gate, clock=clock, wake=lambda: None, ticks=clock.now, at_a_time=1)
    gate.open.set()
    with monkeypatch.context() as patch:
        no_thread_starts(patch)
        with pytest.raises(RuntimeError):  # the prober's own thread
            prober.set_probes([probing("a")], {"a"})
        with pytest.raises(RuntimeError):  # the probe's
            prober.step()
    assert prober.next_due() == clock.now()
    prober.set_probes([], {"a"})
    assert gate.asked.acquire(timeout=30)
    prober.stop()
