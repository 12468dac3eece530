"""A process of its own, as the daemon sees it: started, told what to serve, listened to."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from controller.processes.channel import Channel, ChannelClosed, Message

_STOP_SECONDS = 5.0
_log = structlog.get_logger("paddock.processes")
_PASSED = ("SSL_CERT_FILE", "SSL_CERT_DIR", "TZ")


class Child:
    """One run of a module as a process, called `name` in the log.

    `take` gets its messages, `on_end` is called once when it ended; each in a thread.
    """

    def __init__(
        self, module: str, name: str, take: Callable[["Child", Message], None], on_end: Callable[["Child"], None]
    ) -> None:
        parent_end, process_end = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(process_end.fileno())],
                pass_fds=(process_end.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        except BaseException:
            parent_end.close()
            raise
        finally:
            process_end.close()
        self._channel = Channel(parent_end)
        self._take = take
        self._on_end = on_end
        self._name = name
        self._thread = threading.Thread(target=self._receive, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Mapping[str, Any], sockets: Sequence[int] = ()) -> None:
        """Send a message. Raises ChannelClosed."""
        self._channel.send(message, sockets)

    def stop(self) -> None:
        """End it, and wait for that."""
        self._channel.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)

    def _accepts(self, message: Message) -> bool:
        """Take a message; the process has no privileges, and one that sends others than ours is ended."""
        try:
            self._take(self, message)
        except Exception:  # this thread must not end before the process, nor without its successor
            _log.exception("process sent what can't be served; it is ended", process=self._name)
            self._process.kill()
            return False
        return True

    def _receive(self) -> None:
        with suppress(ChannelClosed):
            while True:
                message, sockets = self._channel.receive()
                for descriptor in sockets:  # it has none to give
                    os.close(descriptor)
                if not self._accepts(message):
                    break
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._channel.close()
        self._on_end(self)


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **inherited,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
