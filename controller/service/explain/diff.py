"""Diff: apply without the commit, and the plan that would follow.

Parsing, merge and admission are those of apply. The plan is the loop's own, over its last snapshot with the objects of
the files as they would be stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from controller.documents.json_schema import takes_effect
from controller.kinds.common.problem import Path, field_path, field_text
from controller.kinds.hostquota import stored_quota
from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import CreateContainer, RemoveContainer
from controller.kinds.planning.binding import BOUND_KINDS, host_of
from controller.kinds.planning.snapshot import Pool, Sandbox, Snapshot
from controller.kinds.quota import QuotaSpec, StoredQuota
from controller.kinds.registry import Kind
from controller.kinds.sandbox import SandboxSpec
from controller.plan.capacity.quota_status import Movement as Movement  # for controller.api
from controller.plan.capacity.quota_status import movements
from controller.plan.explain.preview import Forecast as Forecast  # for controller.api
from controller.plan.explain.preview import forecast_all
from controller.policy.levels.levels import Policy
from controller.policy.levels.profiles import as_seen
from controller.ports import Clock, Store
from controller.ports.place import ALONE, Place
from controller.service import errors
from controller.service.explain.diff_snapshot import (
    changed_profiles,
    claimed,
    pools_after,
    pools_of,
    profile_of,
    profiles_after,
    sandboxes_of,
    template_of,
)
from controller.service.objects.apply import Applied, Apply, Source
from controller.service.objects.apply_set import NO_SET, ApplySet

_TRIES = 3
OTHER_HOST = "OtherHost"  # reason of a forecast that another host would have to make
_NEW_UID = "xxxxxxxx"  # stands for a new object's uid in container names
_REASONS = {
    "live": "changed in place, without a restart",
    "at next start": "nothing that runs is touched",
}
LastSnapshot = Callable[[], Snapshot | None]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed field; `before` or `after` is None if unset. `effect` is "" without a plan."""

    field: str
    before: Any
    after: Any
    effect: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The effect of a document on one object. `forecasts` are of the object, or of the sandboxes that it affects.

    `quotas` are the changes in quotas of its namespace and of the host, by all documents together.
    """

    kind: Kind
    before: StoredObject | None
    after: StoredObject | None
    result: str
    changes: tuple[Change, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    quotas: tuple[Movement, ...] = ()


class Diff:
    """The use-case. `snapshot` gives the last one that the loop planned on, None before the first.

    What other hosts will do with objects of theirs is not foretold: only they observe their engines.
    """

    def __init__(
        self,
        *,
        apply: Apply,
        store: Store,
        clock: Clock,
        snapshot: LastSnapshot,
        policy: Policy | None = None,
        place: Place = ALONE,
    ) -> None:
        self._apply, self._store, self._clock, self._snapshot = apply, store, clock, snapshot
        self._policy, self._place = policy or Policy(), place

    def diff(
        self,
        sources: Sequence[Source],
        *,
        namespace: str | None = None,
        plan: bool = False,
        delete: bool = False,
        as_set: ApplySet = NO_SET,
        whole: bool = False,
    ) -> list[Difference]:
        """Return the effects of applying these files (or of deleting their objects), in the order of their documents.

        `whole`: of replacing their objects instead, so that what a document leaves out is removed.
        Pruned objects come after them. Raises what apply raises, and ServiceUnavailable for a plan before the loop's
        first pass.
        """
        if delete and as_set.name:
            raise errors.BadRequest("a deletion has no apply set; leave out one of the two")
        found = [_difference(*each, delete=delete) for each in self._compared(sources, namespace, as_set, whole)]
        if delete:
            found = [each if each.before is None else self._deleted(each) for each in found]
        return self._planned(found) if plan else found

    def _compared(
        self, sources: Sequence[Source], namespace: str | None, as_set: ApplySet, whole: bool
    ) -> Sequence[tuple[Applied, StoredObject | None]]:
        """Return the results of apply with the objects stored now, of the same revision."""
        for _ in range(_TRIES):
            applied = self._apply.apply(sources, namespace=namespace, dry_run=True, as_set=as_set, whole=whole)
            with errors.translate_store_errors():
                pairs = [(each, self._store.get(*_key(each.obj))) for each in applied]
            if all(_is_unchanged(each, now) for each, now in pairs):
                return [(each, None if each.result == "created" else now) for each, now in pairs]
        raise errors.Conflict("the objects changed during the comparison; try again")

    def _deleted(self, found: Difference) -> Difference:
        """Return the object with its deletion requested."""
        assert found.before is not None
        return replace(found, after=replace(found.before, deleted_at=found.before.deleted_at or self._clock.now()))

    def _planned(self, found: Sequence[Difference]) -> list[Difference]:
        found = [_with_uid(each, f"{_NEW_UID}-{at}") for at, each in enumerate(found)]
        if elsewhere := self._elsewhere(found):
            here = [each for each in found if each.after is None or each.after.uid not in elsewhere]
            planned = iter(self._planned(here) if here else ())
            return [
                _with_forecasts(each, elsewhere, {}) if each.after and each.after.uid in elsewhere else next(planned)
                for each in found
            ]
        if not self._place.keeps_sandboxes:  # it has no engine: there is nothing to plan for
            return [_with_forecasts(each, {}, {}) for each in found]
        last = self._snapshot()
        if last is None or last.observed.revision == 0:
            raise errors.ServiceUnavailable("the daemon has not observed the engine yet; try again in a moment")
        desired = self._desired(last, found)
        boxes = {uid: each for uid, each in last.sandboxes.items() if uid not in desired} | desired
        quotas = {**last.quotas, **{each.obj.uid: each for each in _quotas(found)}}
        asked = [each.after for each in found if each.after is not None]
        pools = {**pools_of(last, changed_profiles(asked)), **{each.obj.uid: each for each in self._pools(last, found)}}
        before = replace(last, now=self._clock.now(), sandboxes=boxes, quotas=quotas, pools={**last.pools, **pools})
        before = replace(before, profiles=profiles_after(last, asked))
        policy = as_seen(self._policy, before)
        created = {each.after.uid for each in found if each.after is not None and each.result == "created"}
        world, claims = claimed(before, [each for uid, each in desired.items() if uid in created], policy)
        desired = {each.obj.uid: each for each in (claims.get(uid, box) for uid, box in desired.items())}
        found = [_with_uid(each, _uid_of(each, claims)) for each in found]
        forecasts, after = forecast_all(world, desired.keys() | pools.keys(), policy)
        moved = tuple(movements(before, after))
        return [_bounded(_with_forecasts(each, forecasts, {**desired, **pools}), moved) for each in found]

    def _elsewhere(self, found: Sequence[Difference]) -> dict[str, Forecast]:
        """Return the forecasts of objects that are not this host's, by uid: they say who plans them."""
        made: dict[str, Forecast] = {}
        for obj in (each.after for each in found if each.after is not None and each.kind.name in BOUND_KINDS):
            host = host_of(obj, self._place.default)
            if host == self._place.host or self._place.alone:
                continue
            words = f"only host `{host}` plans it; ask that host's daemon" if host else "it has no host yet"
            made[obj.uid] = Forecast(obj.ref, reason=OTHER_HOST, message=words)
        return made

    def _pools(self, last: Snapshot, found: Sequence[Difference]) -> list[Pool]:
        """Return the pools that these documents affect, as they would be."""

        def stored(namespace: str, name: str) -> StoredObject | None:
            with errors.translate_store_errors():
                return self._store.get("SandboxTemplate", namespace, name)

        return list(pools_after(last, [each.after for each in found if each.after is not None], stored))

    def _desired(self, last: Snapshot, found: Sequence[Difference]) -> dict[str, Sandbox]:
        """Return the sandboxes that would be stored, or whose template or profile would change, by uid."""
        templates = {
            (each.after.namespace, each.after.name): each.after
            for each in found
            if each.after is not None and each.kind.name == "SandboxTemplate"
        }
        boxes = {
            each.after.uid: self._sandbox(each.after, templates)
            for each in found
            if each.after is not None and each.kind.name == "Sandbox"
        }
        for uid, box in last.sandboxes.items():
            if uid not in boxes and _refers(box) in templates:
                boxes[uid] = self._sandbox(box.obj, templates)
        return {**sandboxes_of(last, changed_profiles(each.after for each in found if each.after is not None)), **boxes}

    def _sandbox(self, obj: StoredObject, templates: Mapping[tuple[str, str], StoredObject]) -> Sandbox:
        try:
            spec = SandboxSpec.model_validate(obj.spec)
        except ValidationError:
            return Sandbox(obj, None, broken="this version cannot read the stored spec")
        if spec.template is not None or spec.template_ref is None:
            return Sandbox(obj, spec, spec.template)
        key = (obj.namespace, spec.template_ref.name)
        with errors.translate_store_errors():
            named = templates.get(key) or self._store.get("SandboxTemplate", *key)
        return Sandbox(obj, spec, template_of(named))


