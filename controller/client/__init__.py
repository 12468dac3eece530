"""FOR PROGRAMS. A small typed client of the daemon, used by the command line itself; it knows no other room.

    from controller.client import Paddock

    with Paddock() as paddock:
        done = paddock.sandbox("quickstart").exec(["python3", "-c", "print(6 * 7)"])
        assert (done.exit_code, done.stdout) == (0, b"42\\n")

What is imported here is loaded when it is first asked for: the command line has to start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.client.detached import DetachedExec
    from controller.client.errors import ClientError, Refused, TimeIsOver, Unreachable
    from controller.client.exec import Completed, Output, Running
    from controller.client.files import FileInfo, Files
    from controller.client.paddock import Paddock
    from controller.client.port_forward import Forwarding, PortConnection
    from controller.client.sandbox import Sandbox

_MODULES = {
    "FileInfo": "files",
    "Files": "files",
    "Forwarding": "port_forward",
    "PortConnection": "port_forward",
    "ClientError": "errors",
    "Completed": "exec",
    "DetachedExec": "detached",
    "Output": "exec",
    "Paddock": "paddock",
    "Refused": "errors",
    "Running": "exec",
    "Sandbox": "sandbox",
    "Secret": "variables",
    "TimeIsOver": "errors",
    "Unreachable": "errors",
}
__all__ = [
    "ClientError",
    "Completed",
    "DetachedExec",
    "FileInfo",
    "Files",
    "Forwarding",
    "Output",
    "Paddock",
    "PortConnection",
    "Refused",
    "Running",
    "Sandbox",
    "Secret",
    "TimeIsOver",
    "Unreachable",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
