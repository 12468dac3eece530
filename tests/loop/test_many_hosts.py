"""Many hosts on one store: each loop plans what is bound to its host, and one of them what belongs to none."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.labels import UID, egress_name, egress_uid
from controller.kinds.host import ENGINE
from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import KIND as SANDBOX
from controller.loop.fleet.lost_hosts import LostHosts
from controller.loop.fleet.unknown_hosts import UnknownHosts
from controller.plan.explain.why import Explanation
from controller.policy.levels.levels import Policy
from controller.ports import LeaseState
from controller.ports.fleet import ManyHosts
from controller.service import errors
from controller.service.access import access
from controller.service.objects.apply import Source
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import Backend
from tests.fakes.engine import FACTS
from tests.loop.harness import TINY, LoopHarness

_OPERATOR = Caller("somebody", grants=(Grant(role="admin"),))
_MANY = Policy(scheduler="manual")


@dataclass
class Hosts:
    """Two hosts, `one` and `two`, and the name of the one that leads."""

    one: LoopHarness
    two: LoopHarness
    leader: list[str]

    def settle(self, *, seconds: float = 5.0) -> None:
        """Run both loops until neither has anything left to do."""
        for _ in range(3):
            self.one.settle(seconds=seconds)
            self.two.clock.advance(max(0.0, self.one.clock.now() - self.two.clock.now()))
            self.two.settle(seconds=seconds)
            self.one.clock.advance(max(0.0, self.two.clock.now() - self.one.clock.now()))


def store_hosts(store: SqlStore, *names: str) -> None:
    """Store hosts, as their daemons do."""
    with store.transaction() as transaction:
        for name in names:
            transaction.put(StoredObject("Host", "", name, f"uid-{name}", {}, created_at=1.0))


@contextmanager
def two_hosts(backend: Backend, policies: Sequence[Policy] = (_MANY, _MANY)) -> Iterator[Hosts]:
    leader = ["one"]

    def leads(name: str) -> Callable[[], bool]:
        return lambda: leader[0] == name

    store = backend.store()
    store_hosts(store, "one", "two")
    harnesses = [
        LoopHarness(store, policy=policy, place=ManyHosts(name, leads=leads(name)))
        for name, policy in zip(("one", "two"), policies, strict=True)
    ]
    harnesses[1].uids = 1000  # uids of their own
    with access.acting(_OPERATOR):
        yield Hosts(harnesses[0], harnesses[1], leader)
    for harness in harnesses:
        harness.close()


@pytest.fixture
def hosts(backend: Backend) -> Iterator[Hosts]:
    with two_hosts(backend) as created:
        yield created


def pool(harness: LoopHarness, host: str) -> None:
    harness.apply_template("t", image=TINY, command=["sleep", "1000000"])
    harness.services.apply.apply([Source("test", json.dumps(_pool("warm", host)))])


def _pool(name: str, host: str) -> dict[str, object]:
    return {
        "apiVersion": "paddock/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": "t"}, "warmReplicas": 2, "host": host},
    }


def found(harness: LoopHarness, name: str) -> StoredObject:
    obj = harness.get(name)
    assert obj is not None
    return obj


def test_each_host_makes_what_is_bound_to_it(hosts: Hosts) -> None:
    hosts.one.apply("a", host="one")
    hosts.one.apply("b", host="two")
    hosts.settle()
    assert [len(harness.ours()) for harness in (hosts.one, hosts.two)] == [1, 1]
    for name, host in (("a", "one"), ("b", "two")):
        assert hosts.one.condition(name, "Ready") == "True Running"
        assert found(hosts.one, name).status["host"] == host
    assert [instance.host for instance in hosts.one.store.instances(host="two")] == ["two"]
    hosts.two.delete("a")
    hosts.settle()
    assert [len(harness.ours()) for harness in (hosts.one, hosts.two)] == [0, 1]


def test_one_without_a_host_waits_and_the_leader_says_so(hosts: Hosts) -> None:
    hosts.leader[0] = "two"
    hosts.one.apply("a")
    hosts.one.settle(seconds=5)
    assert hosts.one.condition("a", "Scheduled") == ""
    hosts.two.settle(seconds=5)
    assert hosts.one.condition("a", "Scheduled") == "False NoHost"
    hosts.one.apply("a", host="one")
    hosts.settle()
    assert hosts.one.condition("a", "Ready") == "True Running"
    hosts.one.apply("b")
    hosts.settle()
    hosts.one.delete("b")
    hosts.settle()
    assert hosts.one.names() == ["a"]


def test_a_bound_sandbox_does_not_move(hosts: Hosts) -> None:
    hosts.one.apply("a", host="one")
    hosts.settle()
    with pytest.raises(errors.Invalid, match=r"spec\.host: is on host `one`, and can't move"):
        hosts.one.apply("a", host="two")
    hosts.one.apply("a")  # it says nothing of a host any more, and stays
    hosts.settle()
    assert (found(hosts.one, "a").status["host"], len(hosts.two.ours())) == ("one", 0)


@pytest.mark.parametrize("passes", [0, 1], ids=["before its first pass", "before it saw its engine"])
def test_a_daemon_that_just_started_gives_the_ready_members_of_its_host(hosts: Hosts, passes: int) -> None:
    pool(hosts.one, "one")
    hosts.settle()
    hosts.one.engine.go_down()
    hosts.one.engine.forget()
    hosts.one.daemon()
    for _ in range(passes):
        hosts.one.run_pass()
    hosts.one.refer("a", "t")
    assert found(hosts.one, "a").status["host"] == "one", "a ready member of its own host"
    hosts.one.engine.come_up()
    hosts.settle()
    assert hosts.one.condition("a", "Ready") == "True Running"
    assert found(hosts.one, "a").status["launchType"] == "Warm"


def test_while_a_hosts_engine_is_away_others_give_theirs(hosts: Hosts) -> None:
    pool(hosts.one, "one")
    hosts.one.services.apply.apply([Source("test", json.dumps(_pool("other", "two")))])
    hosts.settle()
    hosts.one.engine.go_down()
    hosts.one.run_pass()
    for name in ("a", "b", "c"):
        hosts.one.refer(name, "t")
    assert [found(hosts.one, name).status.get("host") for name in ("a", "b", "c")] == ["two", "two", None]


def test_a_claim_of_another_hosts_member_begins_its_deadline(hosts: Hosts) -> None:
    pool(hosts.one, "two")
    hosts.settle()
    for harness in (hosts.one, hosts.two):
        harness.clock.advance(5000)
    hosts.one.refer("a", "t", lifecycle={"activeDeadlineSeconds": 100, "keepRunning": True})
    hosts.settle()
    status = found(hosts.one, "a").status
    assert (status["host"], status["launchType"]) == ("two", "Warm")
    assert hosts.one.condition("a", "Ready") == "True Running"
    hosts.settle(seconds=120)
    assert hosts.one.condition("a", "Finished") == "True DeadlineExceeded"


def test_a_plan_is_foretold_by_the_host_that_makes_it(hosts: Hosts) -> None:
    hosts.one.apply("a", host="two")
    hosts.settle()
    template = {"image": TINY, "command": ["sleep", "2"]}
    documents = [
        {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": name},
            "spec": {"template": template, **({"host": host} if host else {})},
        }
        for name, host in (("a", "two"), ("b", "one"), ("c", ""))
    ]
    sources = [Source("test", json.dumps(document)) for document in documents]
    at_one, at_two = (harness.services.diff.diff(sources, plan=True) for harness in (hosts.one, hosts.two))
    calls = [
        [str(action).split()[0] for action in difference.forecasts[0].actions] for difference in (*at_one, *at_two)
    ]
    new, anew = ["create", "start"], ["signal", "remove", "create", "start"]
    assert calls == [[], new, [], anew, [], []]
    assert [difference.forecasts[0].message for difference in at_one] == [
        "only host `two` plans it; ask that host's daemon",
        "",
        "it has no host yet",
    ]
    assert at_one[0].changes[0].why == at_one[0].forecasts[0].message


def test_only_its_own_host_says_how_a_container_is(hosts: Hosts) -> None:
    hosts.one.apply("a", host="two")
    hosts.settle()
    kind = hosts.one.services.registry.by_name("Instance")
    assert kind is not None
    [at_one], [at_two] = (harness.services.objects.list(kind, "default").objects for harness in (hosts.one, hosts.two))
    assert (at_two.status["host"], at_two.status["state"]) == ("two", "Running")
    assert (at_one.status["host"], at_one.status["state"]) == ("two", "Unknown")
    assert "only host `two` observes it" in at_one.status["message"]


def test_another_machine_of_the_same_name_creates_nothing(hosts: Hosts) -> None:
    hosts.one.apply("a", host="two")
    hosts.settle()
    annotations = {ENGINE: "the engine of two"}
    with hosts.one.store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "two", "uid-two", {}, annotations=annotations))
    engine = hosts.two.engine
    engine.facts = replace(FACTS, engine_id="another one")
    engine.remove(found(hosts.one, "a").status["instanceRef"]["name"])  # it is another machine's: nothing is there
    engine.request_observation()
    hosts.settle()
    assert len(hosts.two.ours()) == 0, "the sandbox is in the other engine"
    assert hosts.one.condition("a", "Ready").startswith("Unknown")

    engine.facts = replace(FACTS, engine_id="the engine of two")
    engine.request_observation()
    hosts.settle()
    assert (len(hosts.two.ours()), hosts.one.condition("a", "Ready")) == (1, "True Running")


def test_the_engine_of_another_host_is_left_alone(hosts: Hosts) -> None:
    """Two names for one machine would remove each other's containers."""
    with hosts.one.store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "one", "uid-one", {}, annotations={ENGINE: "the engine of one"}))
    hosts.two.engine.facts = replace(FACTS, engine_id="the engine of one")
    hosts.two.engine.request_observation()
    hosts.one.apply("a", host="two")
    hosts.settle()
    assert hosts.two.ours() == {}


