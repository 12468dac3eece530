"""Contexts that this daemon knows of, by sandbox: for status, metrics, and what suspending one ends."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from controller.kinds.runtime.context import LANGUAGES, Context
from controller.kinds.runtime.run import NO_RUN, Run
from controller.ports import Meter, UseTracker


class ContextBook:
    """Thread-safe. An agent's own list is the truth; this is what was last heard of it."""

    def __init__(self, meter: Meter, tracker: UseTracker) -> None:
        self._meter, self._tracker = meter, tracker
        self._lock = threading.Lock()
        self._contexts: dict[str, tuple[Run, Mapping[str, Context]]] = {}

    def replace(self, uid: str, run: Run, contexts: Sequence[Context]) -> None:
        """Note all contexts of a sandbox."""
        with self._lock:
            if contexts:
                self._contexts[uid] = run, {context.name: context for context in contexts}
            else:
                self._contexts.pop(uid, None)
            self._note(uid, run)

    def add(self, uid: str, run: Run, context: Context) -> None:
        """Note one context of a sandbox, new or changed."""
        with self._lock:
            known_run, contexts = self._contexts.get(uid, (run, {}))
            self._contexts[uid] = run, {**(contexts if known_run == run else {}), context.name: context}
            self._note(uid, run)

    def remove(self, uid: str, name: str) -> None:
        """Note that a context was deleted."""
        with self._lock:
            run, contexts = self._contexts.get(uid, (NO_RUN, {}))
            remaining = {key: context for key, context in contexts.items() if key != name}
            if remaining:
                self._contexts[uid] = run, remaining
            else:
                self._contexts.pop(uid, None)
            self._note(uid, run)

    def of(self, uid: str) -> tuple[Context, ...]:
        """Return the contexts of a sandbox."""
        with self._lock:
            _, contexts = self._contexts.get(uid, (NO_RUN, {}))
        return tuple(contexts.values())

    def _note(self, uid: str, run: Run) -> None:
        """Tell the loop and the metrics of a change."""
        _, contexts = self._contexts.get(uid, (run, {}))
        self._tracker.contexts(
            uid, run, tuple(sorted((context.name, context.language) for context in contexts.values()))
        )
        counts = Counter(context.language for _, contexts in self._contexts.values() for context in contexts.values())
        for language in LANGUAGES:
            self._meter.gauge("paddock_contexts", counts[language], language=language)
