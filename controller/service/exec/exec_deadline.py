"""Time limit of a command, by its sandbox's current template and security profile."""

from collections.abc import Mapping
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.securityprofile import BUILT_IN_NAMES, KIND, stored_profile
from controller.policy.levels.exec_deadline import time_limit
from controller.policy.profiles import exec_limits
from controller.ports import Store
from controller.service import errors
from controller.service.exec.exec_limits import ExecRules


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
