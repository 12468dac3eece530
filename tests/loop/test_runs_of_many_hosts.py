"""Workflow runs of many hosts: the daemon where a run's sandbox is drives it, whichever daemon leads, and each dies."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.loop.fleet.lost_hosts import LostHosts
from controller.ports.fleet import ManyHosts
from controller.service import errors
from controller.service.access import access
from controller.service.workflow.bridge import BridgeRequest
from tests.contract.store_backends import BACKENDS, Backend, make_backend
from tests.loop.runs import Crash, RunHarness, exec_stage, workflow
from tests.loop.test_many_hosts import Leases, pool, store_hosts

# Some steps of each life; `make test` tries more.
_STRIDE = 2 if os.environ.get("PADDOCK_TEST_DOCKER") else 5
ADMIN = Caller("somebody", grants=(Grant(role="admin"),))
RUN = workflow(
    exec_stage("build", "echo build"),
    exec_stage("flaky", "echo flaky", "false", retries={"limit": 1, "backoffSeconds": 0}),
    final=[{"name": "logs", "copy": {"from": "/workspace", "artifact": "log"}}, exec_stage("last", "echo last")],
)
ONCE = ["echo build", "echo flaky\nfalse", "echo flaky\nfalse", "echo last"]
SLOW = workflow(exec_stage("a", "echo a"), exec_stage("b", "sleep 1000"), final=[exec_stage("f", "echo f")])


def on(host: str | None, flow: dict[str, Any] = RUN) -> dict[str, Any]:
    """The workflow with its sandbox on that host."""
    return {**flow, "sandbox": {**flow["sandbox"], **({"host": host} if host else {})}}


class Hosts:
    """Hosts `one` and `two` on one store, and the name of the one that leads."""

    def __init__(self, backend: Backend, folder: Path, leader: str = "one") -> None:
        store = backend.store()
        store_hosts(store, "one", "two")
        self.leader = leader

        def made(name: str) -> RunHarness:
            return RunHarness(store, folder / name, place=ManyHosts(name, leads=lambda: self.leader == name))

        self.one, self.two = made("one"), made("two")
        self.two.uids = 1000
        self.both = {"one": self.one, "two": self.two}
        self.away: set[str] = set()  # hosts whose daemon does nothing
        self.progress = 0

    def tick(self) -> None:
        """A pass and a step of both daemons; one that crashes is started again, and the other leads from then on."""
        now = max(harness.clock.now() for harness in self.both.values()) + 0.2
        for name, entry in self.both.items():
            entry.clock.advance(now - entry.clock.now())
            if name in self.away:
                continue
            try:
                entry.tick()
            except Crash:
                entry.fuse.blow_at = None
                entry.daemon()
                self.leader = self.other(name)
            self.look()

    def look(self) -> None:
        """Note how far the run is: it never goes back."""
        output = self.one.run()
        status = output.status if output is not None else {}
        progress = sum(stage["attempt"] for stage in status.get("stages", ())) + 100 * ("completionTime" in status)
        assert output is None or progress >= self.progress, f"it was further: {status}"
        self.progress = progress

    @staticmethod
    def other(name: str) -> str:
        return "two" if name == "one" else "one"

    def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            output = self.one.run()
            assert time.monotonic() < deadline, f"{what}: {output and output.status}"
            self.tick()

    def status(self) -> dict[str, Any]:
        output = self.one.run()
        assert output is not None
        return dict(output.status)

    def condition(self) -> tuple[str, str]:
        (condition,) = self.status()["conditions"]
        return condition["reason"], condition["message"]

    def finish(self) -> dict[str, Any]:
        """Tick until the run has ended, and nothing of it is left to do."""
        self.until(lambda: self.status().get("completionTime"), "its end")
        for _ in range(6):
            self.tick()
        return self.status()

    def until_slow(self, harness: RunHarness) -> None:
        """Tick until the stage `b` of SLOW runs on that host."""
        harness.hanging = 1
        self.until(lambda: harness.commands()[-1:] == ["sleep 1000"], "its slow stage")

    def close(self) -> None:
        for harness in self.both.values():
            harness.hanging = 0
            harness.close()


@pytest.fixture
def hosts(backend: Backend, tmp_path: Path) -> Iterator[Hosts]:
    created = Hosts(backend, tmp_path)
    with access.acting(ADMIN):
        yield created
    created.close()


def test_run_is_done_where_its_sandbox_is(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on("two", workflow(exec_stage("a", "echo a"))))
    finish = hosts.finish()
    assert (finish["phase"], finish["host"]) == ("Succeeded", "two")
    assert (hosts.one.commands(), hosts.two.commands()) == ([], ["echo a"])
    assert hosts.two.services.runs.log("default", "r", "a") == b"a\n"
    assert hosts.one.names() == [], "its sandbox is deleted"


@pytest.mark.parametrize("host", ["one", "two"])
def test_change_of_the_lead_disturbs_no_run(hosts: Hosts, host: str) -> None:
    harness = hosts.both[host]
    hosts.one.put("WorkflowRun", "r", workflow=on(host, SLOW))
    hosts.until_slow(harness)
    for leader in ("two", "one", "two"):
        hosts.leader = leader
        for _ in range(3):
            hosts.tick()
    assert hosts.status()["phase"] == "Running"
    hosts.one.cancel()
    harness.hanging = 0
    assert hosts.finish()["phase"] == "Cancelled"
    assert harness.commands() == ["echo a", "sleep 1000", "echo f"]
    assert hosts.both[hosts.other(host)].commands() == []


def _ready_members(hosts: Hosts) -> int:
    sandbox_pool = hosts.one.store.get("SandboxPool", "default", "warm")
    return int(sandbox_pool.status.get("readyReplicas", 0)) if sandbox_pool is not None else 0


def test_warm_sandbox_of_another_host_is_claimed_for_a_run(hosts: Hosts) -> None:
    pool(hosts.one, "two")
    hosts.until(lambda: _ready_members(hosts) == 2, "its pool")
    hosts.one.put("WorkflowRun", "r", workflow={"sandbox": {"templateRef": {"name": "t"}}, "stages": [exec_stage("a")]})
    finish = hosts.finish()
    assert (finish["phase"], finish["host"], hosts.two.commands()) == ("Succeeded", "two", ["true"])


def test_run_says_that_its_sandbox_has_no_host(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on(None))
    hosts.until(lambda: "NoHost" in hosts.status().get("message", ""), "that it waits")
    assert "host" not in hosts.status()
    sandbox = hosts.status()["sandboxRef"]["name"]
    hosts.leader = "two"
    hosts.tick()
    with hosts.one.store.transaction() as transaction:
        stored = transaction.get("Sandbox", "default", sandbox)
        assert stored is not None
        transaction.put(replace(stored, status={**stored.status, "host": "one"}))
    assert (hosts.finish()["host"], hosts.one.commands()) == ("one", ONCE)


def test_run_without_a_host_is_cancelled_by_the_leading_one(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on(None, workflow(exec_stage("a"))))
    hosts.until(lambda: hosts.status().get("sandboxRef", {}).get("uid"), "its sandbox")
    hosts.one.cancel()
    assert hosts.finish()["phase"] == "Cancelled"
    assert hosts.one.names() == []


def test_named_sandbox_of_another_host_stays(hosts: Hosts) -> None:
    hosts.one.apply("s", host="two")
    hosts.one.put("WorkflowRun", "r", sandboxRef={"name": "s"}, workflow={"stages": [exec_stage("a", "echo a")]})
    assert hosts.finish()["host"] == "two"
    assert (hosts.two.commands(), hosts.one.names()) == (["echo a"], ["s"])


def leases(hosts: Hosts, **left: float) -> LostHosts:
    """The watch over the leases of hosts, with these seconds left."""
    store: Any = Leases(hosts.one.store, {f"host/{name}": seconds for name, seconds in left.items()})
    watch = LostHosts(store, hosts.one.place, hosts.one.clock)
    for _ in range(2):
        watch.observe_now()
    return watch


def test_run_on_a_lost_host_says_so_and_goes_on(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on("two", SLOW))
    hosts.until_slow(hosts.two)
    hosts.away = {"two"}
    leases(hosts, two=-1.0)
    for _ in range(3):
        hosts.tick()
    assert (hosts.condition()[0], hosts.status()["phase"]) == ("HostLost", "Running")
    hosts.one.cancel()
    hosts.tick()
    hosts.away = set()
    hosts.tick()
    assert hosts.condition()[0] == "Stopping"
    hosts.two.hanging = 0
    assert hosts.finish()["phase"] == "Cancelled"
    leases(hosts, two=-1.0)
    assert hosts.condition()[0] == "Cancelled", "what is finished stays so"
    assert hosts.two.commands() == ["echo a", "sleep 1000", "echo f"]


def moved(hosts: Hosts, host: str) -> None:
    """Bind the run's sandbox, whose host was lost, to that one ("": to none), as the scheduler's choice is stored."""
    with hosts.one.store.transaction() as transaction:
        (stored,) = transaction.list("Sandbox")
        transaction.retire(transaction.instances_of((stored.uid,)).values())
        status = {"host": host, "binding": 2} if host else {"binding": 2}
        spec = {name: value for name, value in stored.spec.items() if name != "host"}
        transaction.put(replace(stored, spec=spec, status=status))


@pytest.mark.parametrize("host", ["one", ""])
def test_run_whose_sandbox_begins_anew_elsewhere_fails(hosts: Hosts, host: str) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on("two", SLOW))
    hosts.until_slow(hosts.two)
    hosts.away = {"two"}
    leases(hosts, two=-1.0)
    moved(hosts, host)
    hosts.until(lambda: hosts.status().get("completionTime"), "its end")
    reason, message = hosts.condition()
    assert (reason, "left host two, which was lost" in message) == ("SandboxFailed", True)
    assert hosts.one.commands() == [], "no stage of it is done anew"
    hosts.away = set()
    hosts.two.hanging = 0
    hosts.finish()
    assert (hosts.two.stages.running_count, hosts.one.names()) == (0, [])
    assert hosts.two.commands() == ["echo a", "sleep 1000"]


def test_deleted_run_of_a_lost_host_goes_after_five_minutes(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on("two", SLOW))
    hosts.until_slow(hosts.two)
    hosts.away = {"two"}
    hosts.one.delete("r", "workflowrun")
    for _ in range(3):
        hosts.tick()
    assert hosts.one.run() is not None
    hosts.one.clock.advance(301)
    hosts.until(lambda: hosts.one.run() is None, "its end")


def test_finished_run_of_a_lost_host_is_deleted_in_time(hosts: Hosts) -> None:
    hosts.one.put("WorkflowRun", "r", workflow=on("two"), ttlSecondsAfterFinished=60)
    hosts.finish()
    hosts.away = {"two"}
    hosts.one.clock.advance(61)
    hosts.until(lambda: hosts.one.run() is None, "its end")
    files = [path for path in (hosts.two.run_folder or Path()).glob("files/*/*") if path.is_dir()]
    assert len(files) == 1
    hosts.away = set()
    hosts.tick()
    assert not files[0].exists(), "its host removes its files"


def test_answer_of_the_bridge_is_with_its_host(hosts: Hosts) -> None:
    hosts.one.apply("s", host="two")
    bridge_request = BridgeRequest(command=("echo", "x"))

    def ask(harness: RunHarness) -> dict[str, Any]:
        with access.acting(ADMIN):
            return harness.services.bridge.run("default", "s", bridge_request, "key")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, hosts.two)
        hosts.until(answer.done, "its answer")
    assert (answer.result()["success"], answer.result()["output"]) == (True, "x\n")
    with pytest.raises(errors.Conflict, match="was done on host `two`"):
        ask(hosts.one)


def life(backend: Backend, folder: Path, disturb: Callable[[Hosts], Callable[[], int]]) -> tuple[dict[str, Any], int]:
    """A whole run on `two` while `one` leads, disturbed; its outcome, and how many steps the disturbed one took."""
    hosts = Hosts(backend, folder)
    steps = disturb(hosts)
    try:
        with access.acting(ADMIN):
            hosts.one.put("WorkflowRun", "r", workflow=on("two"))
            finish = hosts.finish()
            stages = [(stage["name"], stage["state"], stage["attempt"]) for stage in finish["stages"]]
            artifacts = [artifact.name for artifact in hosts.two.services.runs.artifacts("default", "r")]
            commands = (hosts.one.commands(), hosts.two.commands())
            return {"stages": stages, "commands": commands, "artifacts": artifacts, "names": hosts.one.names()}, steps()
    finally:
        hosts.close()
        with hosts.one.store.transaction() as transaction:
            for kind in ("WorkflowRun", "Sandbox"):
                for stored in transaction.list(kind):
                    transaction.remove(stored)
        shutil.rmtree(folder, ignore_errors=True)


def crashing(name: str, at: int, *, after: bool) -> Callable[[Hosts], Callable[[], int]]:
    """Kill the daemon of that host at its step; the other leads from then on."""

    def disturb(hosts: Hosts) -> Callable[[], int]:
        fuse = hosts.both[name].fuse
        fuse.blow_at, fuse.after = at, after
        return lambda: fuse.steps

    return disturb


def overtaken(name: str, at: int, *, after: bool) -> Callable[[Hosts], Callable[[], int]]:
    """At a step of that host's daemon, decided before, the other takes the lead, and goes as far as it can."""

    def disturb(hosts: Hosts) -> Callable[[], int]:
        harness, second = hosts.both[name], hosts.both[hosts.other(name)]

        def watch(is_after: bool) -> None:
            if harness.fuse.steps == at and is_after == after:
                hosts.leader = hosts.other(name)
                for _ in range(12):
                    second.tick()
                    hosts.look()

        harness.watch = watch
        return lambda: harness.fuse.steps

    return disturb


@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [crashing, overtaken])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("dialect", BACKENDS)
def test_no_step_of_a_daemon_repeats_or_loses_a_stage(
    dialect: str, name: str, after: bool, how: Callable[..., Any], tmp_path: Path
) -> None:
    with make_backend(dialect, tmp_path) as backend:
        desired, total = life(backend, tmp_path / "0", how(name, 0, after=after))
        assert desired["commands"] == ([], ONCE)
        assert (desired["artifacts"], desired["names"]) == (["log"], [])
        for at in range(1, total + 1, _STRIDE if dialect == "sqlite" else 7):
            document, _ = life(backend, tmp_path / str(at), how(name, at, after=after))
            assert document == desired, f"{how.__name__} at step {at} of {total}"
