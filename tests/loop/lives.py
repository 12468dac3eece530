"""Lives in which everything of one feature happens once; and a harness whose listeners die with the daemon, too.

A step may be taken again after a crash in it, as a person does who got no answer: each one says what is to be so.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import text

from controller.kinds.observed.observed import State
from controller.kinds.registry import discover
from controller.kinds.runtime.mount import HostRoot
from controller.policy.levels.levels import Policy
from controller.service import errors
from controller.service.objects.apply import Source
from controller.service.services import Services
from tests.contract.store_backends import Backend
from tests.loop.harness import TINY, FusedStore, LoopHarness
from tests.small_sandboxes import SMALL

Step = Callable[["CrashingHarness"], None]
BIG: dict[str, Any] = {"limits": {"cpu": "100m", "memory": "128Mi", "pids": 16}}


class CrashingHarness(LoopHarness):
    """A harness in which applying and deleting are steps of the daemon's, too."""

    def __init__(self, backend: Backend, store: Any) -> None:
        self.backend = backend
        super().__init__(store, policy=Policy(host_roots=(HostRoot(path="/srv/projects"),), holds_memory=True))
        self.engine.at_rest = True
        self.engine.add_foreign("somebody-elses")

    def services_over(self, store: Any) -> Services:
        return super().services_over(FusedStore(store, self.fuse))

    def put(self, kind: str, name: str, owners: tuple[str, ...] = (), **spec: Any) -> None:
        references = [{"kind": "Sandbox", "name": owner} for owner in owners]
        metadata: dict[str, Any] = {"name": name, **({"ownerReferences": references} if owners else {})}
        document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        self.services.apply.apply([Source("test", json.dumps(document))])

    def gone(self, name: str, kind: str = "Sandbox", propagation: Any = None) -> None:
        """Delete it, unless that was done already."""
        observed = discover().by_name(kind)
        assert observed is not None
        options = {"propagation": propagation} if propagation else {}
        try:
            self.services.objects.delete(observed, "default", name, **options)
        except errors.NotFound:
            return

    def meddle(self, name: str, what: str, *arguments: Any) -> None:
        """Something by hand, where it can be done."""
        container = self.container_name(name)
        if self.engine.exists(container) and self.engine.container(container).state is State.RUNNING:
            getattr(self.engine, what)(container, *arguments)

    def forget(self, name: str) -> None:
        """An object's rows go behind everybody's back; the next daemon finds what is left of it."""
        with self.backend.database() as database, database.writing() as connection:
            connection.execute(text("DELETE FROM objects WHERE name = :name"), {"name": name})
        self.daemon()

    def empty(self) -> None:
        """Make the store as good as new for another life in it."""
        self.daemon()
        self.engine.go_down()
        self.engine.come_up()
        for kind in ("Sandbox", "SandboxPool", "SandboxTemplate", "Quota"):
            for obj in self.store.list(kind)[0]:
                self.gone(obj.name, kind)
        self.settle()
        assert (self.ours(), list(self.store.instances()), self.engine.saved_files) == ({}, [], {})
        self.close()

    def picture(self) -> Mapping[str, Any]:
        """Return the outcome, as far as it is the same however often a daemon died on the way."""
        document: dict[str, Any] = {}
        for kind in ("Sandbox", "SandboxPool", "SandboxTemplate", "Quota"):
            for obj in self.store.list(kind)[0]:
                conditions = [f"{it['type']}={it['status']}" for it in obj.status.get("conditions", ())]
                texts = ("used", "replicas", "readyReplicas", "claimedReplicas")
                counts = {key: value for key, value in obj.status.items() if key in texts}
                document[f"{kind}/{obj.name}"] = (conditions, counts, bool(obj.deleted_at), obj.finalizers)
        instances = self.store.instances()
        document["instances"] = sorted((instance.role, instance.reserves.memory_bytes) for instance in instances)
        sandboxes = [container for group in self.engine.observe().containers.values() for container in group]
        names = {obj.uid: obj.name for obj in self.store.list("Sandbox")[0]}
        places = (("memory", self.engine.in_memory), ("disk", self.engine.saved_files))
        document["files"] = sorted((names[uid], place, text) for place, files in places for uid, text in _texts(files))
        document["bound"] = sorted(bound_mount.mount for sandbox in sandboxes for bound_mount in sandbox.bound)
        document["containers"] = sorted(
            (sandbox.state, sandbox.limits.memory_bytes) for sandbox in sandboxes if sandbox.limits
        )
        return document

    def check(self, *, swept: bool = False) -> None:
        """Check the state at rest, in every life: a container each at most, and nothing foreign is touched.

        `swept`: also what was nobody's has gone.
        """
        ours = self.ours()
        assert all(len(names) == 1 for names in ours.values()), ours
        assert not swept or ours.keys() <= {instance.uid for instance in self.store.instances()}, (
            "a container without a record"
        )
        assert self.engine.container("somebody-elses").state is State.RUNNING


