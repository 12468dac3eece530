"""How long a command may run in one sandbox, by its template as it is now."""

from controller.kinds.meta import StoredObject
from controller.policy.exec_deadline import time_limit
from controller.ports import Store
from controller.service import errors
from controller.service.exec_rules import ExecRules


class ExecDeadlines:
    """Asks the store for the template, where the sandbox only names one."""

    def __init__(self, store: Store, rules: ExecRules) -> None:
        self._store, self._rules = store, rules

    def limit(self, obj: StoredObject, asked: float | None, *, tty: bool) -> float | None:
        """Seconds; None: as long as it likes. BadRequest for more than it may have."""
        rules = self._rules
        try:
            return time_limit(asked, self._own(obj), rules.most_seconds, rules.timeout_seconds, tty=tty) or None
        except ValueError as error:
            raise errors.BadRequest(f"a command in {obj.kind.lower()} `{obj.name}` {error}") from error

    def _own(self, obj: StoredObject) -> float | None:
        template = obj.spec.get("template")
        if template is None and (ref := obj.spec.get("templateRef")):
            with errors.store_in_words():
                found = self._store.get("SandboxTemplate", obj.namespace, ref["name"])
            template = found.spec if found else None
        seconds = (template or {}).get("execDeadlineSeconds")
        return None if seconds is None else float(seconds)
