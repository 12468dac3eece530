"""The path of every write: normalize, admit, resolve owners, check quotas, claim, put.

Apply, create, replace and patch take it. Diff takes apply's, which then stops before the commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from controller.documents.document import Document, without_nulls
from controller.documents.error_messages import faults
from controller.kinds.common.owner_reference import owner_uids
from controller.kinds.common.problem import Path, Problem, field_path
from controller.kinds.host import KIND as HOST
from controller.kinds.hostquota import KIND as HOST_QUOTA
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import HostFacts
from controller.kinds.planning.binding import BOUND_KINDS
from controller.kinds.quota import KIND as QUOTA
from controller.kinds.registry import Kind, Registry
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.kinds.securityprofile import KIND as PROFILE
from controller.kinds.securityprofile import with_first_names
from controller.kinds.workflowrun import KIND as RUN
from controller.kinds.workflowrun import RUN_LABEL
from controller.policy.host.binding import move_refusals
from controller.ports import Clock, Store, Transaction, Wake
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.access import access
from controller.service.admission import Admit, Profiles, profiles_in
from controller.service.fleet.known_hosts import KnownHosts
from controller.service.objects.claims import Claims
from controller.service.objects.normalize import Normal, is_same_spec, normalise
from controller.service.objects.owners import Owners, WriteTarget
from controller.service.objects.quota import Facts, Fitting, Most
from controller.service.objects.run_start import RunStart


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """An object on its way to the store. `current` is the stored one, None for a new object."""

    target: WriteTarget
    current: StoredObject | None
    obj: StoredObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The rules for all writes."""

    store: Store
    """Stored objects."""
    registry: Registry
    """Kinds by name."""
    admit: Admit
    """Judges specs."""
    wake: Wake
    """Called once after each commit that changed something."""
    clock: Clock
    """Time of day."""
    new_uid: Callable[[], str]
    """Makes the uid of a new object."""
    claims: Claims
    """Hands pool members over."""
    facts: Facts = HostFacts
    """Facts of the host, for quotas."""
    most_objects: int = 0
    """Number of objects in a namespace whose quotas give no bound; 0: no bound."""
    most_annotation_bytes: int = 0
    """Bytes of annotations in such a namespace; 0: no bound."""
    place: Fleet = SINGLE
    """This host among those of the store."""
    defaults: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Completes the spec of a new object of that kind; None: it is complete."""

    @contextmanager
    def transaction(self) -> Iterator["WriteTransaction"]:
        """Open one transaction: all of its writes, or none. Store failures are ServiceErrors."""
        with errors.translate_store_errors(), self.store.transaction() as transaction:
            yield WriteTransaction(self, transaction)


class WriteTransaction:
    """The steps of the pipeline, over one transaction of the store."""

    def __init__(self, rules: Pipeline, transaction: Transaction) -> None:
        self.transaction = transaction
        self._rules = rules
        self._profiles: Profiles | None = None

    def read_ahead(self, documents: Iterable[Document]) -> None:
        """Read at once the stored objects of documents, and what those are admitted by."""
        keys: dict[tuple[str, str, str], None] = {(HOST_QUOTA.name, "", self._rules.place.host): None}
        lists: dict[tuple[str, str | None], None] = {(PROFILE.name, ""): None}
        for document in documents:
            keys[document.key] = None
            if document.namespace:
                lists[QUOTA.name, document.namespace] = None
            host = document.spec.get("host") if document.kind.name in BOUND_KINDS else None
            if isinstance(host, str) and self._rules.place.needs_lookup(host):
                keys[HOST.name, "", host] = None
            ref = document.spec.get("templateRef")
            if isinstance(ref, Mapping) and isinstance(ref.get("name"), str):
                keys[TEMPLATE.name, document.namespace, ref["name"]] = None
        self.transaction.read_ahead(keys, lists)

    def use_profiles(self, pending_objects: Iterable[StoredObject]) -> None:
        """Admit by these security profiles too: they are about to be written in this transaction."""
        self._profiles = profiles_in(self.transaction, pending_objects)

    def admit(
        self, target: WriteTarget, spec: Mapping[str, Any], text: Callable[[Path], str] = lambda _path: ""
    ) -> tuple[Normal | None, list[Problem]]:
        """Return the normalized spec, and every problem that the schema or the policy finds.

        `text` gives a scalar as it was written, for messages. A spec that breaks the schema is None.
        """
        if self._profiles is None:
            self._profiles = profiles_in(self.transaction)
        defaults = self._rules.defaults
        if defaults is not None and self.transaction.get(*target.key) is None:
            spec = defaults(target.kind.name, spec)
        spec = with_first_names(target.kind.name, spec, {profile.obj.name for profile in self._profiles})
        try:
            normal = normalise(target.kind, spec)
        except ValidationError as error:
            fault_list = faults(target.kind.spec, error, ("spec",), text)
            return None, [target.problem(fault.path, fault.message) for fault in fault_list]
        _, namespace, name = target.key
        refusals = self._rules.admit(target.kind, normal.model, namespace, name, self._profiles)
        return normal, [target.problem(field_path(field), message) for field, message in refusals]

    def new_object(
        self, document: Document, spec: Normal, *, last_applied: Mapping[str, Any] | None = None
    ) -> StoredObject:
        """Return the new object of a document, with a uid of its own."""
        return StoredObject(
            kind=document.kind.name,
            namespace=document.namespace,
            name=document.name,
            uid=self._rules.new_uid(),
            spec=spec.stored,
            created_at=self._rules.clock.now(),
            labels=without_nulls(dict(document.labels)),
            annotations=without_nulls(dict(document.annotations)),
            finalizers=document.kind.finalizers,
            last_applied=last_applied,
            status=self._binding(document, spec),
        )

    def _binding(self, document: Document, spec: Normal) -> Mapping[str, Any]:
        """Return the status of a new object: what Paddock itself makes for its work is on the host that makes it.

        A run's sandbox is as any other.
        """
        place, host = self._rules.place, spec.stored.get("host")
        is_own_work = document.kind.name in BOUND_KINDS and access.caller() is None
        return place.binding(host or place.host) if is_own_work and RUN_LABEL not in document.labels else {}

    def resolve_owners(
        self, pending: Sequence[PendingWrite], *, merge: bool
    ) -> tuple[list[PendingWrite], list[Problem]]:
        """Resolve the owners, and return every problem with them.

        `merge` keeps the references that others added; without it the target's references replace all.
        """
        owners = Owners(self.transaction, self._rules.registry, {write.target.key: write.obj for write in pending})
        resolved = owners.merged if merge else owners.replaced
        resolved_writes = [replace(write, obj=resolved(write.target, write.current)) for write in pending]
        owners.check_cycles([write.target for write in pending])
        return resolved_writes, owners.problems

    def quota_problems(self, pending: Sequence[PendingWrite]) -> list[Problem]:
        """Return a problem for each request that its quotas can never grant, and for each run that can't begin."""
        objects = [write.obj for write in pending]
        rules = self._rules
        most = Most(rules.most_objects, rules.most_annotation_bytes)
        fitting = Fitting(self.transaction, objects, rules.facts(), most, rules.place)
        starting = self._run_start(objects)
        hosts = self._hosts()
        return [
            write.target.problem(field_path(field), message)
            for write in pending
            for field, message in (
                *(
                    (every.field, every.message)
                    for every in move_refusals(write.current, write.obj, rules.place.default)
                ),
                *hosts.refusals(write.current, write.obj),
                *fitting.refusals(write.obj),
                *starting.refusals(write.obj, write.current),
            )
        ]

    def _run_start(self, objects: Sequence[StoredObject]) -> RunStart:
        if self._profiles is None:
            self._profiles = profiles_in(self.transaction)
        profiles, admit, hosts = self._profiles, self._rules.admit, self._hosts()

        def admit_sandbox(spec: SandboxSpec, namespace: str, name: str) -> Iterator[tuple[str, str]]:
            yield from admit(SANDBOX, spec, namespace, name, profiles)
            yield from hosts.host_refusals(spec.host)

        return RunStart(self.transaction, objects, admit_sandbox)

    def _hosts(self) -> KnownHosts:
        return KnownHosts(self.transaction, self._rules.store.leases, self._rules.place)

    def check(self, pending: PendingWrite, *, resolve_owners: bool = True) -> PendingWrite:
        """Return a single write with its owners resolved. Raises Invalid for its owners or its quotas."""
        problems: list[Problem] = []
        if resolve_owners:
            (pending,), problems = self.resolve_owners([pending], merge=False)
        problems = problems or self.quota_problems([pending])
        if problems:
            raise errors.invalid(problems)
        return pending

    def put(self, pending: Sequence[PendingWrite], *, claim: bool = True) -> list[StoredObject]:
        """Store what changes; return all objects as stored.

        New objects come last: the claims of sandboxes depend on templates and pools. Owners claim nothing: their
        dependents name them by uid.
        """
        stored: dict[int, StoredObject] = {}
        owners = {uid for write in pending for uid in owner_uids(write.obj)}
        for at, write in sorted(enumerate(pending), key=lambda pair: pair[1].current is None):
            if write.current is None and write.obj.kind == RUN.name:
                starting = self._run_start([every.obj for every in pending])
                write = replace(write, obj=starting.with_fixed_workflow(write.obj))
            claims = claim and write.current is None and write.obj.uid not in owners
            obj = self._rules.claims.claim(self.transaction, write.obj) if claims else write.obj
            stored[at] = obj if obj == write.current else self.transaction.put(obj)
        return [stored[at] for at in range(len(pending))]


def with_spec(kind: Kind, current: StoredObject, spec: Normal, **parts: Any) -> StoredObject:
    """Return the stored object with this spec and these other parts.

    An equal spec keeps its stored form and its generation.
    """
    unmoved = is_same_spec(kind, current.spec, spec)
    parts["spec"] = current.spec if unmoved else spec.stored
    return replace(current, generation=current.generation + (not unmoved), **parts)