def _quotas(found: Sequence[Difference]) -> Iterator[StoredQuota]:
    """Yield the quotas among the documents, as they would be stored."""
    for each in found:
        if each.after is not None and each.after.deleted_at is None and issubclass(each.kind.spec, QuotaSpec):
            yield stored_quota(each.after)


def _bounded(found: Difference, moved: Sequence[Movement]) -> Difference:
    obj = found.after or found.before
    mine = ("", obj.namespace) if obj is not None else ()
    return replace(found, quotas=tuple(each for each in moved if each.namespace in mine))


def _key(obj: StoredObject) -> tuple[str, str, str]:
    return obj.kind, obj.namespace, obj.name


def _is_unchanged(applied: Applied, now: StoredObject | None) -> bool:
    if applied.result == "created":
        return now is None
    if applied.result == "pruned":
        return now is not None and now.generation == applied.obj.generation
    return now is not None and now.resource_version == applied.obj.resource_version


def _refers(box: Sandbox | Pool) -> tuple[str, str]:
    ref = box.spec.template_ref if box.spec else None
    return box.obj.namespace, ref.name if ref else ""


def _difference(applied: Applied, before: StoredObject | None, *, delete: bool) -> Difference:
    if delete:
        return Difference(applied.kind, before, None, "absent" if before is None else "deleted")
    changes = () if before is None or applied.result == "pruned" else tuple(_changes(before, applied.obj))
    return Difference(applied.kind, before, applied.obj, applied.result, changes)


