"""Time limit of a command, by its sandbox's current template and security profile, and what a timed-out command leaves.

All known processes of the command were killed. Others that can't be told from the sandbox's own may be the command's in
hiding: only killing the whole sandbox ends them for sure. Its restart policy then applies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from controller.kinds.meta import Event, StoredObject
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import SignalContainer
from controller.kinds.planning.outcome import Ok
from controller.kinds.securityprofile import BUILT_IN_NAMES, KIND, stored_profile
from controller.policy.levels.exec_deadline import time_limit
from controller.policy.profiles import exec_limits
from controller.ports import Clock, Engine, Store, StoreError
from controller.service import errors
from controller.service.exec.exec_limits import ExecRules

_log = structlog.get_logger("paddock.exec")


def template_of(store: Store, obj: StoredObject) -> Mapping[str, Any] | None:
    """Return the sandbox's current template: its own, or the stored one that it names; None if there is none."""
    template: Mapping[str, Any] | None = obj.spec.get("template")
    if template is None and (ref := obj.spec.get("templateRef")):
        with errors.translate_store_errors():
            stored_template = store.get("SandboxTemplate", obj.namespace, ref["name"])
        template = stored_template.spec if stored_template else None
    return template


class ExecDeadlines:
    """Time limits; reads the template from the store if the sandbox only refers to one."""

    def __init__(self, store: Store, rules: ExecRules) -> None:
        self._store, self._rules = store, rules

    def limit(self, obj: StoredObject, requested: float | None, *, tty: bool) -> float | None:
        """Return seconds; None: no limit. Raises BadRequest for a request above the limit."""
        rules = self._rules
        try:
            of_template, level = self._template_bounds(obj)
            return time_limit(requested, of_template, level, rules.most_seconds, rules.timeout_seconds, tty=tty) or None
        except ValueError as error:
            raise errors.BadRequest(f"a command in {obj.kind.lower()} `{obj.name}` {error}") from error

    def _template_bounds(self, obj: StoredObject) -> tuple[float | None, tuple[int, int]]:
        template = template_of(self._store, obj)
        seconds = (template or {}).get("execDeadlineSeconds")
        level = obj.spec.get("securityLevel") or (template or {}).get("securityLevel", "")
        return None if seconds is None else float(seconds), self._of_level(level)

    def template(self, obj: StoredObject) -> Mapping[str, Any]:
        """Return the sandbox's current template; empty if there is none."""
        return template_of(self._store, obj) or {}

    def _of_level(self, name: str) -> tuple[int, int]:
        if not name or name in BUILT_IN_NAMES:
            return exec_limits(name, ())
        with errors.translate_store_errors():
            stored = self._store.get(KIND.name, "", name)
        return exec_limits(name, [stored_profile(stored)] if stored is not None else ())


class EscapedProcesses:
    """Kills sandboxes with escaped processes, and records the reason."""

    def __init__(self, *, store: Store, engine: Engine, clock: Clock) -> None:
        self._store, self._engine, self._clock = store, engine, clock

    def handler(self, obj: StoredObject, container: Container) -> Callable[[str], None]:
        """Return a callback, for any thread, that takes a description of the escaped processes of this run."""
        return lambda processes: self._end(obj, container, processes)

    def _end(self, obj: StoredObject, container: Container, processes: str) -> None:
        message = f"a command ran out of time and left {processes}: all of the sandbox was killed"
        now = self._clock.now()
        try:
            with self._store.transaction() as transaction:
                transaction.add_event(Event(obj.ref, "Warning", "ExecEscaped", message, at=now, first_at=now))
        except StoreError as error:  # without a record nothing is done
            _log.warning("escaped processes not killed", object=str(obj.ref), why=str(error))
            return
        outcome = self._engine.act(SignalContainer(container.uid, container.name, container.id, "KILL", message))
        if not isinstance(outcome, Ok):
            _log.warning("escaped processes not killed", object=str(obj.ref), why=str(outcome))
