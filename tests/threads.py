"""Threads that can't be started, as when the system has no more of them."""

import threading

import pytest


def no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread be started until the patch is undone."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
