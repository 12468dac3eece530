"""Engine `ipython`: IPython's InteractiveShell as a library, in the kernel's own loop."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from .events import Events
from .results import CHART, DATA, error_event, figure_chart, frame_data, send_result

os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import ObjectName, Type, Unicode
from traitlets.config import Config

try:
    from _sha1 import sha1
except ImportError:
    from hashlib import sha1

NAME = "ipython"
_EVENTS: Events | None = None  # the classes below are made by IPython


def _events() -> Events:
    assert _EVENTS is not None
    return _EVENTS


class _Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *, transient=None, update=False, **_: Any) -> None:  # type: ignore[no-untyped-def]
        display = str((transient or {}).get("display_id", ""))
        send_result(_events(), data, main=False, display=display, update=bool(update), metadata=metadata)

    def clear_output(self, wait: bool = False) -> None:
        _events().send(type="clear", wait=bool(wait))


class _Hook(DisplayHook):
    def __call__(self, result: Any = None) -> None:
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        data, metadata = self.compute_format_data(result)
        self.update_user_ns(result)
        self.fill_exec_result(result)
        self.log_output(data)
        send_result(_events(), data, main=True, metadata=metadata)


class _Data(BaseFormatter):
    format_type = Unicode(DATA)
    print_method = ObjectName("_repr_paddock_data_")
    _return_type = (dict,)

    def __call__(self, obj: Any) -> Any:
        return frame_data(obj)


class _Chart(BaseFormatter):
    format_type = Unicode(CHART)
    print_method = ObjectName("_repr_paddock_chart_")
    _return_type = (dict,)

    def __call__(self, obj: Any) -> Any:
        return figure_chart(obj)


class _Compiler(CachingCompiler):
    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:  # noqa: ARG002 - IPython's
        """Return IPython's own name of a cell; its way to SHA-1 would load OpenSSL."""
        return f"<ipython-input-{number}-{sha1(transformed_code.encode()).hexdigest()[:12]}>"


class _Shell(InteractiveShell):
    compiler_class = Type(_Compiler)
    displayhook_class = Type(_Hook)
    display_pub_class = Type(_Publisher)
    error: tuple[str, str, str] | None = None

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        try:
            message = str(evalue)
        except Exception:
            message = "<its message can't be shown>"
        self.error = (etype.__name__, message, "\n".join(stb))

    def ask_exit(self) -> None:
        """Do nothing: `exit()` ends a cell, as `sys.exit()` does."""
        raise SystemExit(0)

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing: there is no display."""

    def init_io(self) -> None:
        """Keep the streams."""


class Engine:
    """Runs cells in one IPython shell."""

    def __init__(self, events: Events) -> None:
        global _EVENTS
        _EVENTS = events
        self.error: dict[str, str] | None = None
        config = Config()
        config.HistoryManager.enabled = False
        config.IPCompleter.use_jedi = False  # it would take 34 MB and half a second; the live names are known without
        config.HistoryManager.hist_file = ":memory:"
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.autocall = 0
        config.InteractiveShell.history_length = 1000
        module = types.ModuleType("__main__")
        kernel_main = sys.modules["__main__"]
        try:
            self._shell = _Shell.instance(config=config, user_module=module, user_ns=module.__dict__)
        except Exception:  # older versions write the name of no colours so
            _Shell.clear_instance()
            config.InteractiveShell.colors = "NoColor"
            self._shell = _Shell.instance(config=config, user_module=module, user_ns=module.__dict__)
        self._kernel_main = kernel_main
        sys.modules["__main__"] = module
        self._inline = False
        formatter = self._shell.display_formatter
        for kind in (_Data, _Chart):
            made = kind(parent=formatter)
            formatter.formatters[made.format_type] = made
            if formatter.active_types:
                formatter.active_types = [*formatter.active_types, made.format_type]

    @property
    def count(self) -> int:
        return self._shell.execution_count - 1

    async def run(self, code: str, *, counted: bool = True) -> None:
        """Run a cell; `error` is its error, or None."""
        shell = self._shell
        shell.error = self.error = None
        shell.displayhook.exec_result = None
        preprocessing = None
        try:
            cell = shell.transform_cell(code)
        except Exception:
            cell, preprocessing = code, sys.exc_info()
        result = await shell.run_cell_async(
            code, store_history=counted, transformed_cell=cell, preprocessing_exc_tuple=preprocessing
        )
        self._first_figures()
        shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)
        if shell.error:
            self.error = error_event(*shell.error)

    def complete(self, code: str) -> tuple[int, list[str]]:
        """Return how the last line may go on: how many characters at its end the matches replace, and these."""
        line = code.rpartition("\n")[2]
        replaced, matches = self._shell.complete(None, line, len(line))
        return len(replaced or ""), matches

    def fail(self, error: BaseException) -> None:
        """Note an error that left the shell."""
        self.error = error_event(type(error).__name__, str(error), "")

    def _first_figures(self) -> None:
        """Make figures show at the end of cells, from the first cell on that has pyplot."""
        if self._inline or "matplotlib.pyplot" not in sys.modules:
            return
        self._inline = True
        try:
            from matplotlib_inline.backend_inline import configure_inline_support

            configure_inline_support(self._shell, "inline")
        except Exception:  # a program that has chosen another backend shows its figures itself
            self._shell.showtraceback()
