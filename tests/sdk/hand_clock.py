"""A clock that a test moves, instead of that of a module."""

from types import ModuleType, SimpleNamespace

import pytest


class HandClock:
    """Monotonic seconds of modules; their `pause` moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 0.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
            monkeypatch.setattr(module, "pause", self.advance)

    def advance(self, seconds: float) -> None:
        self.now += seconds
