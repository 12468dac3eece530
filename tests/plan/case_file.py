"""The printed-plan case files: desired + observed + now -> plan, as people read it.

A file is YAML: `now` is 1000 unless said; `sandboxes` are specs by name, with what is known of each object;
`containers` are given by the sandbox they belong to. A container is as the spec wants it, but for what is given:
times are relative to now (`created` is an object's), `template: old` gives it another template, `inside` what is not as
rendered in there. `plan` is the print that must come out.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from controller.kinds.common.labels import container_name
from controller.kinds.common.log_tail import Tail
from controller.kinds.common.quantity import parse_bytes, parse_cpu
from controller.kinds.meta import StoredObject
from controller.kinds.observed.activity import Activity, CpuSample, StoredUse
from controller.kinds.observed.observed import Container, FrozenMemory, HostFacts, Observation, OutOfBandSettings, State
from controller.kinds.observed.swap import UNKNOWN_ABILITY, HibernationAbility
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import Failure, Hibernation, InstanceState, Termination
from controller.kinds.planning.outcome import Ok, Terminal, Transient, Waiting
from controller.kinds.planning.plan import Plan
from controller.kinds.planning.snapshot import Result, Sandbox, Snapshot
from controller.kinds.quota import QuotaSpec, StoredQuota
from controller.kinds.runtime.container import Limits
from controller.kinds.runtime.mount import BoundMount, HostRoot
from controller.kinds.runtime.probe import ProbeProgress, ProbeResult, ProbeState, Tally, Watch
from controller.kinds.sandbox import FINALIZER, ResourceLimits, SandboxSpec
from controller.plan.base.memo import Memo
from controller.plan.host import plan
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import Rendered, render
from tests.fakes.inside import inside_of
from tests.instance_states import instance_state
from tests.snapshots import snapshot_with

POLICY = Policy(host_cpus=2, host_roots=(HostRoot(path="/srv/projects"),))
INSTANCE = "store-1"
NOW = 1_000_000.0


def uid_of(name: str) -> str:
    return f"{name}-uid"


def decide(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    return plan(snapshot, POLICY, POLICY.version(), memo)


def sandbox(
    name: str,
    spec: dict[str, Any],
    *,
    generation: int = 1,
    deleted_at: float | None = None,
    created_at: float = 0.0,
) -> Sandbox:
    obj = StoredObject(
        kind="Sandbox",
        namespace="default",
        name=name,
        uid=uid_of(name),
        spec=spec,
        generation=generation,
        created_at=created_at,
        deleted_at=deleted_at,
        finalizers=(FINALIZER,),
    )
    read = SandboxSpec.model_validate(spec)
    return Sandbox(obj, read, read.template)


def rendered(box: Sandbox) -> Rendered:
    assert box.spec is not None
    assert box.template is not None
    return render(box.spec, box.template, name=box.obj.name, uid=box.obj.uid, policy=POLICY)


def container(box: Sandbox, *, now: float = NOW, **said: Any) -> Container:
    """The container desired by `box`, running for 100 s, with the given differences."""
    created = rendered(box)
    limits = dict(said.pop("limits", {}))
    unmounted = said.pop("unmounted", None)
    if unmounted is not None:
        mounts = inside_of(created.config, ("none",), {}).mounts
        said["inside"] = {"mounts": tuple(mount for mount in mounts if mount.path not in unmounted)}
    unread = said.pop("limits_unread", False)
    old = said.pop("template", "") == "old"
    desired = created.config.limits
    # What is said to be bound; all that is wanted unless something is said.
    bound = (
        [replace(mount, **said["bound"]) for mount in created.config.mounts]
        if said.get("bound")
        else created.config.mounts
    )
    bound = () if said.pop("bound", None) == {} else bound
    return Container(
        id=said.pop("id", f"{box.obj.name}-c1"),
        name=said.pop("name", created.config.name),
        uid=box.obj.uid,
        state=State(said.pop("state", "running")),
        generation=said.pop("generation", box.obj.generation),
        config_hash="older" if old or said.pop("rendered", "") == "old" else created.config_hash,
        template_hash="old" if old else created.template_hash,
        image=said.pop("image", created.config.image),
        image_id=said.pop("image_id", "sha256:1"),
        limits=None
        if unread
        else replace(
            desired,
            cpu_millicores=parse_cpu(limits["cpu"]) if "cpu" in limits else desired.cpu_millicores,
            memory_bytes=parse_bytes(limits["memory"]) if "memory" in limits else desired.memory_bytes,
            pids=limits.get("pids", desired.pids),
            cpu_shares=limits.get("cpu_shares", desired.cpu_shares),
        ),
        started_at=now + said.pop("started", -100),
        finished_at=now + said.pop("finished") if "finished" in said else 0.0,
        exit_code=said.pop("exit_code", 0),
        oom_killed=said.pop("oom_killed", False),
        networks=(networks := tuple(said.pop("networks", ["none"]))),
        inside=inside_of(created.config, networks, said.pop("inside")) if "inside" in said else None,
        out_of_band=OutOfBandSettings(**said.pop("by_hand", {})),
        frozen_memory=FrozenMemory(*(parse_bytes(entry) for entry in said.pop("frozen"))) if "frozen" in said else None,
        bound=tuple(BoundMount(mount.path, str(mount), "0:1 /", mount.read_only) for mount in bound),
        **said,
    )


def memory(box: Sandbox, *, now: float = NOW, **said: Any) -> InstanceState:
    """The recorded state of a sandbox that has run with its present template, with the given differences."""
    created = rendered(box)
    end = said.pop("last_end", None)
    failure = said.pop("failure", None)
    if "checked" in said:
        checked = {"run": [f"{box.obj.name}-c1", -100], "since": -100, **said["checked"]}
        run, since = (checked.pop("run")), checked.pop("since")
        said["checked"] = ProbeProgress((run[0], now + run[1]), since=since and now + since, **checked)
    if "asked_to_stop_at" in said:
        said["asked_to_stop_at"] = now + said["asked_to_stop_at"]
    if "hibernation" in said:
        hibernation = said["hibernation"]
        run = (f"{box.obj.name}-c1", now + hibernation.get("started", -100))
        said["hibernation"] = Hibernation(run, now + hibernation.get("at", -10), hibernation.get("phase", "Hibernated"))
    for name in said.keys() & {"idled_at", "first_start", "expired_at"}:
        said[name] = now + said[name]
    if "use" in said:
        use = said["use"]
        at, noted = now + use["at"], now + use.get("noted", use["at"])
        said["use"] = StoredUse(at, use.get("open", False), noted, use.get("generation", box.obj.generation))
    if "insecure" in said:
        said["insecure"] = (said["insecure"]["generation"], created.config_hash, said["insecure"]["words"])
    for run in said.keys() & {"run", "asked_to_stop"}:
        said[run] = (said[run][0], now + said[run][1])
    if said.get("finished") == "now":
        said["finished"] = created.template_hash
    if end is not None:
        end = Termination(
            container_id=end.get("container", f"{box.obj.name}-c1"),
            exit_code=end["exit_code"],
            reason=end["reason"],
            started_at=now + end["started"],
            finished_at=now + end["finished"],
            tail=None if end.get("unread") else Tail(("last words",)),
        )
    if failure is not None:
        failure = Failure(
            count=failure.get("count", 1),
            retry_at=now + failure.get("retry", 1),
            reason=failure["reason"],
            message=failure.get("message", "words"),
            generation=failure.get("generation", box.obj.generation),
            terminal=failure.get("terminal", False),
            absent=failure.get("absent", False),
            image=failure.get("image", ""),
        )
    made_from = said.pop("made_from", created.template_fields)
    return instance_state(template=created.template_hash, made_from=made_from, last_end=end, failure=failure, **said)


def activity(box: Sandbox, *, now: float = NOW, **said: Any) -> Activity:
    """The observed use of a sandbox; `cpu` are samples of its run that began 100 s ago: [when, seconds]."""
    run = (f"{box.obj.name}-c1", now + said.get("started", -100))
    samples = [CpuSample(run, now + at, seconds) for at, seconds in said.get("cpu", [])]
    mark, newest = (samples[0], samples[-1]) if samples else (None, None)
    last_at = now + said["last"] if "last" in said else 0.0
    return Activity(last_at, said.get("open", 0), said.get("asking", 0), mark, newest)


def instance(box: Sandbox, remembered: InstanceState, reserves: dict[str, Any] | None = None) -> Instance:
    """The record of a sandbox; `reserves` as limits of a spec."""
    limits = ResourceLimits.model_validate(reserves or {})
    return Instance(
        name=container_name(box.obj.name, box.obj.uid),
        parent_uid=box.obj.uid,
        parent_kind="Sandbox",
        namespace="default",
        parent_name=box.obj.name,
        role="sandbox",
        reserves=Limits(limits.cpu or 0, limits.memory or 0, limits.pids or 0, gpus=limits.gpus or 0),
        created_at=NOW,
        state=remembered,
        version=1,
    )


def snapshot(
    sandboxes: list[Sandbox],
    containers: list[Container],
    *,
    now: float = NOW,
    blind: str = "",
    lost: tuple[float, float] = (0.0, 0.0),
    instances: dict[str, Instance] | None = None,
    in_flight: frozenset[str] = frozenset(),
    results: dict[str, Result] | None = None,
    probes: dict[str, ProbeState] | None = None,
    used: dict[str, Activity] | None = None,
    unguarded: str = "",
    guard_lost: bool = False,
    quota: dict[str, Any] | None = None,
    hibernates: bool = False,
    runtimes: tuple[str, ...] = (),
) -> Snapshot:
    by_uid: dict[str, tuple[Container, ...]] = {}
    for entry in containers:
        by_uid[entry.uid] = (*by_uid.get(entry.uid, ()), entry)
    return snapshot_with(
        now=now,
        instance_id=INSTANCE,
        sandboxes={box.obj.uid: box for box in sandboxes},
        observed=Observation(
            1,
            blind,
            now,
            by_uid,
            HostFacts(cpus=2, runtimes=runtimes),
            lost,
            unguarded=unguarded,
            guard_lost=guard_lost,
        ),
        instances=instances or {},
        in_flight=in_flight,
        results=results or {},
        probes=probes or {},
        activity=used or {},
        quotas={"quota-uid": _quota(quota)} if quota else {},
        hibernation=HibernationAbility(True, "CompressedMemory") if hibernates else UNKNOWN_ABILITY,
    )


def _quota(spec: dict[str, Any]) -> StoredQuota:
    return StoredQuota(StoredObject("Quota", "default", "main", "quota-uid", spec), QuotaSpec.model_validate(spec))


def probed(box: Sandbox, said: dict[str, Any]) -> ProbeState:
    """The probe results of the sandbox's first container; probes are as desired unless given."""
    answer = dict(said)
    run = (f"{box.obj.name}-c1", NOW + answer.pop("started", -100))
    requested = dict(rendered(box).probes.by_name())
    watches = tuple(Watch(name, requested[name], run, 0, run[1]) for name in answer.pop("asked", list(answer)))
    tallies = {}
    for name, entry in answer.items():
        outcome = "unknown" if entry.get("unknown") else "failure" if entry.get("failures") else "success"
        result = ProbeResult(outcome, entry.get("message", ""))
        tallies[name] = Tally(result, entry.get("successes", 0), entry.get("failures", 0))
    return ProbeState(run, watches, tallies)