@pytest.mark.parametrize("claimed", [False, True], ids=["made", "claimed"])
def test_a_sandbox_of_another_host_that_was_never_here_is_not_removed(hosts: Hosts, *, claimed: bool) -> None:
    """The host was renamed, or two daemons use one engine that says no id."""
    if claimed:
        pool(hosts.one, "one")
        hosts.settle()
    spec = {"templateRef": {"name": "t"}} if claimed else {"template": {"image": TINY}}
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "a"},
        "spec": spec | {"host": "one"},
    }
    hosts.one.services.apply.apply([Source("test", json.dumps(document))])
    hosts.settle()
    name = found(hosts.one, "a").status["instanceRef"]["name"]
    assert (found(hosts.one, "a").status.get("launchType") == "Warm") == claimed
    hosts.two.engine.add_foreign(name, hosts.one.engine.container(name).labels)
    for _ in range(5):
        hosts.two.settle(seconds=300)
    assert hosts.two.engine.exists(name)


def test_what_a_sandbox_left_behind_when_it_moved_is_removed(hosts: Hosts) -> None:
    """Its egress container, too: the one of the new host has the same uid."""
    hosts.one.apply("a", host="one")
    hosts.two.apply("b", host="two")  # what is left of an empty store is kept
    hosts.settle()
    obj, store = found(hosts.one, "a"), hosts.one.store
    with store.transaction() as transaction:
        transaction.put(replace(obj, status={**obj.status, "binding": 2}))
        [own_instance] = transaction.instances_of([obj.uid]).values()
        egress = replace(
            own_instance, name=egress_name(obj.uid), role="egress", member_uid=egress_uid(obj.uid), version=0
        )
        transaction.put_instance(egress)
    labels = hosts.one.engine.container(obj.status["instanceRef"]["name"]).labels
    hosts.two.engine.add_foreign(obj.status["instanceRef"]["name"], labels)
    hosts.two.engine.add_foreign(egress.name, {**labels, UID: egress.uid})
    for _ in range(5):
        hosts.two.settle(seconds=300)
    assert [len(our) for our in hosts.two.ours().values()] == [1]
    assert found(hosts.one, "b").uid in hosts.two.ours()


