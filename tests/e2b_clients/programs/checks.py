"""Checks of a program: each is one call of a client, printed as a line of JSON with its result."""

import inspect
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any


class Checks:
    """Runs checks; `end` exits with 1 if one failed."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, name: str, call: Callable[[], Any]) -> Any:
        """Run one check; a failure is printed, and the next one runs."""
        began = time.monotonic()
        try:
            value = call()
        except BaseException as error:
            self._failed(name, error)
            return None
        self._passed(name, began)
        return value

    async def acheck(self, name: str, call: Callable[[], Any]) -> Any:
        """Run one check whose call may be awaited."""
        began = time.monotonic()
        try:
            value = call()
            if inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            self._failed(name, error)
            return None
        self._passed(name, began)
        return value

    def _passed(self, name: str, began: float) -> None:
        print(json.dumps({"check": name, "ok": True, "seconds": round(time.monotonic() - began, 3)}), flush=True)

    def _failed(self, name: str, error: BaseException) -> None:
        self.failed += 1
        lines = traceback.format_exception(error)
        print(json.dumps({"check": name, "ok": False, "error": "".join(lines)[-3000:]}), flush=True)

    def end(self) -> None:
        """Exit at once: the newest client's HTTP library may abort an interpreter that ends beside its threads."""
        sys.stdout.flush()
        os._exit(1 if self.failed else 0)


class Coverage:
    """Methods of a client's package that this program calls, by their qualified names."""

    def __init__(self) -> None:
        self._called: set[str] = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/e2b" in frame.f_code.co_filename:
            self._called.add(frame.f_code.co_qualname)

    def missing(self, *classes: type) -> list[str]:
        """Return the public methods of these classes that were not called, on an object or on the class."""
        sys.setprofile(None)
        return [
            f"{client_class.__name__}.{name}"
            for client_class in classes
            for name in sorted(dir(client_class))
            if not name.startswith("_") and callable(getattr(client_class, name))
            if not any(self._was_called(base.__name__, name) for base in client_class.__mro__)
        ]

    def _was_called(self, class_name: str, name: str) -> bool:
        on_class = (f"{class_name}._cls_{name}", f"{class_name}._cls_{name}_sandbox")
        return not self._called.isdisjoint((f"{class_name}.{name}", *on_class))


def same(value: Any, expected: Any) -> None:
    """Fail unless both are equal."""
    assert value == expected, f"{value!r} is not {expected!r}"


def raises(error: type[BaseException], call: Callable[[], Any], *texts: str) -> BaseException:
    """Return the error that the call raises; fail if it raises none, or another."""
    try:
        value = call()
    except error as caught:
        return _with(caught, texts)
    raise AssertionError(f"no {error.__name__}: {value!r}")


async def araises(error: type[BaseException], awaited: Any, *texts: str) -> BaseException:
    """Return the error that is raised while this is awaited."""
    try:
        value = await awaited
    except error as caught:
        return _with(caught, texts)
    raise AssertionError(f"no {error.__name__}: {value!r}")


def _with(error: BaseException, texts: tuple[str, ...]) -> BaseException:
    for text in texts:
        assert text in str(error), f"{text!r} is not in {error}"
    return error
