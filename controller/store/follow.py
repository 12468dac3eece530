"""Wakes by commits of others: PostgreSQL's LISTEN, on a thread with a connection of its own.

A notification says only that something was committed, and the watch log says what. So one that is lost while the server
is away is made up for by a wake at each connect. What its writer tells beside, nothing depends on.

It is no Keeper: it has no steps, but waits in a read for as long as it is connected.
"""

import select
import socket
import threading
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from controller.ports import Heard, Wake

CHANNEL = "paddock"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
# A connect that hangs ends later by itself, and then wakes nobody.
_END_SECONDS = 1.0


def notice(store: Any, writer: Any) -> Any:
    """Return the payload of a commit, as text or SQL: the store's id, and that of its writer. More words may follow."""
    return store + " " + writer


class Follower:
    """Call `wake` from a thread: at each connect, and on each commit to the store `store` by other writers.

    `heard` gets the words that such a commit tells. `lost` are the driver's exceptions.
    """

    def __init__(
        self, engine: Engine, store: str, writer: str, wake: Wake, heard: Heard, lost: type[Exception]
    ) -> None:
        self._engine, self._wake, self._heard = engine, wake, heard
        self._prefix, self._writer = notice(store, ""), writer
        self._lost = (lost, SQLAlchemyError, OSError)
        self._ended = threading.Event()
        self._ending, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="store follower", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread; may be called again, and by `wake`."""
        self._ended.set()
        self._end.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        with self._ending:
            while not self._ended.is_set():
                if self._follow():
                    pause = _FIRST_PAUSE_SECONDS
                self._ended.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _follow(self) -> bool:
        """Listen until the connection is lost, or to the end. Return True if it was connected."""
        connected = False
        try:
            link = self._engine.raw_connection()
            driver: Any = link.dbapi_connection
            link.detach()  # it is none of the pool's, which would also reset it at the end, though it is lost
            try:
                driver.autocommit = True
                driver.execute(f"LISTEN {CHANNEL}")
                connected = True
                self._listen(driver)
            finally:
                driver.close()
        except self._lost:
            pass
        return connected

    def _listen(self, driver: Any) -> None:
        ready = select.poll()
        ready.register(driver.fileno(), select.POLLIN)
        ready.register(self._ending, select.POLLIN)
        due = True
        while not self._ended.is_set():
            if due:
                self._wake()
            ready.poll()
            payloads = [notification.payload for notification in list(driver.notifies(timeout=0))]
            ours = [
                payload.removeprefix(self._prefix).partition(" ")
                for payload in payloads
                if payload.startswith(self._prefix)
            ]
            messages = [message for writer, _, message in ours if writer != self._writer]
            due = bool(messages)
            for message in filter(None, messages):
                self._heard(message)