def test_a_single_host_has_one_name(backend: Backend) -> None:
    harness = LoopHarness(backend.store())
    with pytest.raises(errors.Invalid, match=r"spec\.host: there is one host, `host`"):
        harness.apply("a", host="other")
    harness.apply("a", host="host")
    harness.settle()
    assert found(harness, "a").status["host"] == "host"
    harness.close()


def test_what_paddock_makes_for_its_own_work_is_on_the_host_that_makes_it(hosts: Hosts) -> None:
    with access.acting(None):
        hosts.two.apply("session")
    hosts.settle()
    assert found(hosts.one, "session").status["host"] == "two"
    assert hosts.one.condition("session", "Ready") == "True Running"


def test_a_quota_of_a_namespace_is_over_all_hosts(hosts: Hosts) -> None:
    quota = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Quota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"sandboxes": 2}},
    }
    hosts.one.services.apply.apply([Source("test", json.dumps(quota))])
    for name, host in (("a", "one"), ("b", "two"), ("c", "two")):
        hosts.one.apply(name, host=host)
        hosts.settle()
    assert hosts.one.condition("c", "Scheduled") == "False QuotaExceeded"
    stored = hosts.one.store.get("Quota", "default", "q")
    assert stored is not None
    assert stored.status["used"]["sandboxes"] == "2"
    hosts.one.delete("a")
    hosts.settle()
    assert hosts.one.condition("c", "Ready") == "True Running"


