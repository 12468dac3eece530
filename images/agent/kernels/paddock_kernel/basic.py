"""Engine `basic`: Python's standard library alone, for images without IPython."""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import keyword
import linecache
import os
import re
import sys
import traceback
import types
from typing import Any

from .events import Events
from .results import CHART, bundle_of, error_event, figure_chart, send_result

NAME = "basic"
_NAME_AT_END = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\.?$")
_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
_COROUTINE = inspect.CO_COROUTINE


class Engine:
    """Runs cells in one module `__main__`."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.count = 0
        self.error: dict[str, str] | None = None
        os.environ.setdefault("MPLBACKEND", "agg")
        module = types.ModuleType("__main__")
        module.__dict__.update({"__builtins__": builtins, "display": self.display})
        sys.modules["__main__"] = module
        self._names = module.__dict__

    def display(self, *values: Any, **_: Any) -> None:
        for value in values:
            data, metadata = bundle_of(value)
            send_result(self._events, data, main=False, metadata=metadata)

    async def run(self, code: str, *, counted: bool = True) -> None:
        """Run a cell; `error` is its error, or None."""
        self.count += counted
        self.error = None
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            await self._run(code, name)
            self._figures()
        except BaseException as error:
            self.fail(error)

    def complete(self, code: str) -> tuple[int, list[str]]:
        """Return how the code may go on: how many characters at its end the matches replace, and these."""
        match = _NAME_AT_END.search(code)
        path, _, prefix = (match[0] if match else "").rpartition(".")
        names = {**vars(builtins), **self._names, **dict.fromkeys(keyword.kwlist)}
        if path:
            first, *attributes = path.split(".")
            value = self._names.get(first, vars(builtins).get(first))
            for attribute in attributes:
                value = getattr(value, attribute)
            names = dict.fromkeys(map(str, dir(value)))
        is_hidden = not prefix.startswith("_")
        matches = [name for name in names if name.startswith(prefix) and not (is_hidden and name.startswith("_"))]
        return len(prefix), sorted(matches)

    def fail(self, error: BaseException) -> None:
        """Note an error, with the traceback of the cells' lines."""
        at = error.__traceback__
        while at is not None and not at.tb_frame.f_code.co_filename.startswith("<cell"):
            at = at.tb_next
        try:
            message, lines = str(error), traceback.format_exception(type(error), error, at)
        except Exception:
            message, lines = "<its message can't be shown>", []
        self.error = error_event(type(error).__name__, message, "".join(lines).rstrip("\n"))

    async def _run(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not _is_quiet(code):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        if tree.body:
            await self._evaluate(compile(tree, name, "exec", _AWAIT))
        if last is not None:
            value = await self._evaluate(compile(last, name, "eval", _AWAIT))
            if value is not None:
                self._names["_"] = value
                data, metadata = bundle_of(value)
                send_result(self._events, data, main=True, metadata=metadata)

    async def _evaluate(self, code: types.CodeType) -> Any:
        value = eval(code, self._names)
        return await value if code.co_flags & _COROUTINE else value

    def _figures(self) -> None:
        """Show the figures that the cell has drawn."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            picture = io.BytesIO()
            figure.savefig(picture, format="png", bbox_inches="tight")
            data = {"text/plain": repr(figure), "image/png": picture.getvalue()}
            chart = figure_chart(figure)
            send_result(self._events, {**data, **({CHART: chart} if chart else {})}, main=False)
        pyplot.close("all")


def _is_quiet(code: str) -> bool:
    return code.rstrip().endswith(";")
