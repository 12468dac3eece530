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
from controller.kinds.planning.binding import BOUND_KINDS
from controller.kinds.planning.snapshot import DesiredObjects, Pool, Sandbox, Snapshot
from controller.kinds.quota import QuotaSpec, StoredQuota
from controller.kinds.registry import Kind
from controller.kinds.sandbox import SandboxSpec
from controller.plan.capacity.quota_status import Movement as Movement  # for controller.api
from controller.plan.capacity.quota_status import movements
from controller.plan.explain.preview import Forecast as Forecast  # for controller.api
from controller.plan.explain.preview import forecast_all
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.ports import Clock, Store
from controller.ports.fleet import SINGLE, Fleet
from controller.service import errors
from controller.service.explain.diff_snapshot import (
    changed_profiles,
    pools_after,
    pools_of,
    profile_of,
    profiles_after,
    sandboxes_of,
    template_of,
    with_claims,
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
        place: Fleet = SINGLE,
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
        replaces: bool = False,
    ) -> list[Difference]:
        """Return the effects of applying these files (or of deleting their objects), in the order of their documents.

        `replaces`: of replacing their objects instead, so that what a document leaves out is removed.
        Pruned objects come after them. Raises what apply raises, and ServiceUnavailable for a plan before the loop's
        first pass.
        """
        if delete and as_set.name:
            raise errors.BadRequest("a deletion has no apply set; leave out one of the two")
        differences = [
            _difference(*pair, delete=delete) for pair in self._compare(sources, namespace, as_set, replaces)
        ]
        if delete:
            differences = [
                difference if difference.before is None else self._with_deletion(difference)
                for difference in differences
            ]
        return self._forecast(differences) if plan else differences

    def _compare(
        self, sources: Sequence[Source], namespace: str | None, as_set: ApplySet, replaces: bool
    ) -> Sequence[tuple[Applied, StoredObject | None]]:
        """Return the results of apply with the objects stored now, of the same revision."""
        for _ in range(_TRIES):
            applied = self._apply.apply(sources, namespace=namespace, dry_run=True, as_set=as_set, replaces=replaces)
            with errors.translate_store_errors():
                pairs = [(applied_object, self._store.get(*_key(applied_object.obj))) for applied_object in applied]
            if all(_is_unchanged(applied_object, now) for applied_object, now in pairs):
                return [
                    (applied_object, None if applied_object.result == "created" else now)
                    for applied_object, now in pairs
                ]
        raise errors.Conflict("the objects changed during the comparison; try again")

    def _with_deletion(self, difference: Difference) -> Difference:
        """Return the object with its deletion requested."""
        assert difference.before is not None
        return replace(
            difference, after=replace(difference.before, deleted_at=difference.before.deleted_at or self._clock.now())
        )

    def _forecast(self, differences: Sequence[Difference]) -> list[Difference]:
        """Return the differences with their forecasts: a plan of the last snapshot with all of them in it."""
        numbered = [_with_uid(difference, f"{_NEW_UID}-{at}") for at, difference in enumerate(differences)]
        if elsewhere := self._elsewhere(numbered):
            local_differences = [
                difference
                for difference in numbered
                if difference.after is None or difference.after.uid not in elsewhere
            ]
            planned = iter(self._forecast(local_differences) if local_differences else ())
            return [
                _with_forecasts(difference, elsewhere, {})
                if difference.after and difference.after.uid in elsewhere
                else next(planned)
                for difference in numbered
            ]
        if not self._place.keeps_sandboxes:  # it has no engine: there is nothing to plan for
            return [_with_forecasts(difference, {}, {}) for difference in numbered]
        last = self._snapshot()
        if last is None or last.observed.revision == 0:
            raise errors.ServiceUnavailable("the daemon has not observed the engine yet; try again in a moment")
        desired = self._desired(last, numbered)
        planned_sandboxes = {
            uid: sandbox for uid, sandbox in last.desired.sandboxes.items() if uid not in desired
        } | desired
        quotas = {**last.rules.quotas, **{quota.obj.uid: quota for quota in _quotas(numbered)}}
        objects = [difference.after for difference in numbered if difference.after is not None]
        pools = {
            **pools_of(last.desired, changed_profiles(objects)),
            **{pool.obj.uid: pool for pool in self._pools(last, numbered)},
        }
        before = replace(
            last,
            now=self._clock.now(),
            desired=DesiredObjects(planned_sandboxes, {**last.desired.pools, **pools}),
            rules=replace(last.rules, quotas=quotas, profiles=profiles_after(last.rules, objects)),
        )
        policy = as_seen(self._policy, before)
        created = {
            difference.after.uid
            for difference in numbered
            if difference.after is not None and difference.result == "created"
        }
        world, claims = with_claims(before, [sandbox for uid, sandbox in desired.items() if uid in created], policy)
        desired = {member.obj.uid: member for member in (claims.get(uid, sandbox) for uid, sandbox in desired.items())}
        numbered = [_with_uid(difference, _uid_of(difference, claims)) for difference in numbered]
        forecasts, after = forecast_all(world, desired.keys() | pools.keys(), policy)
        quota_movements = tuple(movements(before, after))
        return [
            _bound(_with_forecasts(difference, forecasts, {**desired, **pools}), quota_movements)
            for difference in numbered
        ]

    def _elsewhere(self, differences: Sequence[Difference]) -> dict[str, Forecast]:
        """Return the forecasts of objects that are not this host's, by uid: they say who plans them."""
        forecasts: dict[str, Forecast] = {}
        for obj in (
            difference.after
            for difference in differences
            if difference.after is not None and difference.kind.name in BOUND_KINDS
        ):
            if self._place.is_own(obj):
                continue
            host = self._place.host_of(obj)
            message = f"only host `{host}` plans it; ask that host's daemon" if host else "it has no host yet"
            forecasts[obj.uid] = Forecast(obj.ref, reason=OTHER_HOST, message=message)
        return forecasts

    def _pools(self, last: Snapshot, differences: Sequence[Difference]) -> list[Pool]:
        """Return the pools that these documents affect, as they would be."""

        def find_stored(namespace: str, name: str) -> StoredObject | None:
            with errors.translate_store_errors():
                return self._store.get("SandboxTemplate", namespace, name)

        return list(
            pools_after(
                last.desired,
                [difference.after for difference in differences if difference.after is not None],
                find_stored,
            )
        )

    def _desired(self, last: Snapshot, differences: Sequence[Difference]) -> dict[str, Sandbox]:
        """Return the sandboxes that would be stored, or whose template or profile would change, by uid."""
        templates = {
            (difference.after.namespace, difference.after.name): difference.after
            for difference in differences
            if difference.after is not None and difference.kind.name == "SandboxTemplate"
        }
        sandboxes = {
            difference.after.uid: self._sandbox(difference.after, templates)
            for difference in differences
            if difference.after is not None and difference.kind.name == "Sandbox"
        }
        for uid, sandbox in last.desired.sandboxes.items():
            if uid not in sandboxes and _refers(sandbox) in templates:
                sandboxes[uid] = self._sandbox(sandbox.obj, templates)
        return {
            **sandboxes_of(
                last.desired,
                changed_profiles(difference.after for difference in differences if difference.after is not None),
            ),
            **sandboxes,
        }

    def _sandbox(self, obj: StoredObject, templates: Mapping[tuple[str, str], StoredObject]) -> Sandbox:
        try:
            spec = SandboxSpec.model_validate(obj.spec)
        except ValidationError:
            return Sandbox(obj, None, broken="this version cannot read the stored spec")
        if spec.template is not None or spec.template_ref is None:
            return Sandbox(obj, spec, spec.template)
        key = (obj.namespace, spec.template_ref.name)
        with errors.translate_store_errors():
            template = templates.get(key) or self._store.get("SandboxTemplate", *key)
        return Sandbox(obj, spec, template_of(template))