def test_a_warm_sandbox_of_another_host_is_claimed(hosts: Hosts) -> None:
    pool(hosts.one, "two")
    hosts.settle()
    before = set(hosts.two.ours())
    assert (len(before), len(hosts.one.ours())) == (2, 0)
    hosts.one.refer("a", "t")
    obj = found(hosts.one, "a")
    assert (obj.uid in before, obj.status["host"]) == (True, "two")
    hosts.settle()
    assert hosts.one.condition("a", "Ready") == "True Running"
    assert found(hosts.one, "a").status["launchType"] == "Warm"
    assert len(hosts.two.ours()) == 3, "the pool is full again"


def test_a_warm_sandbox_on_another_host_than_the_named_one_is_not_claimed(hosts: Hosts) -> None:
    pool(hosts.one, "two")
    hosts.settle()
    hosts.one.refer("a", "t", host="one")
    hosts.settle()
    assert (found(hosts.one, "a").status["host"], len(hosts.one.ours())) == ("one", 1)


def test_hosts_with_other_rules_do_not_share_their_warm_sandboxes(backend: Backend) -> None:
    with two_hosts(backend, (replace(_MANY, network_range="10.99.0.0/16", report_only=True), _MANY)) as hosts:
        template = {"image": TINY, "command": ["sleep", "1000000"], "securityLevel": "development"}
        pool(hosts.one, "two")
        hosts.one.apply_template("t", **template)
        hosts.settle()
        hosts.one.refer("a", "t", securityLevel="full-isolation")
        assert "host" not in found(hosts.one, "a").status


class Leases:
    """The store, with leases as a server would tell them."""

    def __init__(self, store: object, left: dict[str, float]) -> None:
        self._store, self.left = store, left

    def leases(self) -> Sequence[LeaseState]:
        return [LeaseState(name, "", 1, seconds) for name, seconds in self.left.items()]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_sandboxes_of_a_lost_host_say_so_until_it_is_back(hosts: Hosts) -> None:
    hosts.one.apply("a", host="one")
    hosts.one.apply("b", host="two")
    hosts.settle()
    hosts.one.apply("nowhere")
    hosts.settle()
    # The default host's lease has been there since the store had one host.
    store = Leases(hosts.one.store, {"host/one": 5.0, "host/two": -1.0, "daemon": -1.0, "fleet": 5.0})
    watch = LostHosts(store, hosts.one.place, hosts.one.clock)  # type: ignore[arg-type]
    watch.observe_now()
    assert hosts.one.condition("b", "Ready") == "True Running", "it may only be started again"
    watch.observe_now()
    assert hosts.one.condition("b", "Ready") == "Unknown HostLost"
    assert hosts.one.condition("a", "Ready") == "True Running"
    assert hosts.one.condition("nowhere", "Ready") == "False NoHost", "it is on no host that could be lost"
    store.left["host/two"] = 5.0
    watch.observe_now()
    hosts.settle()
    assert hosts.one.condition("b", "Ready") == "True Running"
    assert len(hosts.two.ours()) == 1, "nothing was done to it"


