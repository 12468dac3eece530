"""Sessions of other people's servers: one sandbox for each server, caller and connection. Any thread may call this."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from controller.kinds.mcpserver import READY, ready_condition
from controller.kinds.meta import Condition, StoredObject
from controller.mcp.servers.stdio import ServerGone, ServerRefused, StdioClient
from controller.policy import mcp_tools
from controller.policy.mcp_tools import Offered
from controller.policy.mcpserver import not_installed
from controller.ports import Meter, StreamError
from controller.service import errors
from controller.service.mcp.servers import McpServers, Server
from controller.version import VERSION

LEGACY, MODERN = "2025-11-25", "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "paddock", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_SWEEP_SECONDS = 1.0
_MOST_OF_CALLER = 64
_MOST_PAGES = 20
_MOST_LISTED = 1000
_EARLY_SECONDS = 5.0  # after its start, a server's death counts as a failed start
_FREE_FAILURES = 2  # of starts, before each further one waits
_MOST_BACKOFF_SECONDS = 60.0
_METHOD_NOT_FOUND = -32601
_log = structlog.get_logger("paddock.mcp")
Key = tuple[str, int, str, str]


class StartRefused(errors.ServiceUnavailable):
    """No session can begin now."""


@dataclass(slots=True)
class Session:
    """A running server, in its sandbox. `offered` are the tools that clients get."""

    server: Server
    sandbox: StoredObject
    client: StdioClient
    offered: Offered = field(default_factory=lambda: Offered({}))
    modern: bool = False
    began_at: float = 0.0  # on the monotonic clock
    used_at: float = 0.0

    def params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request in the era that the server speaks."""
        return {**given, "_meta": {**_META, **given.get("_meta", {})}} if self.modern else dict(given)


@dataclass(slots=True)
class _Failures:
    count: int = 0
    not_before: float = 0.0
    message: str = ""


