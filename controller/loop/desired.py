"""Desired state: an immutable map of the stored objects, kept up to date from the store's changes."""

import marshal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from controller.kinds import host as hosts
from controller.kinds import (
    hostquota,
    modelserver,
    plugin,
    provider,
    quota,
    sandboxsnapshot,
    securityprofile,
    workflowrun,
)
from controller.kinds.common.tracked_map import TrackedMap
from controller.kinds.meta import StoredObject
from controller.kinds.planning.binding import BOUND_KINDS, binding_of
from controller.kinds.planning.snapshot import Pool, Sandbox
from controller.kinds.registry import discover
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.sandboxpool import SandboxPoolSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.loop.garbage import GarbageCollector
from controller.loop.object_cache import ObjectCache, ObjectCounts
from controller.ports import Change, ChangesGone, Store
from controller.ports.fleet import SINGLE, Fleet

_BATCH = 250  # changes decoded at a time
_PAGE = 1000  # sandboxes
_Key = tuple[str, str]  # namespace and name


class SharedSpecs:
    """Parsed specs of sandboxes: equal ones are one Python object, for most sandboxes are made from few specs.

    It is parsed, held and, by the planner, rendered once.
    """

    def __init__(self, most: int = 1000) -> None:
        """Know the latest `most` specs; what is in use elsewhere stays so."""
        self._most = most
        self._known: dict[bytes, tuple[Mapping[str, Any], SandboxSpec]] = {}

    def parse(self, obj: StoredObject) -> tuple[StoredObject, SandboxSpec]:
        """Return the object with its spec shared, and that parsed. Raises ValidationError."""
        key = marshal.dumps(dict(obj.spec), 2)  # version 2 has no references: equal values are equal bytes
        shared = self._known.get(key)
        if shared is None:
            if len(self._known) >= self._most:
                self._known.pop(next(iter(self._known)))
            shared = self._known[key] = obj.spec, SandboxSpec.model_validate(obj.spec)
        plain, spec = shared
        lean = obj.spec is plain and obj.last_applied is None
        return obj if lean else replace(obj, spec=plain, last_applied=None), spec