def test_a_host_that_there_is_not_is_refused_where_it_is_named(hosts: Hosts) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.host: there is no host `zzz`; known: one, two"):
        hosts.one.apply("a", host="zzz")
    with pytest.raises(errors.Invalid, match=r"spec\.host: there is no host `zzz`"):
        pool(hosts.one, "zzz")
    hosts.one.apply("a", host="two")  # its daemon is away, and it is known
    store_hosts(hosts.one.store, "zzz")
    hosts.one.apply("b", host="zzz")


def test_a_host_whose_daemon_has_just_started_may_be_named(hosts: Hosts) -> None:
    store = Leases(hosts.one.store, {"host/new": 5.0, "host/removed": -5.0, "fleet": 5.0})
    services = hosts.one.services_over(store)
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "a"},
        "spec": {"template": {"image": TINY}, "host": "new"},
    }
    services.apply.apply([Source("test", json.dumps(document))])
    document["spec"] = {"template": {"image": TINY}, "host": "removed"}
    document["metadata"] = {"name": "b"}
    with pytest.raises(errors.Invalid, match="there is no host `removed`; known: new, one, two"):
        services.apply.apply([Source("test", json.dumps(document))])


def remove_host(harness: LoopHarness, name: str) -> None:
    with harness.store.transaction() as transaction:
        host = transaction.get("Host", "", name)
        assert host is not None
        transaction.remove(host)


def test_what_is_bound_to_a_host_that_is_gone_says_so_and_can_be_deleted(hosts: Hosts) -> None:
    harness = hosts.one
    store_hosts(harness.store, "zzz")
    watch = UnknownHosts(harness.store, harness.place, harness.clock)
    watch.observe_now()
    harness.apply("before", host="zzz")
    watch.observe_now()
    assert harness.condition("before", "Scheduled") == ""
    remove_host(harness, "zzz")
    watch.observe_now()
    for type_ in ("Ready", "Scheduled"):
        assert harness.condition("before", type_) == "False HostUnknown"
    [event] = [entry for entry in harness.store.events(kind="Sandbox") if entry.reason == "HostUnknown"]
    assert event.message.startswith("there is no host `zzz` (known: one, two): delete this object and create it on")
    lost = LostHosts(Leases(harness.store, {"host/zzz": -9.0}), harness.place, harness.clock)  # type: ignore[arg-type]
    lost.observe_now()
    lost.observe_now()
    watch.observe_now()
    assert harness.condition("before", "Ready") == "False HostUnknown", "the lease of a removed host says nothing"
    harness.apply("before", host="zzz")  # as it is stored: nothing begins to name that host
    harness.delete("before")
    watch.observe_now()
    assert harness.names() == []


def test_what_may_have_containers_on_an_unknown_host_is_not_let_go(hosts: Hosts) -> None:
    hosts.one.apply("a", host="two")
    hosts.settle()
    remove_host(hosts.one, "two")
    hosts.one.delete("a")
    watch = UnknownHosts(hosts.one.store, hosts.one.place, hosts.one.clock)
    watch.observe_now()
    assert (hosts.one.names(), hosts.one.condition("a", "Ready")) == (["a"], "True Running")
    hosts.settle()
    assert (hosts.one.names(), len(hosts.two.ours())) == ([], 0), "its own daemon ends it"