def _with_uid(found: Difference, uid: str) -> Difference:
    if found.result != "created" or found.after is None:
        return found
    return replace(found, after=replace(found.after, uid=uid))


def _uid_of(found: Difference, claims: Mapping[str, Sandbox]) -> str:
    """Return the uid that the object would get: for a claim, that of the claimed member."""
    uid = found.after.uid if found.after is not None else ""
    return claims[uid].obj.uid if uid in claims else uid


def _changes(before: StoredObject, after: StoredObject) -> Iterator[Change]:
    for path, old, new in differing((), _parts(before), _parts(after)):
        yield Change(field_text(path), old, new)


def _parts(obj: StoredObject) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {"labels": obj.labels, "annotations": obj.annotations}
    if obj.owner_references:
        metadata["ownerReferences"] = obj.owner_references
    return {"metadata": metadata, "spec": obj.spec}


def differing(path: Path, before: Any, after: Any) -> Iterator[tuple[Path, Any, Any]]:
    """Yield the smallest parts that differ: (path, before, after), None for an absent part."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*after, *before)):
            yield from differing((*path, name), before.get(name), after.get(name))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differing((*path, at), old, new)
    else:
        yield path, before, after


def _with_forecasts(
    found: Difference, forecasts: Mapping[str, Forecast], boxes: Mapping[str, Sandbox | Pool]
) -> Difference:
    """Return the difference with its forecasts, and the effect of each of its changes."""
    if found.after is None:
        return found
    if found.kind.name == "SandboxTemplate":
        name = (found.after.namespace, found.after.name)
        mine = [each for uid, each in forecasts.items() if _refers(boxes[uid]) == name]
    elif found.kind.name == "SecurityProfile":
        mine = [each for uid, each in forecasts.items() if profile_of(boxes[uid]) == found.after.name]
    else:
        mine = [forecasts[found.after.uid]] if found.after.uid in forecasts else []
    changes = tuple(_effective(found, each, mine) for each in found.changes)
    return replace(found, changes=changes, forecasts=tuple(sorted(mine, key=lambda each: str(each.ref))))


def _effective(found: Difference, change: Change, forecasts: Sequence[Forecast]) -> Change:
    part, *inner = field_path(change.field)
    effect: str = takes_effect(found.kind.name, tuple(inner)) if part == "spec" else "live"
    why = _REASONS.get(effect, "")
    own = forecasts[0] if forecasts and found.kind.name == "Sandbox" else None
    if own is not None and own.reason == "Refused":
        return replace(change, effect="refused", why=own.message)
    if effect == "recreate" and own is not None:
        effect, why = _recreated(own)
    return replace(change, effect=effect, why=why)


def _recreated(own: Forecast) -> tuple[str, str]:
    """Return the effect of a change that needs a new container, and its reason."""
    creates = [each for each in own.actions if isinstance(each, CreateContainer)]
    if creates:
        removed = [each for each in own.actions if isinstance(each, RemoveContainer)]
        memory = "files in memory stay" if any(each.replaced for each in removed) else "files in memory are lost"
        lost = f"; volumes stay, {memory}, and its root file system begins from the image" if removed else ""
        return "recreate", f"{creates[0].why}{lost}"
    if own.reason == OTHER_HOST:
        return "recreate", own.message
    if own.reason in ("", "Suspended"):
        return "at next start", "nothing runs that it would change"
    return "recreate", f"once this is over: {own.reason}: {own.message}"