class Sessions:
    """Every session of this daemon. `start` removes what an earlier daemon left, and ends idle ones from then on."""

    def __init__(self, servers: McpServers, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers, self._meter, self._clock = servers, meter, clock
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._sessions: dict[Key, Future[Session]] = {}
        self._known: dict[tuple[str, int], Offered] = {}  # of servers that ran
        self._modern: set[tuple[str, int]] = set()
        self._failures: dict[tuple[str, int], _Failures] = {}
        self._sweeper: threading.Thread | None = None

    def start(self) -> None:
        """Delete the sandboxes of an earlier daemon's sessions, and start to end idle sessions. Raises ServiceError."""
        if left := self._servers.remove_sessions():
            _log.info("mcp sessions of an earlier daemon removed", count=left)
        self._sweeper = threading.Thread(target=self._sweep_always, name="mcp sweep", daemon=True)
        self._sweeper.start()

    def close(self) -> None:
        """End every session."""
        self._stop.set()
        if self._sweeper is not None:
            self._sweeper.join()
        self._end(lambda _key: True)

    def count(self) -> int:
        """Return the number of sessions, starting ones too."""
        return len(self._sessions)

    def tools(self, server: Server) -> Offered | None:
        """Return the server's tools without starting it; None: they are not known yet."""
        return self._known.get(server.key) if server.spec.enabled else None

    def claim(self, server: Server, caller: str, connection: str) -> tuple[Key, "Future[Session]", bool]:
        """Return the caller's session of this connection, to come, and whether the caller must `open` it.

        Never blocks. Raises TooManyRequests.
        """
        key = (*server.key, caller, connection)
        with self._lock:
            found = self._sessions.get(key)
            if found is not None:
                return key, found, False
            if sum(each[2] == caller for each in self._sessions) >= _MOST_OF_CALLER:
                words = f"you have {_MOST_OF_CALLER} sessions with MCP servers; close some clients first"
                raise errors.TooManyRequests(words)
            made = self._sessions[key] = Future()
            return key, made, True

    def open(self, key: Key, server: Server, made: "Future[Session]") -> None:
        """Start the claimed session. Blocks; its errors are those of the future."""
        try:
            session = self._started(server)
            session.began_at = session.used_at = self._clock()
        except BaseException as error:
            self._fail(key, made, error)
            return
        made.set_result(session)

    def abandon(self, key: Key, made: "Future[Session]") -> None:
        """Give up a claimed session that nobody opens."""
        self._fail(key, made, StartRefused("the daemon stops; try again once it runs"))

    def use(self, session: Session) -> None:
        """Note that the session is in use: it is not idle."""
        session.used_at = self._clock()

    def end(self, caller: str, connection: str, server_uid: str = "") -> None:
        """End the sessions of a connection that is gone."""
        self._end(lambda key: key[2:] == (caller, connection) and server_uid in ("", key[0]))

    def sweep(self) -> None:
        """End sessions that are idle, dead, or whose server was changed, disabled or deleted."""
        current = {each.key: each for each in self._servers.list()}
        now = self._clock()

        def is_over(key: Key) -> bool:
            server, found = current.get(key[:2]), self._sessions.get(key)
            if server is None or not server.spec.enabled:
                return True
            if found is None or not found.done() or found.exception() is not None:
                return False
            session = found.result()
            idle = not session.client.busy and now - session.used_at >= server.spec.idle_seconds
            return idle or session.client.is_gone

        self._end(is_over)
        for known in (self._known, self._failures):
            for each in [each for each in known if each not in current]:
                known.pop(each, None)

    def _sweep_always(self) -> None:
        while not self._stop.wait(_SWEEP_SECONDS):
            try:
                self.sweep()
            except errors.ServiceError as error:
                _log.warning("mcp sweep failed", error=str(error))
            except Exception:  # the sweeper must not end
                _log.exception("mcp sweep failed")

    def _end(self, is_over: Callable[[Key], bool]) -> None:
        with self._lock:
            found = [(key, each) for key, each in self._sessions.items() if is_over(key)]
        for key, each in found:
            each.add_done_callback(partial(self.drop, key))  # at once, unless it is still starting

    def drop(self, key: Key, found: "Future[Session]") -> None:
        """End the session, and count its death as a failed start if it came soon after that. Blocks."""
        with self._lock:
            if self._sessions.get(key) is not found:
                return
            del self._sessions[key]
        if found.exception() is None:
            self._settle(found.result())
            self._remove(found.result())

    def _settle(self, session: Session) -> None:
        """Count an early death of a session that ends; forget earlier failures if there was none."""
        early = session.client.is_gone and self._clock() - session.began_at < _EARLY_SECONDS
        if early:
            why = f"{session.client.why}, within {_EARLY_SECONDS:.0f} s of its start"
            self._refused(session.server, "StartFailed", why)
        else:
            self._failures.pop(session.server.key, None)

    def _remove(self, session: Session) -> None:
        with suppress(StreamError):
            session.client.close()
        self._remove_sandbox(session.sandbox)

    def _remove_sandbox(self, sandbox: StoredObject) -> None:
        try:
            self._servers.remove_sandbox(sandbox)
        except errors.ServiceError as error:  # its idle timeout deletes it
            _log.warning("mcp sandbox not removed", object=str(sandbox.ref), error=str(error))

    def _fail(self, key: Key, made: "Future[Session]", error: BaseException) -> None:
        with self._lock:
            self._sessions.pop(key, None)
        made.set_exception(error)

    def _started(self, server: Server) -> Session:
        self._check(server)
        deadline = self._clock() + server.spec.startup_seconds
        try:
            sandbox = self._servers.create_sandbox(server)
        except errors.Invalid as error:
            raise self._refused(server, "StartFailed", str(error)) from error
        try:
            return self._talking(server, sandbox, deadline)
        except BaseException:
            self._remove_sandbox(sandbox)
            raise

    def _talking(self, server: Server, sandbox: StoredObject, deadline: float) -> Session:
        try:
            hidden = self._servers.secret_values(server)
            client = StdioClient(lambda stdin: self._servers.start(server, sandbox, stdin), sandbox.name, hidden)
        except (StreamError, errors.ServiceError) as error:
            raise self._refused(server, "StartFailed", str(error)) from error
        session = Session(server, sandbox, client)
        try:
            self._greet(session, deadline)
            self._learn(session, deadline)
        except (ServerGone, ServerRefused, FutureTimeout) as error:
            self._close(client)
            if isinstance(error, FutureTimeout):
                silent = f"it did not answer within {server.spec.startup_seconds} s (startupSeconds)"
                error = ServerGone(silent, client.last_lines())
            raise self._refused(server, "StartFailed", error.why, said=str(error)) from error
        except BaseException:
            self._close(client)
            raise
        return session

    def _close(self, client: StdioClient) -> None:
        with suppress(StreamError):
            client.close()

    def _check(self, server: Server) -> None:
        """Raise StartRefused if no session of the server may begin now."""
        if server.obj.deleted_at is not None:
            raise StartRefused(f"{server} is being deleted")
        if not server.spec.enabled:
            raise StartRefused(f"{server} is disabled; enable it (`paddock mcp enable {server.obj.name}`)")
        if missing := not_installed(server.spec):
            raise self._refused(server, "NotInstalled", missing, counted=False)
        if blind := self._servers.unavailable():
            raise self._refused(server, "DockerUnavailable", f"the engine can't be reached: {blind}", counted=False)
        failed = self._failures.get(server.key)
        if failed is not None and self._clock() < failed.not_before:
            wait = f"it failed {failed.count} times; the next start is in {failed.not_before - self._clock():.0f} s"
            message = f"{wait}: {failed.message}"
            raise self._refused(server, "CrashLoopBackOff", message, counted=False, written=failed.message)

    def _refused(
        self, server: Server, reason: str, message: str, *, counted: bool = True, written: str = "", said: str = ""
    ) -> StartRefused:
        """Report why no session began, and return the error. Only that has what the server said: it may be secret."""
        if counted:
            failed = self._failures.setdefault(server.key, _Failures())
            failed.count, failed.message = failed.count + 1, message
            more = failed.count - _FREE_FAILURES
            failed.not_before = self._clock() + min(2.0**more, _MOST_BACKOFF_SECONDS) if more > 0 else 0.0
        self._servers.report(server, Condition(READY, "False", reason, written or message))
        return StartRefused(f"{server}: {reason}: {said or message}")

    def _greet(self, session: Session, deadline: float) -> None:
        """Agree on the version: with a handshake, else that of servers without one."""
        key = session.server.key
        if key not in self._modern:
            params = {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "paddock", "version": VERSION},
            }
            try:
                self._ask(session, "initialize", params, deadline)
                session.client.notify("notifications/initialized", {})
                return
            except ServerRefused as error:
                _log.info("mcp server without handshake", server=session.server.obj.name, code=error.code)
        session.modern = True
        self._ask(session, "server/discover", {}, deadline)
        self._modern.add(key)

    def _learn(self, session: Session, deadline: float) -> None:
        """List the tools, and compare them with the approved ones. Raises StartRefused if they changed."""
        server, listed = session.server, self._listed(session, deadline)
        found = mcp_tools.digest_of(listed)
        stored = server.obj.status.get("tools", {})
        verdict = mcp_tools.pin(found, server.spec.tools.digest, str(stored.get("digest", "")))
        if verdict == "changed":
            self._servers.report(
                server, _changed(server), {"tools": {**stored, "changedDigest": found, "changedCount": len(listed)}}
            )
            raise StartRefused(f"{server}: ToolsChanged: {_changed(server).message}")
        offered = mcp_tools.offered(listed, server.spec.tools, verified=server.spec.trust == "verified")
        session.offered = self._known[server.key] = offered
        left = f"; left out: {'; '.join(offered.left_out[:5])}" if offered.left_out else ""
        status = {
            "tools": {
                "count": len(offered.tools),
                "names": sorted(offered.tools),
                "leftOut": len(offered.left_out),
                "digest": found,
            },
            "protocol": MODERN if session.modern else LEGACY,
        }
        ready = Condition(READY, "True", "Answering", f"{len(offered.tools)} tools{left}")
        if any(server.obj.status.get(each) != value for each, value in status.items()) or not _is_ready(server):
            self._servers.report(server, ready, status)

    def _listed(self, session: Session, deadline: float) -> list[mcp_tools.Tool]:
        found: list[mcp_tools.Tool] = []
        params: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = self._ask(session, "tools/list", params, deadline)
            tools = page.get("tools")
            found += [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) > _MOST_LISTED:
                break
            params = {"cursor": cursor}
        return found[:_MOST_LISTED]

    def learn_again(self, key: Key, found: "Future[Session]") -> None:
        """List the tools of a server that said that they changed. Raises StartRefused, and ends the session, if so."""
        session = found.result()
        session.client.tools_changed = False
        try:
            self._learn(session, self._clock() + session.server.spec.startup_seconds)
        except (ServerGone, ServerRefused, FutureTimeout) as error:
            self.drop(key, found)
            raise StartRefused(f"{session.server}: its tools can't be listed: {error}") from error
        except StartRefused:
            self.drop(key, found)
            raise

    def _ask(self, session: Session, method: str, params: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
        _, answer = session.client.request(method, session.params(params))
        result: Mapping[str, Any] = answer.result(max(deadline - self._clock(), 0.001))
        return result


def _changed(server: Server) -> Condition:
    name = server.obj.name
    message = f"the definitions of its tools changed; look at them, then `paddock mcp approve {name}`"
    return Condition(READY, "False", "ToolsChanged", message)


def _is_ready(server: Server) -> bool:
    ready = ready_condition(server.obj)
    return ready.get("status") == "True" and ready.get("observedGeneration") == server.obj.generation