def _texts(files: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    return [(uid, name) for uid, texts in files.items() for name in texts.values()]


def _write(harness: CrashingHarness) -> None:
    """The sandbox writes a file in memory, unless it did."""
    sandbox = harness.get("web")
    assert sandbox is not None
    if (
        not harness.picture()["files"]
        and harness.engine.container(harness.container_name("web")).state is State.RUNNING
    ):
        harness.engine.in_memory[sandbox.uid]["/tmp"] = "kept"


def _remove_by_hand(harness: CrashingHarness) -> None:
    """Somebody removes the container of a suspended sandbox."""
    if harness.engine.exists(harness.container_name("web")):
        harness.engine.remove(harness.container_name("web"))


def _answering(harness: CrashingHarness, *, alive: int) -> None:
    """The sandbox's port answers its readiness, and its command says whether it is alive."""
    harness.engine.execs["alive"] = alive
    if harness.get("web") is not None:
        harness.engine.answers[harness.container_name("web"), 8500] = 200


def _probed(harness: CrashingHarness) -> None:
    probes = {
        "readiness": {"tcpSocket": {"port": 8500}, "periodSeconds": 2, "failureThreshold": 15},
        "liveness": {"exec": {"command": ["alive"]}, "periodSeconds": 5, "failureThreshold": 2},
    }
    harness.apply("web", template=probes, lifecycle={"keepRunning": True})
    _answering(harness, alive=0)


def _ailing(harness: CrashingHarness) -> None:
    _answering(harness, alive=1)
    harness.settle(seconds=12)
    _answering(harness, alive=0)


def _used(harness: CrashingHarness) -> None:
    """As an exec does: begun, waited for, over."""
    web = harness.get("web")
    assert web is not None
    harness.activity.begin(web.uid, wakes=True)
    harness.settle(seconds=5)
    harness.activity.end(web.uid, wakes=True)
    harness.settle(seconds=5)
    assert harness.condition("web", "Ready") == "True Running"


def _idler(harness: CrashingHarness, name: str, **lifecycle: Any) -> None:
    harness.apply(name, lifecycle={"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5, **lifecycle})


def _sleeper(harness: CrashingHarness, name: str, **spec: Any) -> None:
    harness.hibernates = True
    lifecycle = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5, "suspendAfterSeconds": 600}
    harness.apply(name, lifecycle=lifecycle, **{"runState": "Running", **spec})


def _finite(harness: CrashingHarness, name: str, **lifecycle: Any) -> None:
    lifecycle = {"keepRunning": True, "ttlSecondsAfterFinished": 20, "shutdownGracePeriodSeconds": 5, **lifecycle}
    harness.apply(name, restartPolicy="Never", lifecycle=lifecycle)


def _hurry(harness: CrashingHarness) -> None:
    web = harness.get("web")
    if web is not None and web.deleted_at is None:
        harness.apply("web", restartPolicy="OnFailure", lifecycle={"ttlSecondsAfterFinished": 5})


def _folder(name: str) -> dict[str, Any]:
    return {"hostPath": f"/srv/projects/{name}", "readOnly": True}


LIVES: Mapping[str, tuple[Step, ...]] = {
    "a pool is filled, claimed from, refilled, replaced and deleted": (
        lambda harness: harness.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"]),
        lambda harness: harness.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=2, maxReplicas=4),
        lambda harness: harness.put("Sandbox", "a", templateRef={"name": "t"}, resources=BIG),
        lambda harness: harness.put("Sandbox", "b", templateRef={"name": "t"}, poolPolicy="Require"),
        lambda harness: harness.meddle("a", "kill"),
        lambda harness: harness.put("SandboxTemplate", "t", image="other:1", command=["sleep", "1000000"]),
        lambda harness: harness.gone("a"),
        lambda harness: harness.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1, maxReplicas=4),
        lambda harness: harness.gone("warm", "SandboxPool"),
    ),
    "a workspace is bound, cold and warm, unmounted, and another one": (
        lambda harness: harness.put("SandboxTemplate", "t", image=TINY, command=["sleep", "1000000"], workspace={}),
        lambda harness: harness.put("SandboxPool", "warm", templateRef={"name": "t"}, warmReplicas=1, maxReplicas=3),
        lambda harness: harness.put("Sandbox", "a", templateRef={"name": "t"}, workspace=_folder("a"), resources=BIG),
        lambda harness: harness.put(
            "Sandbox", "b", templateRef={"name": "t"}, poolPolicy="Never", workspace=_folder("b")
        ),
        lambda harness: harness.meddle("a", "unmount", "/workspace"),
        lambda harness: harness.meddle("a", "kill"),
        lambda harness: harness.put(
            "Sandbox", "b", templateRef={"name": "t"}, poolPolicy="Never", workspace=_folder("c")
        ),
        lambda harness: harness.gone("a"),
        lambda harness: harness.gone("warm", "SandboxPool"),
    ),
    "probes make it ready, end it, and make it ready again": (
        _probed,
        lambda harness: _answering(harness, alive=0),
        _ailing,
        lambda harness: _answering(harness, alive=0),
        lambda harness: harness.meddle("web", "kill"),
        lambda harness: harness.clock.advance(1000),
    ),
    "idleness stops one and deletes another, and use wakes": (
        lambda harness: _idler(harness, "web"),
        lambda harness: harness.settle(seconds=130),
        _used,
        lambda harness: harness.settle(seconds=130),
        lambda harness: _idler(harness, "other", onIdle="Delete") if harness.get("done") is None else None,
        lambda harness: harness.settle(seconds=130),
        _used,
    ),
    "idleness and a person hibernate, use wakes, and a kill loses": (
        lambda harness: _sleeper(harness, "web"),
        lambda harness: harness.settle(seconds=70),
        _used,
        lambda harness: _sleeper(harness, "web", runState="Hibernated"),
        lambda harness: harness.settle(seconds=5),
        lambda harness: harness.engine.unpause(harness.container_name("web")),
        lambda harness: _sleeper(harness, "web"),
        lambda harness: harness.settle(seconds=70),
        lambda harness: harness.engine.kill(harness.container_name("web")),
        _used,
        lambda harness: harness.settle(seconds=2000),
    ),
    "files in memory are saved, put back, carried over and saved again": (
        lambda harness: harness.apply("web"),
        _write,
        lambda harness: harness.apply("web", runState="Suspended"),
        lambda harness: harness.settle(seconds=20),
        lambda harness: harness.apply("web"),
        lambda harness: harness.apply("web", template={"env": [{"name": "A", "value": "1"}]}),
        lambda harness: harness.meddle("web", "kill"),
        lambda harness: harness.apply("web", template={"env": [{"name": "A", "value": "1"}]}, runState="Suspended"),
        _remove_by_hand,
        lambda harness: harness.settle(seconds=20),
        lambda harness: harness.apply("web", template={"env": [{"name": "A", "value": "1"}]}),
        lambda harness: harness.settle(seconds=20),
    ),
    "a quota is waited for, grown, shrunk, and grown into": (
        lambda harness: harness.put("Quota", "main", hard={"memory": "100Mi"}),
        lambda harness: harness.apply("a", resources=SMALL),
        lambda harness: harness.apply("b", resources=SMALL),
        lambda harness: harness.put("Quota", "main", hard={"memory": "128Mi"}),
        lambda harness: harness.apply("a", resources=BIG),
        lambda harness: harness.put("Quota", "main", hard={"memory": "256Mi"}),
        lambda harness: harness.apply("a", resources=SMALL),
        lambda harness: harness.put("Quota", "main", hard={"memory": "64Mi"}),
        lambda harness: harness.gone("b"),
        lambda harness: harness.apply("c", resources=SMALL),
        lambda harness: harness.gone("a"),
    ),
    "owners take their dependents along": (
        lambda harness: harness.put("Sandbox", "a", template={"image": TINY, "command": ["sleep", "1000000"]}),
        lambda harness: harness.put("Sandbox", "b", ("a",), template={"image": TINY, "command": ["sleep", "1000000"]}),
        lambda harness: harness.put("Sandbox", "c", ("b",), template={"image": TINY, "command": ["sleep", "1000000"]}),
        lambda harness: harness.gone("b", propagation="Foreground"),
        lambda harness: harness.put("Sandbox", "d", ("a",), template={"image": TINY, "command": ["sleep", "1000000"]}),
        lambda harness: harness.gone("a", propagation="Background"),
        lambda harness: harness.apply("z"),
    ),
    "what lost its record is swept": (
        lambda harness: [harness.apply(name) for name in ("a", "b", "c")] and None,
        lambda harness: harness.forget("a"),
        lambda harness: harness.forget("b"),
    ),
    "what is finished is deleted in its time": (
        lambda harness: _finite(harness, "done", activeDeadlineSeconds=100),
        lambda harness: harness.apply("web", restartPolicy="OnFailure"),
        lambda harness: harness.settle(seconds=90),
        lambda harness: harness.meddle("web", "exit", 0),
        lambda harness: harness.settle(seconds=200),
        _hurry,
    ),
}
