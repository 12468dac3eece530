"""Python client of Paddock: sandboxes for code that you do not trust.

    from paddock import Paddock

    with Paddock() as paddock, paddock.sandboxes.create(image="paddock/python:1") as sandbox:
        print(sandbox.run("pip list | head -3").stdout)
        assert sandbox.run_code("print(6 * 7)").text == "42"

`AsyncPaddock` has the same names for asyncio. Every error is a PaddockError whose message says what to do.
Names are loaded on first use, so that the import is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock._async.client import AsyncPaddock as AsyncPaddock
    from paddock._async.client import AsyncSandboxes as AsyncSandboxes
    from paddock._async.contexts import AsyncContext as AsyncContext
    from paddock._async.contexts import AsyncContexts as AsyncContexts
    from paddock._async.files import AsyncFiles as AsyncFiles
    from paddock._async.mcp import AsyncMCP as AsyncMCP
    from paddock._async.objects import AsyncObjects as AsyncObjects
    from paddock._async.ports import AsyncForward as AsyncForward
    from paddock._async.process import AsyncBackgroundCommand as AsyncBackgroundCommand
    from paddock._async.process import AsyncProcess as AsyncProcess
    from paddock._async.sandbox import AsyncSandbox as AsyncSandbox
    from paddock._client.command import Secret as Secret
    from paddock._client.errors import AlreadyExists as AlreadyExists
    from paddock._client.errors import BadRequest as BadRequest
    from paddock._client.errors import Conflict as Conflict
    from paddock._client.errors import Expired as Expired
    from paddock._client.errors import Forbidden as Forbidden
    from paddock._client.errors import Invalid as Invalid
    from paddock._client.errors import NotFound as NotFound
    from paddock._client.errors import PaddockError as PaddockError
    from paddock._client.errors import Refused as Refused
    from paddock._client.errors import TimedOut as TimedOut
    from paddock._client.errors import TooManyRequests as TooManyRequests
    from paddock._client.errors import Unauthorized as Unauthorized
    from paddock._client.errors import Unavailable as Unavailable
    from paddock._client.errors import Unreachable as Unreachable
    from paddock._client.files import FileInfo as FileInfo
    from paddock._execution import Execution as Execution
    from paddock._execution import ExecutionError as ExecutionError
    from paddock._execution import Logs as Logs
    from paddock._execution import Result as Result
    from paddock._models import Change as Change
    from paddock._models import CommandFailed as CommandFailed
    from paddock._models import CommandResult as CommandResult
    from paddock._models import Metrics as Metrics
    from paddock._models import MetricsList as MetricsList
    from paddock._models import Output as Output
    from paddock._models import PreviewLink as PreviewLink
    from paddock._models import SandboxFailed as SandboxFailed
    from paddock._models import TaskResult as TaskResult
    from paddock._models import WaitTimedOut as WaitTimedOut
    from paddock._models import WatchEvent as WatchEvent
    from paddock._sync.client import Paddock as Paddock
    from paddock._sync.client import Sandboxes as Sandboxes
    from paddock._sync.contexts import Context as Context
    from paddock._sync.contexts import Contexts as Contexts
    from paddock._sync.files import Files as Files
    from paddock._sync.mcp import MCP as MCP
    from paddock._sync.objects import Objects as Objects
    from paddock._sync.ports import Forward as Forward
    from paddock._sync.process import BackgroundCommand as BackgroundCommand
    from paddock._sync.process import Process as Process
    from paddock._sync.sandbox import Sandbox as Sandbox

_CLIENT = "paddock._client"
_MODULES = {
    "paddock._async.client": ("AsyncPaddock", "AsyncSandboxes"),
    "paddock._async.contexts": ("AsyncContext", "AsyncContexts"),
    "paddock._async.files": ("AsyncFiles",),
    "paddock._async.mcp": ("AsyncMCP",),
    "paddock._async.objects": ("AsyncObjects",),
    "paddock._async.ports": ("AsyncForward",),
    "paddock._async.process": ("AsyncBackgroundCommand", "AsyncProcess"),
    "paddock._async.sandbox": ("AsyncSandbox",),
    "paddock._execution": ("Execution", "ExecutionError", "Logs", "Result"),
    "paddock._models": (
        "Change",
        "CommandFailed",
        "CommandResult",
        "Metrics",
        "MetricsList",
        "Output",
        "PreviewLink",
        "SandboxFailed",
        "TaskResult",
        "WaitTimedOut",
        "WatchEvent",
    ),
    "paddock._sync.client": ("Paddock", "Sandboxes"),
    "paddock._sync.contexts": ("Context", "Contexts"),
    "paddock._sync.files": ("Files",),
    "paddock._sync.mcp": ("MCP",),
    "paddock._sync.objects": ("Objects",),
    "paddock._sync.ports": ("Forward",),
    "paddock._sync.process": ("BackgroundCommand", "Process"),
    "paddock._sync.sandbox": ("Sandbox",),
    f"{_CLIENT}.command": ("Secret",),
    f"{_CLIENT}.errors": (
        "AlreadyExists",
        "BadRequest",
        "Conflict",
        "Expired",
        "Forbidden",
        "Invalid",
        "NotFound",
        "PaddockError",
        "Refused",
        "TimedOut",
        "TooManyRequests",
        "Unauthorized",
        "Unavailable",
        "Unreachable",
    ),
    f"{_CLIENT}.files": ("FileInfo",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table says what is exported, and from where


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from paddock._version import VERSION

        return VERSION
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    exported = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = exported
    return exported


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
