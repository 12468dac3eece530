"""Deaths of a process between two changes of the file system: what the next one finds is all that it has."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_CHANGES = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "link")


class Killed(BaseException):
    """The process is gone: no handler of errors runs to any effect."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """End the block before its change of that number; after it, the list has one item if it came to its end."""
    end: list[bool] = []
    count = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:  # a dead process changes nothing more
                raise Killed
            return change(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for name in _CHANGES:
            patched.setattr(os, name, counted(getattr(os, name)))
        try:
            yield end
            end.append(True)
        except Killed:
            pass
