"""Supervisor of the SSH process in the daemon: started by the first connection, and anew after it has ended."""

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controller.kinds.access.access import Caller
from controller.ports import Meter
from controller.processes.channel import ChannelClosed, Message
from controller.processes.child import Child
from controller.service import errors
from controller.service.front.ssh import SshHost, SshKey, SshLogin
from controller.ssh.channels import Connection, Opener, SandboxWork
from controller.ssh.gate import Gate
from controller.ssh.host_key import host_key, public_key
from controller.ssh.keys import Keys

MODULE, NAME = "controller.ssh.process", "ssh front"
_READY_SECONDS, _RETRY_SECONDS = 15.0, 5.0
_MOST_LOGINS = 32  # at once
_LOOK_SECONDS = 2.0
_MOST_BYTES = 1 << 40  # in one report of the process, which is trusted with nothing
_SIGNALS = frozenset(
    ("ABRT", "ALRM", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2")
)
_log = structlog.get_logger("paddock.ssh")


@dataclass(frozen=True, slots=True)
class SshParts:
    """Connections of the supervisor to the rest of the daemon. `key_file` holds the host key, `instance` names it."""

    work: SandboxWork
    meter: Meter
    key_file: Path
    instance: str
    keys: Keys
    gate: Gate
    listening: socket.socket | None = None
    address: str = ""
    keepalive_seconds: float = 30.0
    """A client is asked so often if it is there; three silent times end it."""
    login_seconds: float = 30.0
    """In which a client of the port logs in."""


class Supervisor:
    """service.front.ssh.SshFront. Nothing runs before the first connection; `close` ends all."""

    def __init__(self, parts: SshParts) -> None:
        self._parts, self._opener = parts, Opener(parts.work, parts.meter)
        self._lock = threading.Condition()
        self._child: Child | None = None
        self._ready = self._stopping = self._looks = False
        self._connections: dict[int, Connection] = {}
        self._number = 0
        self._pause = threading.Event()
        self._logins = threading.BoundedSemaphore(_MOST_LOGINS)

    def start(self) -> None:
        """Serve the port, if there is one. Raises ServiceUnavailable."""
        if self._parts.listening is not None:
            with self._lock:
                self._started()

    def host(self) -> SshHost:
        """Return the instance, the public key and the address of the port. Raises ServiceUnavailable."""
        return SshHost(self._parts.instance, public_key(self._key()), self._parts.address)

    def add_key(self, caller: Caller, text: str) -> SshKey:
        """Add a public key of the caller. Raises ServiceError."""
        return self._parts.keys.add(caller, text)

    def keys(self, caller: Caller) -> Sequence[SshKey]:
        """Return the caller's keys."""
        return self._parts.keys.of(caller)

    def remove_key(self, caller: Caller, fingerprint: str) -> None:
        """Remove a key of the caller, and end its connections. Raises NotFound."""
        self._parts.keys.remove(caller, fingerprint)
        for number, connection in list(self._connections.items()):
            if connection.fingerprint == fingerprint:
                self._end(number)

    def _end(self, number: int) -> None:
        """End a connection, here and in the process."""
        child = self._child
        if child is not None:
            with suppress(ChannelClosed):
                child.send({"type": "end", "connection": number})
        self._drop_connection(number)

    def serve(self, descriptor: int, login: SshLogin, on_end: Callable[[], None]) -> Callable[[], None]:
        """Serve a connection in the process; start that if need be. Return what ends the connection.

        `on_end` is called when it has ended. Raises ServiceUnavailable.
        """
        with self._lock:
            child = self._started()
            self._number += 1
            number = self._number
            self._connections[number] = Connection(login, on_end)
            self._show_connections()
        try:
            # Without the lock: it may block until the process reads, and whoever takes its messages needs the lock.
            child.send({"type": "serve", "connection": number}, [descriptor])
        except ChannelClosed:
            self._drop_connection(number)
            raise errors.ServiceUnavailable("the SSH front has ended; connect again") from None
        self._parts.meter.count("paddock_ssh_connections_total")

        def end() -> None:
            # As `_end` does, but in this child: by now another one may run, which does not know the connection.
            with suppress(ChannelClosed):
                child.send({"type": "end", "connection": number})
            self._drop_connection(number)

        return end

    @property
    def pid(self) -> int:
        """Process id of the SSH process; 0: it does not run."""
        child = self._child
        return child.pid if child is not None else 0

    def close(self) -> None:
        """End the process, and all connections."""
        with self._lock:
            self._stopping = True
            self._pause.set()
            child, self._child, self._ready = self._child, None, False
        if child is not None:
            child.stop()
        if self._parts.listening is not None:
            self._parts.listening.close()
        self._end_all()

    def _key(self) -> str:
        try:
            return host_key(self._parts.key_file)
        except (OSError, ValueError) as error:
            message = f"the SSH host key {self._parts.key_file} can't be used: {error}; remove it, a new one is made"
            raise errors.ServiceUnavailable(message) from error

    def _started(self) -> Child:
        """Return the running process, with the lock held. Raises ServiceUnavailable."""
        if self._child is None and not self._stopping:
            self._ready, key = False, self._key()
            try:
                self._child = Child(MODULE, NAME, self._take, self._take_end)
                self._child.send(
                    {
                        "type": "config",
                        "key": key,
                        "keepaliveSeconds": self._parts.keepalive_seconds,
                        "loginSeconds": self._parts.login_seconds,
                    }
                )
                if self._parts.listening is not None:
                    self._child.send({"type": "listen"}, [self._parts.listening.fileno()])
            except (OSError, ChannelClosed) as error:
                raise errors.ServiceUnavailable(f"the SSH front can't be started: {error}; try again") from error
        self._lock.wait_for(lambda: self._ready or self._child is None, _READY_SECONDS)
        child = self._child
        if child is None or not self._ready:
            raise errors.ServiceUnavailable("the SSH front does not start; the daemon's log says why, try again")
        return child

    def _take_end(self, child: Child) -> None:
        with self._lock:
            if self._child is not child:
                return
            self._child, self._ready = None, False
            self._lock.notify_all()
        if not self._stopping:
            _log.warning("ssh front ended; the next connection starts it again")
        self._end_all()
        if not self._stopping and self._parts.listening is not None:
            threading.Thread(target=self._start_again, name="ssh front", daemon=True).start()

    def _start_again(self) -> None:
        """Serve the port again; connections wait meanwhile."""
        while not self._stopping:
            try:
                self.start()
            except errors.ServiceUnavailable:
                self._pause.wait(_RETRY_SECONDS)
            else:
                return

    def _end_all(self) -> None:
        for number in list(self._connections):
            self._drop_connection(number)

    def _show_connections(self) -> None:
        self._parts.meter.gauge("paddock_ssh_open_connections", len(self._connections))

    def _drop_connection(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._show_connections()
            connection.close()

    def _take(self, child: Child, message: Message) -> None:
        """Take a message of the process."""
        type_ = message["type"]
        if type_ == "ready":
            with self._lock:
                self._ready = self._child is child
                self._lock.notify_all()
            return
        if type_ == "login":
            if self._logins.acquire(blocking=False):
                threading.Thread(target=self._login, args=(child, message), name="ssh login", daemon=True).start()
            else:  # anybody may try
                busy = {"type": "answer", "number": int(message["number"]), "message": "too many logins at once"}
                with suppress(ChannelClosed):
                    child.send(busy)
            return
        if type_ == "bytes":
            for direction in ("in", "out"):
                count = min(max(0, int(message[direction])), _MOST_BYTES)
                self._parts.meter.count("paddock_ssh_bytes_total", count, direction=direction)
            return
        connection = self._connections.get(int(message["connection"]))
        if connection is None:  # it has ended meanwhile
            return
        match type_:
            case "open":
                number = int(message["number"])

                def answer(outcome: Mapping[str, Any], descriptors: tuple[int, ...]) -> None:
                    with suppress(ChannelClosed):
                        child.send({"type": "answer", "number": number, **outcome}, descriptors)
                    if outcome:
                        connection.release(number)

                self._opener.open(connection, number, message, answer)
            case "closed":
                if int(message["number"]) in connection.channels:
                    threading.Thread(target=connection.release, args=(int(message["number"]),), daemon=True).start()
            case "resize" | "signal":
                _control(connection, message)
            case "ended":
                threading.Thread(target=self._drop_connection, args=(int(message["connection"]),), daemon=True).start()

    def _login(self, child: Child, message: Message) -> None:
        """Judge a client of the port: may it, as whom, and (unless it only asks) from now on."""
        number, connection = int(message["number"]), int(message["connection"])
        answer: Message = {"type": "answer", "number": number}
        try:
            if connection >= 0:
                raise errors.BadRequest("a connection of the daemon's own")
            login, fingerprint = self._parts.gate.login(message)
            if not message["asks"]:
                self._parts.meter.count("paddock_ssh_connections_total")
                self._follow(connection, login, fingerprint)
        except errors.ServiceError as error:
            answer["message"] = str(error)
            self._parts.meter.count("paddock_ssh_refusals_total", what="login")
        finally:
            self._logins.release()
        with suppress(ChannelClosed):
            child.send(answer)

    def _follow(self, number: int, login: SshLogin, fingerprint: str) -> None:
        """Note a connection of the port. It ends with its caller's token, also with one that has ended just now."""
        connection = self._connections[number] = Connection(login, lambda: None, fingerprint=fingerprint)
        self._show_connections()
        leave = connection.on_end = self._parts.gate.follow(login, lambda: self._end(number))
        if number not in self._connections:
            leave()
        with self._lock:
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._look, name="ssh tokens", daemon=True).start()

    def _look(self) -> None:
        """Notice tokens that other daemons revoke, and users of this host that may not use a sandbox any more."""
        unknown: dict[int, str] = {}
        while not self._pause.wait(_LOOK_SECONDS):
            try:
                unknown = self._look_once(unknown)
            except Exception as error:
                _log.exception("rights of ssh connections not read; they are again soon", error=str(error))

    def _look_once(self, unknown: Mapping[int, str]) -> dict[int, str]:
        """Return the users that can't be looked up, with the error; `unknown` are those of the look before."""
        by_port = [item for item in list(self._connections.items()) if item[0] < 0]
        expirations = self._parts.gate.expirations
        if any(connection.login.caller for _, connection in by_port) and expirations.is_due():
            expirations.look()
        lapsed_numbers, failures = self._parts.gate.ended({number: connection.login for number, connection in by_port})
        for uid, error in failures.items():
            if unknown.get(uid) != error:
                _log.warning("user of this host not looked up; their ssh connections stay", uid=uid, error=error)
        for number in lapsed_numbers:
            self._end(number)
        return failures


def _control(connection: Connection, message: Message) -> None:
    """Pass a terminal's new size, or a signal, to the command."""
    channel = connection.channels.get(int(message["number"]))
    if channel is None:
        return
    if message["type"] == "resize":
        channel.resize(int(message["rows"]), int(message["columns"]))
    elif message["name"] in _SIGNALS:
        channel.signal(str(message["name"]))