class SharedConditions:
    """Conditions of statuses: equal ones are one Python object, for most sandboxes are in one of few states."""

    def __init__(self, most: int = 1000) -> None:
        """Know the latest `most` conditions; what is in use elsewhere stays so."""
        self._most = most
        self._known: dict[bytes, Mapping[str, Any]] = {}

    def within(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the status with its conditions shared."""
        return {**status, "conditions": [self._share(condition) for condition in status["conditions"]]}

    def _share(self, condition: Mapping[str, Any]) -> Mapping[str, Any]:
        key = marshal.dumps(dict(condition), 2)
        shared = self._known.get(key)
        if shared is None:
            if len(self._known) >= self._most:
                self._known.pop(next(iter(self._known)))
            shared = self._known[key] = condition
        return shared


class Desired:
    """Reads what changed since last time; an object that did not change stays the same Python object.

    Of a Sandbox it keeps all but the document of the last `apply`, which decides nothing.
    """

    def __init__(
        self,
        store: Store,
        garbage: GarbageCollector,
        place: Fleet = SINGLE,
        *,
        everywhere: bool = False,
    ) -> None:
        """Keep the sandboxes and pools of this host; `everywhere`: those of all hosts, unbound ones too."""
        self._store, self._garbage = store, garbage
        self._place, self._everywhere = place, everywhere
        self.unbound: Mapping[str, StoredObject] = MappingProxyType({})
        # Uids of the sandboxes that are bound to other hosts, and those of them that were bound more than once.
        self.elsewhere: set[str] = set()
        self.rebound: set[str] = set()
        self._revision: int | None = None
        # Immutable, and the same mapping as long as nothing in it changes.
        self._sandboxes: TrackedMap[Sandbox] = TrackedMap()
        self._specs, self._conditions = SharedSpecs(), SharedConditions()
        self._templates: dict[_Key, Template | None] = {}
        self._terminating: set[_Key] = set()  # templates being deleted: used only by objects that are, too
        self.quotas = ObjectCache((quota.KIND.name, hostquota.KIND.name), hostquota.stored_quota)
        self.profiles = ObjectCache((securityprofile.KIND.name,), securityprofile.stored_profile)
        self.counts = ObjectCounts()
        self.providers = ObjectCache((provider.KIND.name,), provider.stored_provider)
        self.model_servers = ObjectCache((modelserver.KIND.name,), modelserver.stored_model_server)
        self.runs = ObjectCache((workflowrun.KIND.name,), workflowrun.read_run)
        self.plugins = ObjectCache((plugin.KIND.name,), lambda obj: obj)
        self.snapshots = ObjectCache((sandboxsnapshot.KIND.name,), lambda obj: obj)
        self.hosts = ObjectCache((hosts.KIND.name,), hosts.stored_host)
        self._caches: tuple[ObjectCache[Any], ...] = (
            *(self.quotas, self.profiles, self.providers, self.model_servers, self.runs, self.plugins, self.hosts),
            self.snapshots,
        )
        self._generations: dict[_Key, int] = {}  # of the templates
        self._pools: Mapping[str, Pool] = MappingProxyType({})

    @property
    def revision(self) -> int:
        """Return the revision up to which changes were read; 0 before the first refresh."""
        return self._revision or 0

    def refresh(self) -> Mapping[str, Sandbox]:
        """Return the current sandboxes by uid. On StoreError the map of before stays, for the next try."""
        if self._revision is None:
            self._relist()
        else:
            self._follow(self._revision)
        return self._sandboxes

    def pools(self) -> Mapping[str, Pool]:
        """Return the pools of the last refresh by uid."""
        return self._pools

    def untemplated_uids(self) -> frozenset[str]:
        """Return the uids of the unbound objects that name a template which there is not."""
        templated = (
            (uid, unbound_object, unbound_object.spec.get("templateRef"))
            for uid, unbound_object in self.unbound.items()
        )
        return frozenset(
            uid
            for uid, obj, ref in templated
            if ref and self._template(obj, (obj.namespace, str(ref.get("name")))) is None
        )

    def _relist(self) -> None:
        """Read all objects anew from the store, in place of what was followed by changes."""
        # The revision first: later changes are read again from the watch log.
        revision = self._store.revision()
        listed = {
            kind.name: self._store.list(kind.name)[0]
            for kind in discover()
            if (kind.patchable or not kind.read_only) and kind.name != "Sandbox"
        }
        for cache in self._caches:
            cache.relist(listed)
        self._garbage.relist(chain.from_iterable(listed.values()))
        self.counts.relist(chain.from_iterable(listed.values()))
        templates, pools = listed["SandboxTemplate"], listed["SandboxPool"]
        self._templates = {(template.namespace, template.name): _template(template) for template in templates}
        self._terminating = {
            (template.namespace, template.name) for template in templates if template.deleted_at is not None
        }
        self._generations = {(template.namespace, template.name): template.generation for template in templates}
        self._pools = MappingProxyType({obj.uid: self._pool(obj) for obj in pools if self._is_here(obj)})
        sandboxes: dict[str, Sandbox] = {}
        unbound = {obj.uid: obj for obj in pools if self._place.is_unbound(obj)}
        elsewhere: set[str] = set()
        rebound: set[str] = set()
        for objects in self._sandbox_pages():
            changes = [Change(revision, "ADDED", stored) for stored in objects]
            self._garbage.take_in(changes)
            self.counts.take_in(changes)
            sandboxes.update((obj.uid, self._read(obj, None)) for obj in objects if self._is_here(obj))
            unbound.update((obj.uid, obj) for obj in objects if self._place.is_unbound(obj))
            elsewhere.update(obj.uid for obj in objects if self._is_elsewhere(obj))
            rebound.update(obj.uid for obj in objects if self._is_elsewhere(obj) and binding_of(obj) > 1)
        self.rebound = rebound
        self._sandboxes = TrackedMap(sandboxes)
        self.unbound = MappingProxyType(unbound)
        self.elsewhere = elsewhere
        self._revision = revision

    def _sandbox_pages(self) -> Iterator[Sequence[StoredObject]]:
        """Yield all stored sandboxes, some at a time: most of them may be on other hosts, and are not kept.

        Sandboxes are never written from what is held here: they are read without the document of the last `apply`.
        """
        after: tuple[str, str] | None = None
        while True:
            objects = list(self._store.page("Sandbox", after=after, limit=_PAGE, lean=True).objects)
            yield objects
            if len(objects) < _PAGE:
                return
            after = objects[-1].namespace, objects[-1].name

    def _follow(self, since: int) -> None:
        try:
            while changes := self._store.changes(since, limit=_BATCH):
                self._take_in(changes)
                self._revision = since = changes[-1].revision
                if len(changes) < _BATCH:  # a commit since then wakes the loop again
                    return
        except ChangesGone:
            self._relist()

    def _take_in(self, changes: Sequence[Change]) -> None:
        """Update sandboxes, pools and templates by these changes, in their order."""
        for cache in self._caches:
            cache.take_in(changes)
        self._garbage.take_in(changes)
        self.counts.take_in(changes)
        touched = self._take_in_templates([change for change in changes if change.obj.kind == "SandboxTemplate"])
        self._take_in_pools([change for change in changes if change.obj.kind == "SandboxPool"], touched)
        self._take_in_unbound([change for change in changes if change.obj.kind in BOUND_KINDS])
        mine = [change for change in changes if change.obj.kind == "Sandbox"]
        self._take_in_elsewhere(mine)
        if not mine and not touched:
            return
        fresh: dict[str, Sandbox] = {}
        gone_uids: set[str] = set()
        for change in mine:
            uid = change.obj.uid
            if change.type == "DELETED" or not self._is_here(change.obj):
                fresh.pop(uid, None)
                gone_uids.add(uid)
            else:
                fresh[uid] = self._read(change.obj, fresh.get(uid) or self._sandboxes.get(uid))
                gone_uids.discard(uid)
        if touched:
            current = {**self._sandboxes, **fresh}
            fresh |= {
                uid: self._with_template(sandbox) for uid, sandbox in current.items() if _refers(sandbox) in touched
            }
        self._sandboxes = self._sandboxes.updated(fresh, gone_uids)

    def _take_in_templates(self, changes: Sequence[Change]) -> set[_Key]:
        for change in changes:
            key = (change.obj.namespace, change.obj.name)
            self._templates[key] = None if change.type == "DELETED" else _template(change.obj)
            self._generations[key] = change.obj.generation
            if change.type != "DELETED" and change.obj.deleted_at is not None:
                self._terminating.add(key)
            else:
                self._terminating.discard(key)
        return {(change.obj.namespace, change.obj.name) for change in changes}

    def _take_in_pools(self, changes: Sequence[Change], touched: set[_Key]) -> None:
        """Replace the pools that changed, or whose template did. All others stay the same Python objects."""
        if not changes and not touched:
            return
        fresh = dict(self._pools)
        for change in changes:
            if change.type == "DELETED" or not self._is_here(change.obj):
                fresh.pop(change.obj.uid, None)
            else:
                fresh[change.obj.uid] = self._pool(change.obj, fresh.get(change.obj.uid))
        if touched:
            fresh = {uid: self._pool(pool.obj) if _names(pool) in touched else pool for uid, pool in fresh.items()}
        self._pools = MappingProxyType(fresh)

    def _take_in_unbound(self, changes: Sequence[Change]) -> None:
        newest = {change.obj.uid: change for change in changes}  # bound within one batch: only the last one counts
        fresh = {
            uid: change.obj
            for uid, change in newest.items()
            if change.type != "DELETED" and self._place.is_unbound(change.obj)
        }
        bound_uids = {uid for uid in newest if uid in self.unbound} - fresh.keys()
        if fresh or bound_uids:
            remaining = {uid: obj for uid, obj in self.unbound.items() if uid not in bound_uids}
            self.unbound = MappingProxyType({**remaining, **fresh})

    def _take_in_elsewhere(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for uids in (self.elsewhere, self.rebound):
                uids.discard(change.obj.uid)
            if change.type != "DELETED" and self._is_elsewhere(change.obj):
                self.elsewhere.add(change.obj.uid)
                if binding_of(change.obj) > 1:
                    self.rebound.add(change.obj.uid)

    def _is_elsewhere(self, obj: StoredObject) -> bool:
        return not self._is_here(obj) and not self._place.is_unbound(obj)

    def _is_here(self, obj: StoredObject) -> bool:
        # Not `is_own`: what is bound to another host is left alone by one that takes itself for the only one, too.
        return self._everywhere or self._place.host_of(obj) == self._place.host

    def _pool(self, obj: StoredObject, former: Pool | None = None) -> Pool:
        """Return the pool with its spec parsed; an unchanged generation is not parsed again."""
        try:
            is_unchanged = former is not None and former.spec is not None and former.obj.generation == obj.generation
            spec = former.spec if former is not None and is_unchanged else SandboxPoolSpec.model_validate(obj.spec)
        except ValidationError as error:
            return Pool(obj, None, broken=_unreadable(error))
        assert spec is not None
        key = (obj.namespace, spec.template_ref.name)
        return Pool(obj, spec, self._template(obj, key), self._generations.get(key, 0))

    def _template(self, user: StoredObject, key: _Key) -> Template | None:
        """Return the template of that name; None if there is none, or it is being deleted and its user is not."""
        return None if key in self._terminating and user.deleted_at is None else self._templates.get(key)

    def _read(self, obj: StoredObject, former: Sandbox | None) -> Sandbox:
        """Return the sandbox with its spec parsed; an unchanged generation is not parsed again."""
        if former is not None and former.obj.resource_version == obj.resource_version:
            return former
        if "conditions" in obj.status:
            obj = replace(obj, status=self._conditions.within(obj.status))
        if former is not None and former.obj.generation == obj.generation:
            return Sandbox(
                replace(obj, spec=former.obj.spec, last_applied=None), former.spec, former.template, former.broken
            )
        try:
            obj, spec = self._specs.parse(obj)
        except ValidationError as error:
            return Sandbox(replace(obj, last_applied=None), None, broken=_unreadable(error))
        return self._with_template(Sandbox(obj, spec))

    def _with_template(self, sandbox: Sandbox) -> Sandbox:
        template = (sandbox.spec.template if sandbox.spec else None) or self._template(sandbox.obj, _refers(sandbox))
        if template is None and sandbox.obj.deleted_at is not None:
            template = sandbox.template  # it was deleted before the sandbox; it lists the volumes to delete with it
        return Sandbox(sandbox.obj, sandbox.spec, template, sandbox.broken)


def _refers(sandbox: Sandbox) -> _Key:
    """Return the key of the template that a sandbox names; its name is empty if it names none."""
    ref = sandbox.spec.template_ref if sandbox.spec else None
    return sandbox.obj.namespace, ref.name if ref else ""


def _names(pool: Pool) -> _Key:
    return pool.obj.namespace, pool.spec.template_ref.name if pool.spec else ""


def _unreadable(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    return f"this version cannot read the stored spec: {where}: {first['msg']}"


def _template(obj: StoredObject) -> Template | None:
    """Parse a stored template. One that this version cannot read counts as missing: nothing runs with it."""
    try:
        return SandboxTemplateSpec.model_validate(obj.spec)
    except ValidationError:
        return None
