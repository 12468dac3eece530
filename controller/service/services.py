"""All use-cases over one set of ports: what the doors are given."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.kinds.observed.observed import HostFacts
from controller.kinds.registry import Registry
from controller.policy.levels.levels import Policy
from controller.ports import (
    Audit,
    Clock,
    Engine,
    Files,
    InUse,
    LeftExecs,
    Meter,
    NullMeter,
    Ports,
    Secrets,
    Store,
    Streams,
    Volumes,
    Wake,
)
from controller.service.access.access import bounding
from controller.service.access.audit import Recorder, auditing
from controller.service.access.token_expiry import Lifetimes
from controller.service.access.tokens import TokenAdmin
from controller.service.backup import Backup
from controller.service.explain.diff import Diff, LastSnapshot
from controller.service.explain.why import Why
from controller.service.objects.apply import Admit, Apply
from controller.service.objects.claims import Claims
from controller.service.objects.objects import Objects
from controller.service.objects.patch import Patch
from controller.service.objects.write import Write
from controller.service.sandbox.activity import NoLeft, NoLoop, Used
from controller.service.sandbox.attest import Attest
from controller.service.sandbox.detached import Detached
from controller.service.sandbox.egress_log import EgressLogs
from controller.service.sandbox.escaped_processes import Escapes
from controller.service.sandbox.exec_deadline import ExecDeadlines
from controller.service.sandbox.exec_limits import ExecRules
from controller.service.sandbox.exec_records import ExecRecords
from controller.service.sandbox.files import BoxFiles, NoFiles, TransferLimits
from controller.service.sandbox.inspect import Inspections
from controller.service.sandbox.port_forward import Forward, NoPorts, PortLimits
from controller.service.sandbox.previous_log import PreviousLogs
from controller.service.sandbox.streams import IntoBox
from controller.service.sandbox.usage import LastSamples, Usages
from controller.service.sources.all import make_sources
from controller.service.sources.volume import NoVolumes
from controller.service.trace import Traces, traced
from controller.service.watch.announce import announcing
from controller.service.watch.hub import Watches


@dataclass(frozen=True, slots=True)
class Services:
    """The use-cases by what they are about."""

    registry: Registry
    apply: Apply
    objects: Objects
    into_box: IntoBox
    previous: PreviousLogs
    egress_logs: EgressLogs
    detached: Detached
    inspections: Inspections
    files: BoxFiles
    forward: Forward
    diff: Diff
    patch: Patch
    write: Write
    watches: Watches
    why: Why
    attest: Attest
    tokens: TokenAdmin
    lifetimes: Lifetimes
    audit: Audit
    recorder: Recorder
    backup: Backup
    usages: Usages


def make_services(
    *,
    registry: Registry,
    store: Store,
    engine: Engine,
    streams: Streams,
    admit: Admit,
    clock: Clock,
    wake: Wake,
    new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    snapshot: LastSnapshot = lambda: None,
    watches: Watches | None = None,
    meter: Meter | None = None,
    policy: Policy | None = None,
    in_use: InUse | None = None,
    exec_rules: ExecRules | None = None,
    files: Files | None = None,
    transfers: TransferLimits | None = None,
    ports: Ports | None = None,
    connections: PortLimits | None = None,
    samples: LastSamples | None = None,
    traces: Traces | None = None,
    left: LeftExecs | None = None,
    secrets: Secrets | None = None,
    exec_folder: Path | None = None,
    most_objects: int = 0,
    volumes: Volumes | None = None,
) -> Services:
    """Build the use-cases. Does no work; `wake` is called after each write that the loop should see.

    `snapshot` is the last one that the loop planned on: what `diff` plans on, too.
    `in_use` is told of open streams, and heeded by the loop. `samples` are what containers used lately.
    `policy` is the operator's, to which the host's facts are added.
    `files` reaches the boxes' files, within `transfers`, and `ports` their ports, within `connections`; without them,
    asking for them is refused.
    `exec_folder` is where detached commands are recorded (without it there are none), and `left` finds them again.
    `most_objects` is how many objects a namespace may hold whose quotas do not say (0: any number).
    `volumes` are those on this host. `traces` keeps which request wrote what, for the loop's log lines.
    `watches` is the hub, where others (the loop) tell it of their commits too; without one, it is made here.
    """
    watches, admit = watches or Watches(store, clock), bounding(admit, lambda: policy or Policy())
    store = auditing(traced(announcing(store, watches.notify), traces or Traces()), clock, meter)

    def facts() -> HostFacts:
        return engine.observe().facts

    claims = Claims(snapshot, meter or NullMeter(), facts, clock, policy)
    apply = Apply(
        store=store,
        registry=registry,
        admit=admit,
        wake=wake,
        clock=clock,
        new_uid=new_uid,
        claims=claims,
        facts=facts,
        most_objects=most_objects,
        meter=meter,
    )
    lifetimes = Lifetimes(clock)
    sources = make_sources(store, engine, snapshot, clock, volumes or NoVolumes(), policy)
    objects = Objects(store=store, registry=registry, wake=wake, clock=clock, sources=sources)
    exec_rules = exec_rules or ExecRules()
    used = Used(in_use=in_use or NoLoop(), engine=engine, wake=wake)
    into_box = IntoBox(
        objects=objects,
        engine=engine,
        streams=streams,
        used=used,
        rules=exec_rules,
        escapes=Escapes(store=store, engine=engine, clock=clock),
        left=left or NoLeft(),
        deadlines=ExecDeadlines(store, exec_rules),
        secrets=secrets,
    )
    records = ExecRecords(exec_folder, into_box.rules.output_bytes)
    return Services(
        registry=registry,
        apply=apply,
        objects=objects,
        into_box=into_box,
        egress_logs=EgressLogs(objects=objects, engine=engine, streams=streams),
        previous=PreviousLogs(objects=objects, store=store, streams=streams, into_box=into_box),
        forward=Forward(into_box, ports or NoPorts(), connections or PortLimits()),
        inspections=Inspections(objects=objects, store=store, engine=engine, streams=streams, into_box=into_box),
        detached=Detached(objects=objects, into_box=into_box, clock=clock, records=records, registry=registry),
        files=BoxFiles(into_box, files or NoFiles(), transfers or TransferLimits()),
        diff=Diff(apply=apply, store=store, clock=clock, snapshot=snapshot, policy=policy),
        patch=Patch(store=store, registry=registry, admit=admit, wake=wake, clock=clock, facts=facts),
        write=Write(
            store=store,
            registry=registry,
            admit=admit,
            wake=wake,
            clock=clock,
            new_uid=new_uid,
            claims=claims,
            facts=facts,
            most_objects=most_objects,
        ),
        watches=watches,
        why=Why(objects=objects, store=store, clock=clock, snapshot=snapshot, policy=policy),
        attest=Attest(objects=objects, engine=engine, clock=clock, snapshot=snapshot, policy=policy),
        tokens=TokenAdmin(store.tokens, clock, lifetimes),
        lifetimes=lifetimes,
        audit=store.audit,
        recorder=Recorder(store.audit, clock, meter),
        backup=Backup(store, clock, meter),
        usages=Usages(objects, samples or dict),
    )