def _quotas(differences: Sequence[Difference]) -> Iterator[StoredQuota]:
    """Yield the quotas among the documents, as they would be stored."""
    for difference in differences:
        if (
            difference.after is not None
            and difference.after.deleted_at is None
            and issubclass(difference.kind.spec, QuotaSpec)
        ):
            yield stored_quota(difference.after)


def _bound(difference: Difference, quota_movements: Sequence[Movement]) -> Difference:
    obj = difference.after or difference.before
    mine = ("", obj.namespace) if obj is not None else ()
    return replace(difference, quotas=tuple(movement for movement in quota_movements if movement.namespace in mine))


def _key(obj: StoredObject) -> tuple[str, str, str]:
    return obj.kind, obj.namespace, obj.name


def _is_unchanged(applied: Applied, now: StoredObject | None) -> bool:
    if applied.result == "created":
        return now is None
    if applied.result == "pruned":
        return now is not None and now.generation == applied.obj.generation
    return now is not None and now.resource_version == applied.obj.resource_version


def _refers(sandbox: Sandbox | Pool) -> tuple[str, str]:
    ref = sandbox.spec.template_ref if sandbox.spec else None
    return sandbox.obj.namespace, ref.name if ref else ""


def _difference(applied: Applied, before: StoredObject | None, *, delete: bool) -> Difference:
    if delete:
        return Difference(applied.kind, before, None, "absent" if before is None else "deleted")
    changes = () if before is None or applied.result == "pruned" else tuple(_changes(before, applied.obj))
    return Difference(applied.kind, before, applied.obj, applied.result, changes)