_OUTCOMES = {"ok": lambda _: Ok("c"), "waiting": Waiting, "transient": Transient, "terminal": Terminal}


def read(path: Path) -> tuple[Snapshot, dict[str, Any]]:
    """The snapshot of a case file, and the file."""
    data = yaml.safe_load(path.read_text())
    sandboxes, instances, results = {}, {}, {}
    for name, answer in data["sandboxes"].items():
        deleted = NOW + answer["deleted"] if "deleted" in answer else None
        created = NOW + answer["created"] if "created" in answer else 0.0
        sandboxes[name] = sandbox(
            name, answer["spec"], generation=answer.get("generation", 1), deleted_at=deleted, created_at=created
        )
        if "memory" in answer:
            remembered = memory(sandboxes[name], **answer["memory"])
            instances[uid_of(name)] = instance(sandboxes[name], remembered, answer.get("reserves"))
    containers = [
        container(sandboxes[name], **dict(output))
        for entry in data.get("containers", [])
        for name, output in entry.items()
    ]
    for name, said in data.get("results", {}).items():
        planned = decide(snapshot([sandboxes[name]], []))
        actions = planned.groups[0].actions
        arguments = {key: value for key, value in said.items() if key not in ("outcome", "at")}
        outcome = Ok() if said["outcome"] == "ok" else _OUTCOMES[said["outcome"]](**arguments)
        at = said.get("at", 0)
        done = (*((action, Ok()) for action in actions[:at]), (actions[at], outcome))
        results[uid_of(name)] = Result(uid_of(name), sandboxes[name].obj.generation, False, done)
    created_snapshot = snapshot(
        list(sandboxes.values()),
        containers,
        blind=data.get("blind", ""),
        unguarded=data.get("unguarded", ""),
        guard_lost=data.get("guard_lost", False),
        quota=data.get("quota"),
        hibernates=data.get("hibernates", False),
        runtimes=tuple(data.get("runtimes", ())),
        lost=(NOW + data["lost"][0], NOW + data["lost"][1]) if "lost" in data else (0.0, 0.0),
        instances=instances,
        in_flight=frozenset(uid_of(name) for name in data.get("in_flight", [])),
        results=results,
        probes={uid_of(name): probed(sandboxes[name], probe) for name, probe in data.get("probes", {}).items()},
        used={uid_of(name): activity(sandboxes[name], **output) for name, output in data.get("activity", {}).items()},
    )
    return created_snapshot, data