def test_only_the_leader_writes_about_unknown_hosts(hosts: Hosts) -> None:
    store_hosts(hosts.one.store, "zzz")
    hosts.one.apply("a", host="zzz")
    remove_host(hosts.one, "zzz")
    UnknownHosts(hosts.two.store, hosts.two.place, hosts.two.clock).observe_now()
    assert hosts.one.condition("a", "Ready") == ""
    UnknownHosts(hosts.one.store, hosts.one.place, hosts.one.clock).observe_now()
    store_hosts(hosts.one.store, "zzz")
    assert hosts.one.condition("a", "Ready") == "False HostUnknown", "until its daemon writes another status"


def explained(harness: LoopHarness, name: str) -> Explanation:
    return harness.services.why.why(SANDBOX, "default", name).explanation


def test_why_is_told_of_what_is_bound_to_no_host_or_to_another(hosts: Hosts) -> None:
    hosts.one.apply("a")
    assert (explained(hosts.one, "a").verdict, explained(hosts.one, "a").reason) == ("Waiting", "NoHost")
    hosts.one.apply("b", host="two")
    hosts.settle()
    for harness in (hosts.one, hosts.two):
        explanation = explained(harness, "a")
        assert (explanation.verdict, explanation.reason, "write `host:`" in explanation.message) == (
            "Waiting",
            "NoHost",
            True,
        )
        assert explanation.remembered[0][1].startswith("False NoHost, since ")
    assert explained(hosts.two, "b").verdict == "AsAsked"
    assert explained(hosts.one, "b").reason == "OtherHost"
    lost = LostHosts(Leases(hosts.one.store, {"host/two": -1.0}), hosts.one.place, hosts.one.clock)  # type: ignore[arg-type]
    lost.observe_now()
    lost.observe_now()
    reported = explained(hosts.one, "b")
    assert (reported.verdict, reported.reason, "is away" in reported.message) == ("Unknown", "HostLost", True)


def test_a_daemon_without_a_host_tells_why(backend: Backend) -> None:
    place = ManyHosts("api/one", leads=lambda: False, keeps_sandboxes=False)
    harness = LoopHarness(backend.store(), policy=_MANY, place=place)
    with access.acting(_OPERATOR):
        harness.apply("a")
        reasons = harness.services.why.why(SANDBOX, "default", "a")
    assert (reasons.explanation.verdict, reasons.explanation.reason) == ("Waiting", "NoHost")
    assert dict(reasons.explanation.observed) == {"host": "none"}
    harness.close()


def test_a_daemon_without_a_host_foretells_no_plan(backend: Backend) -> None:
    place = ManyHosts("api/one", leads=lambda: False, keeps_sandboxes=False)
    harness = LoopHarness(backend.store(), policy=_MANY, place=place)
    store_hosts(harness.store, "two")
    spec = {"template": {"image": TINY}}
    documents = [
        ("Sandbox", "a", {**spec, "host": "two"}),
        ("Sandbox", "b", spec),
        ("SandboxTemplate", "t", {"image": TINY}),
        ("Quota", "q", {"hard": {"sandboxes": 2}}),
    ]
    sources = [
        Source(
            "test",
            json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
        for kind, name, spec in documents
    ]
    with access.acting(_OPERATOR):
        for _ in range(2):
            diff = harness.services.diff.diff(sources, plan=True)
            assert [[forecast.message for forecast in difference.forecasts] for difference in diff] == [
                ["only host `two` plans it; ask that host's daemon"],
                ["it has no host yet"],
                [],
                [],
            ]
            harness.services.apply.apply(sources)
            sources[2] = Source("test", sources[2].text.replace(TINY, "other:1"))
    assert [change.field for change in diff[2].changes] == ["spec.image"]
    harness.close()


def test_a_missing_template_is_said_before_a_missing_host(hosts: Hosts) -> None:
    hosts.one.refer("a", "t")
    hosts.one.apply("b")
    hosts.settle()
    assert hosts.one.condition("a", "Scheduled") == "False TemplateNotFound"
    assert hosts.one.condition("b", "Scheduled") == "False NoHost"
    hosts.one.apply_template("t", image=TINY, command=["sleep", "1000000"])
    hosts.settle()
    assert hosts.one.condition("a", "Scheduled") == "False NoHost"