def _with_uid(difference: Difference, uid: str) -> Difference:
    if difference.result != "created" or difference.after is None:
        return difference
    return replace(difference, after=replace(difference.after, uid=uid))


def _uid_of(difference: Difference, claims: Mapping[str, Sandbox]) -> str:
    """Return the uid that the object would get: for a claim, that of the claimed member."""
    uid = difference.after.uid if difference.after is not None else ""
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
    difference: Difference, forecasts: Mapping[str, Forecast], sandboxes: Mapping[str, Sandbox | Pool]
) -> Difference:
    """Return the difference with its forecasts, and the effect of each of its changes."""
    if difference.after is None:
        return difference
    if difference.kind.name == "SandboxTemplate":
        name = (difference.after.namespace, difference.after.name)
        mine = [forecast for uid, forecast in forecasts.items() if _refers(sandboxes[uid]) == name]
    elif difference.kind.name == "SecurityProfile":
        mine = [forecast for uid, forecast in forecasts.items() if profile_of(sandboxes[uid]) == difference.after.name]
    else:
        mine = [forecasts[difference.after.uid]] if difference.after.uid in forecasts else []
    changes = tuple(_effective(difference, change, mine) for change in difference.changes)
    return replace(difference, changes=changes, forecasts=tuple(sorted(mine, key=lambda forecast: str(forecast.ref))))


def _effective(difference: Difference, change: Change, forecasts: Sequence[Forecast]) -> Change:
    section, *inner = field_path(change.field)
    effect: str = takes_effect(difference.kind.name, tuple(inner)) if section == "spec" else "live"
    why = _REASONS.get(effect, "")
    forecast = forecasts[0] if forecasts and difference.kind.name == "Sandbox" else None
    if forecast is not None and forecast.reason == "Refused":
        return replace(change, effect="refused", why=forecast.message)
    if effect == "recreate" and forecast is not None:
        effect, why = _recreated(forecast)
    return replace(change, effect=effect, why=why)


def _recreated(forecast: Forecast) -> tuple[str, str]:
    """Return the effect of a change that needs a new container, and its reason."""
    creates = [action for action in forecast.actions if isinstance(action, CreateContainer)]
    if creates:
        removed = [action for action in forecast.actions if isinstance(action, RemoveContainer)]
        memory = "files in memory stay" if any(removal.replaced for removal in removed) else "files in memory are lost"
        lost = f"; volumes stay, {memory}, and its root file system begins from the image" if removed else ""
        return "recreate", f"{creates[0].why}{lost}"
    if forecast.reason == OTHER_HOST:
        return "recreate", forecast.message
    if forecast.reason in ("", "Suspended"):
        return "at next start", "nothing runs that it would change"
    return "recreate", f"once this is over: {forecast.reason}: {forecast.message}"
