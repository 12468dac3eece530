"""Sessions of other people's servers: one sandbox for each server, caller and connection. Any thread may call this."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from controller.kinds.mcpserver import READY, SANDBOXED, STATES, TRUST_LEVELS, is_sandboxed, ready_condition, state_word
from controller.kinds.meta import Condition, StoredObject
from controller.mcp.servers.notices import TOOLS_CHANGED, UPDATED, Notice, Notices, Params, Place
from controller.mcp.servers.session import HANDSHAKES, LEGACY, MODERN, Session
from controller.mcp.servers.stdio import ServerGone, ServerRefused, StdioClient
from controller.policy import foreign_tools
from controller.policy.foreign_tools import Offered
from controller.ports import Meter, StreamError
from controller.processes.keeper import Periodic
from controller.service import errors
from controller.service.mcp.server import Server
from controller.service.mcp.servers import McpServers
from controller.version import VERSION

_SWEEP_SECONDS = 1.0
_MOST_OF_CALLER = 64
_MOST_PAGES = 20
_MOST_LISTED = 1000
_EARLY_SECONDS = 5.0  # after its start, a server's death counts as a failed start
_FREE_FAILURES = 2  # of starts, before each further one waits
_MOST_BACKOFF_SECONDS = 60.0
_BLIND_SWEEPS = 3  # in a row without the engine, before servers are said to be unavailable
_POOL_SECONDS, _POOL_RETRY_SECONDS = 60.0, 10.0  # between two checks of a server's pool
_STOP_SECONDS = 5.0  # for the sandboxes of all sessions to go when the daemon stops
_STOP_POLL_SECONDS = 0.05
_log = structlog.get_logger("paddock.mcp")
Key = tuple[str, int, str, str]


class StartRefused(errors.ServiceUnavailable):
    """No session can begin now."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    not_before: float = 0.0
    message: str = ""


class Sessions:
    """Every session of this daemon. `start` removes what an earlier daemon left, and ends idle ones from then on."""

    def __init__(self, servers: McpServers, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers, self._meter, self._clock = servers, meter, clock
        self._lock = threading.Lock()
        self._pinning = threading.Lock()
        self._sessions: dict[Key, Future[Session]] = {}
        self._known: dict[tuple[str, int], Offered] = {}  # of servers that ran
        self._protocols: dict[tuple[str, int], str] = {}  # versions that servers were found to speak
        # Failed starts of a server; and early deaths by its caller, for his calls may be their cause.
        self._failures: dict[tuple[str, int, str], _Failures] = {}
        self._capabilities: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._sweeper = Periodic(
            "mcp sweep", "paddock.mcp", _SWEEP_SECONDS, self.sweep, postponing=(errors.ServiceError,)
        )
        self._closing = False
        self._unsandboxed: Counter[str] = Counter()  # by the uid of the server
        self._pools: dict[str, tuple[int, float]] = {}  # by that uid: generation, and time of the next check
        self._blind_sweeps = 0
        self._offering: Mapping[str, frozenset[tuple[str, int]]] | None = None
        self._levels: dict[Place, str] = {}
        self._missed: set[tuple[str, int]] = set()  # servers that a list did not wait for
        self._held: dict[tuple[str, Place], set[str]] = {}  # URIs that connections follow, by the uid of the server
        self.notices = Notices()

    def start(self) -> None:
        """Delete the sandboxes of an earlier daemon's sessions, and start to end idle sessions. Raises ServiceError."""
        if removed_count := self._servers.remove_sessions():
            _log.info("mcp sessions of an earlier daemon removed", count=removed_count)
        self._sweeper.start()

    def close(self, seconds: float = _STOP_SECONDS) -> None:
        """End every session, and wait so many seconds until the sandboxes are gone: the loop must still run."""
        self._sweeper.stop()
        with self._lock:
            self._closing = True
            sessions = list(self._sessions.values())
        self.notices.close()
        deadline = time.monotonic() + seconds
        self._end(lambda _key: True)
        wait_for(sessions, seconds)
        sandboxes = [session.result().sandbox for session in sessions if session.done() and session.exception() is None]
        try:
            while sandboxes and time.monotonic() < deadline and self._servers.sessions_left(sandboxes):
                time.sleep(_STOP_POLL_SECONDS)
        except errors.ServiceError as error:  # the next daemon removes them
            _log.warning("mcp sandboxes not awaited", error=str(error))

    def count(self) -> int:
        """Return the number of sessions, starting ones too."""
        return len(self._sessions)

    def tools(self, server: Server, place: Place) -> Offered | None:
        """Return the server's tools without starting it; None: they are not known, or may not be used, now."""
        if not server.spec.enabled or self._servers.unavailable():
            return None
        session = self.running_session(server, place)
        return None if session is not None and session.client.tools_changed else self._known.get(server.key)

    def miss(self, server: Server) -> None:
        """Note that a list was given without the server: once it is there, listeners are told to list again."""
        self._missed.add(server.key)

    def is_missing(self, server: Server, capability: str) -> bool:
        """Return True if the server is known not to do this."""
        capabilities = self._capabilities.get(server.key)
        return capabilities is not None and not isinstance(capabilities.get(capability), Mapping)

    def running_session(self, server: Server, place: Place) -> Session | None:
        """Return the running session of a connection."""
        session = self._sessions.get((*server.key, *place))
        is_running = session is not None and session.done() and not session.cancelled() and session.exception() is None
        return session.result() if session is not None and is_running else None

    def of_place(self, place: Place) -> Sequence[Session]:
        """Return the running sessions of a connection."""
        return [session for session in self._running_sessions() if session.place == place]

    def _running_sessions(self) -> Sequence[Session]:
        with self._lock:
            futures = list(self._sessions.values())
        return [future.result() for future in futures if future.done() and future.exception() is None]

    def set_level(self, place: Place, level: str) -> None:
        """Set the least level of log messages for the sessions of a connection, present and to come."""
        self._levels[place] = level
        for session in self.of_place(place):
            with suppress(ServerGone):
                session.set_level(level)

    @contextmanager
    def unsandboxed(self, server: Server) -> Iterator[None]:
        """Show, within the block, that a session of the server runs without a sandbox, as a user's own process."""
        try:
            self._note_unsandboxed(server, 1)
            yield
        finally:
            self._note_unsandboxed(server, -1)

    def _note_unsandboxed(self, server: Server, change: int) -> None:
        with self._lock:
            self._unsandboxed[server.obj.uid] += change
            count = self._unsandboxed[server.obj.uid]
            self._unsandboxed += Counter()  # drops what is zero
        self._servers.report(server, _unsandboxed_condition(count) if count else _ALL_SANDBOXED)

    def claim(self, server: Server, caller: str, connection: str) -> tuple[Key, "Future[Session]", bool]:
        """Return the caller's session of this connection, to come, and whether the caller must `open` it.

        Never blocks. Raises TooManyRequests.
        """
        key = (*server.key, caller, connection)
        with self._lock:
            future = self._sessions.get(key)
            if future is not None:
                return key, future, False
            if self._closing:
                raise StartRefused("the daemon stops; try again once it runs")
            if sum(session_key[2] == caller for session_key in self._sessions) >= _MOST_OF_CALLER:
                message = f"you have {_MOST_OF_CALLER} sessions with MCP servers; close some clients first"
                raise errors.TooManyRequests(message)
            future = self._sessions[key] = Future()
            return key, future, True

    def open(self, key: Key, server: Server, future: "Future[Session]") -> None:
        """Start the claimed session. Blocks; its errors are those of the future."""
        try:
            session = self._start_session(server, key[2:])
            session.began_at = session.used_at = self._clock()
        except BaseException as error:
            self._fail(key, future, error)
            return
        future.set_result(session)

    def abandon(self, key: Key, future: "Future[Session]") -> None:
        """Give up a claimed session that nobody opens."""
        self._fail(key, future, StartRefused("the daemon stops; try again once it runs"))

    def use(self, session: Session) -> None:
        """Note that the session is in use: it is not idle."""
        session.used_at = self._clock()

    def end(self, caller: str, connection: str, server_uid: str = "") -> None:
        """End the sessions of a connection that is gone."""
        self._levels.pop((caller, connection), None)
        for held_key in [held_key for held_key in list(self._held) if held_key[1] == (caller, connection)]:
            self._held.pop(held_key, None)
        self._end(lambda key: key[2:] == (caller, connection) and server_uid in ("", key[0]))

    def sweep(self) -> None:
        """End sessions that are idle, dead, or whose server was changed, disabled or deleted."""
        servers = self._servers.managed_servers()
        current = {server.key: server for server in servers}
        now = self._clock()

        def is_over(key: Key) -> bool:
            server, future = current.get(key[:2]), self._sessions.get(key)
            if server is None or not server.spec.enabled:
                return True
            if future is None or not future.done() or future.exception() is not None:
                return False
            session = future.result()
            in_use = session.client.is_busy or (session.is_followed and self.notices.is_heard(session.place))
            idle = not in_use and now - session.used_at >= server.spec.idle_seconds
            return idle or session.client.is_gone

        self._end(is_over)
        several: Any = (self._known, self._failures, self._capabilities, self._protocols)
        for cache in several:
            for key in [key for key in cache if key[:2] not in current]:
                cache.pop(key, None)
        self._update_states(servers)
        self._keep_pools(servers)
        self._keep_followed(servers)

    def _update_states(self, servers: Sequence[Server]) -> None:
        """Report servers that are disabled or without the engine, tell listeners, and count servers by state."""
        blind = self._servers.unavailable()
        self._blind_sweeps = self._blind_sweeps + 1 if blind else 0
        if self._blind_sweeps == _BLIND_SWEEPS and servers:
            _log.warning("mcp servers without the engine", servers=len(servers), error=blind)
        for server in servers:
            condition = self._state_now(server, blind)
            if condition is not None:
                self._servers.report(server, condition, quiet=True)
            # Its status says otherwise: sessions of an earlier daemon, which reported no end.
            if not is_sandboxed(server.obj) and not self._unsandboxed[server.obj.uid]:
                self._servers.report(server, _ALL_SANDBOXED)
        self._report(servers, is_blind=self._blind_sweeps >= _BLIND_SWEEPS)
        self._meter.gauge("paddock_mcp_sessions", self.count(), sandboxed="true")
        self._meter.gauge("paddock_mcp_sessions", self._unsandboxed.total(), sandboxed="false")
        counts = Counter((server.spec.trust, state_word(server.obj)) for server in servers)
        for trust in TRUST_LEVELS:
            for state in STATES:
                self._meter.gauge("paddock_mcp_servers", counts[trust, state], trust=trust, state=state)

    def _state_now(self, server: Server, blind: str) -> Condition | None:
        """Return the condition Ready of a server that nobody starts now; None: it stays as it is."""
        reason = ready_condition(server.obj).get("reason", "")
        if not server.spec.enabled:
            text = f"enable it: `paddock mcp enable {server.obj.name}`"
            return None if reason == "Disabled" else Condition(READY, "False", "Disabled", text)
        if self._blind_sweeps >= _BLIND_SWEEPS:
            text = f"the engine can't be reached: {blind}"
            return None if reason == "DockerUnavailable" else Condition(READY, "False", "DockerUnavailable", text)
        if reason in ("DockerUnavailable", "Disabled") and not blind:
            if any(
                session.server.key == server.key and not session.client.is_gone for session in self._running_sessions()
            ):
                return Condition(READY, "True", "Answering", "its sessions ran on")
            return Condition(READY, "Unknown", "Unused", "its next call starts it")
        return None

    def _report(self, servers: Sequence[Server], *, is_blind: bool) -> None:
        """Tell listeners of a namespace that its servers, and so its tools, are others now."""
        offering: dict[str, set[tuple[str, int]]] = {}
        for server in servers:
            if server.spec.enabled and not is_blind:
                offering.setdefault(server.obj.namespace, set()).add(server.key)
        now = {name: frozenset(keys) for name, keys in offering.items()}
        before, self._offering = self._offering, now
        for namespace in before.keys() | now.keys() if before is not None else ():
            if before is not None and before.get(namespace) != now.get(namespace):
                self.notices.publish_to_all(Notice(namespace, None, TOOLS_CHANGED))

    def _keep_pools(self, servers: Sequence[Server]) -> None:
        """Make the pools of warm sandboxes as the specs ask: after a change, and once a minute."""
        now = self._clock()
        for server in servers:
            generation, due = self._pools.get(server.obj.uid, (0, 0.0))
            if generation == server.obj.generation and now < due:
                continue
            wait = _POOL_SECONDS if server.spec.warm_replicas else math.inf
            try:
                self._servers.keep_pool(server)
            except errors.ServiceError as error:  # a template is in use until its last session has ended
                _log.info("mcp pool not kept", object=str(server.obj.ref), error=str(error))
                wait = _POOL_RETRY_SECONDS
            self._pools[server.obj.uid] = server.obj.generation, now + wait
        uids = {server.obj.uid for server in servers}
        for uid in [pool_uid for pool_uid in self._pools if pool_uid not in uids]:
            del self._pools[uid]

    def _keep_followed(self, servers: Sequence[Server]) -> None:
        """Begin sessions again that ended, while a connection follows resources of theirs and hears of them."""
        current = {server.obj.uid: server for server in servers if server.spec.enabled}
        for (uid, place), uris in list(self._held.items()):
            server = current.get(uid)
            if not uris and not any(key[0] == uid and key[2:] == place for key in list(self._sessions)):
                self._held.pop((uid, place), None)
            if not uris or server is None or not self.notices.is_heard(place) or self._may_not_start(server, place[0]):
                continue
            with suppress(errors.ServiceError):
                key, future, is_new = self.claim(server, *place)
                if is_new:
                    threading.Thread(
                        target=self.open, args=(key, server, future), name="mcp follow", daemon=True
                    ).start()

    def _may_not_start(self, server: Server, caller: str) -> bool:
        return bool(self._servers.unavailable()) or self._waiting(server, caller) is not None

    def _waiting(self, server: Server, caller: str) -> _Failures | None:
        """Return the failures after which the next start must wait; None: it need not."""
        failures = [self._failures.get((*server.key, subject)) for subject in ("", caller)]
        return next(
            (failure for failure in failures if failure is not None and self._clock() < failure.not_before), None
        )

    def let_go(self, server: Server, place: Place, uri: str) -> None:
        """Have a connection follow a resource no more, nor in a session to come."""
        followed_uris = self._held.get((server.obj.uid, place), set())
        if uri in followed_uris:
            followed_uris.discard(uri)
            if session := self.running_session(server, place):
                session.unfollow(uri)

    def _follow_again(self, session: Session) -> None:
        """Follow what the connection followed in its last session; it is to read that again. Raises ServerGone."""
        session.subscribed_uris = self._held.setdefault(
            (session.server.obj.uid, session.place), session.subscribed_uris
        )
        for uri in sorted(session.subscribed_uris):
            session.follow(uri)
            self._take_notice(session.server, session.place, UPDATED, {"uri": uri})

    def _take_notice(self, server: Server, place: Place, method: str, params: Params) -> None:
        self.notices.publish(place, Notice(server.obj.namespace, server, method, params))

    def _end(self, is_over: Callable[[Key], bool]) -> None:
        with self._lock:
            ending = [(key, future) for key, future in self._sessions.items() if is_over(key)]
        for key, future in ending:
            future.add_done_callback(partial(self.drop, key))  # at once, unless it is still starting

    def drop(self, key: Key, future: "Future[Session]") -> None:
        """End the session, and count its death as a failed start if it came soon after that. Blocks."""
        with self._lock:
            if self._sessions.get(key) is not future:
                return
            del self._sessions[key]
        if future.exception() is None:
            self._settle(future.result())
            self._remove(future.result())

    def _settle(self, session: Session) -> None:
        """Count an early death of a session that ends; forget earlier failures if there was none."""
        early = session.client.is_gone and self._clock() - session.began_at < _EARLY_SECONDS
        if early:
            why = f"{session.client.why}, within {_EARLY_SECONDS:.0f} s of its start"
            self._start_refusal(session.server, "StartFailed", why, caller=session.place[0])
        else:
            for caller in ("", session.place[0]):
                self._failures.pop((*session.server.key, caller), None)

    def _remove(self, session: Session) -> None:
        with suppress(StreamError):
            session.client.close()
        self._remove_sandbox(session.sandbox)

    def _remove_sandbox(self, sandbox: StoredObject) -> None:
        try:
            self._servers.remove_sandbox(sandbox)
        except errors.ServiceError as error:  # its idle timeout deletes it
            _log.warning("mcp sandbox not removed", object=str(sandbox.ref), error=str(error))

    def _fail(self, key: Key, future: "Future[Session]", error: BaseException) -> None:
        with self._lock:
            self._sessions.pop(key, None)
        future.set_exception(error)

    def _start_session(self, server: Server, place: Place) -> Session:
        self._check(server, place[0])
        server = self._servers.await_install(server)
        deadline = self._clock() + server.spec.startup_seconds
        try:
            sandbox = self._servers.create_sandbox(server)
        except errors.Invalid as error:
            raise self._start_refusal(server, "StartFailed", str(error)) from error
        try:
            return self._talking(server, sandbox, place, deadline)
        except BaseException:
            self._remove_sandbox(sandbox)
            raise

    def _talking(self, server: Server, sandbox: StoredObject, place: Place, deadline: float) -> Session:
        """Return the session in this sandbox. A program that refuses a version and ends is started for the next one."""
        versions, refusals = [self._protocols.get(server.key, LEGACY)], list[ServerRefused]()
        while True:
            session = self._connect(server, sandbox, place)
            try:
                self._greet(session, deadline, versions, refusals)
                self._learn(session, deadline)
                if session.modern:
                    session.listen()
                if level := self._levels.get(place):
                    session.set_level(level)
                self._follow_again(session)
            except (ServerGone, ServerRefused, FutureTimeout) as error:
                self._close(session.client)
                if isinstance(error, ServerGone) and versions:
                    continue
                if isinstance(error, FutureTimeout):
                    silent = f"it did not answer within {server.spec.startup_seconds} s (startupSeconds)"
                    error = ServerGone(silent, session.client.last_lines())
                raise self._start_refusal(server, "StartFailed", error.why, answer_message=str(error)) from error
            except BaseException:
                self._close(session.client)
                raise
            return session

    def _connect(self, server: Server, sandbox: StoredObject, place: Place) -> Session:
        """Start the server's program in the sandbox. Raises StartRefused."""
        try:
            hidden = self._servers.secret_values(server)
            start, noticed = partial(self._servers.start, server, sandbox), partial(self._take_notice, server, place)
            client = StdioClient(start, sandbox.name, hidden, noticed)
        except (StreamError, errors.ServiceError) as error:
            reason = "QuotaExceeded" if self._servers.is_waiting_for_quota(sandbox) else "StartFailed"
            raise self._start_refusal(server, reason, str(error)) from error
        return Session(server, sandbox, client, place)

    def _close(self, client: StdioClient) -> None:
        with suppress(StreamError):
            client.close()

    def _check(self, server: Server, caller: str) -> None:
        """Raise StartRefused if no session of the server may begin now."""
        if server.obj.deleted_at is not None:
            raise StartRefused(f"{server} is being deleted")
        if not server.spec.enabled:
            raise StartRefused(f"{server} is disabled; enable it (`paddock mcp enable {server.obj.name}`)")
        if not server.spec.tools.digest and self._servers.stored(server).status.get("tools", {}).get("changedDigest"):
            raise StartRefused(f"{server}: ToolsChanged: {_changed_condition(server).message}")
        if blind := self._servers.unavailable():
            raise self._start_refusal(
                server, "DockerUnavailable", f"the engine can't be reached: {blind}", counted=False
            )
        failed = self._waiting(server, caller)
        if failed is not None:
            wait = f"it failed {failed.count} times; the next start is in {failed.not_before - self._clock():.0f} s"
            message = f"{wait}: {failed.message}"
            raise self._start_refusal(server, "CrashLoopBackOff", message, counted=False, stored_message=failed.message)

    def _start_refusal(
        self,
        server: Server,
        reason: str,
        message: str,
        *,
        counted: bool = True,
        caller: str = "",
        stored_message: str = "",
        answer_message: str = "",
    ) -> StartRefused:
        """Report why no session began, and return the error. Only that has what the server said: it may be secret.

        It counts for all callers, or for one.
        """
        if counted:
            failed = self._failures.setdefault((*server.key, caller), _Failures())
            failed.count, failed.message = failed.count + 1, message
            excess = failed.count - _FREE_FAILURES
            failed.not_before = self._clock() + min(2.0**excess, _MOST_BACKOFF_SECONDS) if excess > 0 else 0.0
        self._servers.report(server, Condition(READY, "False", reason, stored_message or message))
        return StartRefused(f"{server}: {reason}: {answer_message or message}")

    def _greet(self, session: Session, deadline: float, versions: list[str], refusals: list[ServerRefused]) -> None:
        """Agree on the version: with a handshake, else that of servers without one, else with an older handshake.

        `versions` are those to try. They are left for another start of a program that ended after a refusal; else none
        are. `refusals` are those of all starts.
        """
        refused_before = len(refusals)
        while versions:
            version = versions.pop(0)
            try:
                self._begin(session, version, deadline)
            except ServerGone:
                versions[:] = [version, *versions] if len(refusals) > refused_before else []
                raise
            except ServerRefused as error:
                _log.info("mcp version refused", server=session.server.obj.name, version=version, code=error.code)
                if not refusals:
                    versions += _versions_after(version, error)
                refusals.append(error)
                continue
            self._protocols[session.server.key] = session.protocol
            versions.clear()
            return
        raise refusals[0]

    def _begin(self, session: Session, version: str, deadline: float) -> None:
        """Begin the session with this version. Raises ServerRefused."""
        session.protocol = version
        if version == MODERN:
            session.capabilities = _capabilities(self._ask(session, "server/discover", {}, deadline))
            return
        client = {"name": "paddock", "version": VERSION}
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        answer = self._ask(session, "initialize", params, deadline)
        session.capabilities = _capabilities(answer)
        if answer.get("protocolVersion") in HANDSHAKES:
            session.protocol = str(answer["protocolVersion"])
        session.client.notify("notifications/initialized", {})

    def _learn(self, session: Session, deadline: float) -> None:
        """List the tools, and compare them with the approved ones. Raises StartRefused if they changed."""
        server = session.server
        listed = [] if session.capabilities and not session.has("tools") else self._list_tools(session, deadline)
        self._capabilities[server.key] = session.capabilities
        # Before the lock. A daemon that serves no MCP does without Paddock's own tools.
        from controller.mcp.tools.registry import NAMES

        with self._pinning:
            now = self._servers.stored(server)  # another session may have pinned them since this one began
            pinned = now.status.get("tools", {})
            digests = [str(pinned.get(key, "")) for key in ("digest", "changedDigest")]
            if foreign_tools.pin(foreign_tools.digest_of(listed), server.spec.tools.digest, *digests) != "changed":
                self._accept(session, now, listed, NAMES)
                return
            self._known.pop(server.key, None)
            self._servers.report(server, _changed_condition(server), {"tools": _with_changes(session, pinned, listed)})
        if not server.spec.tools.digest:
            self._end(lambda key: key[:2] == server.key)
        raise StartRefused(f"{server}: ToolsChanged: {_changed_condition(server).message}")

    def _accept(
        self, session: Session, now: StoredObject, listed: Sequence[foreign_tools.Tool], paddocks: Container[str]
    ) -> None:
        """Offer the tools, and pin them. `now` is the stored server, `paddocks` are the names of our own tools."""
        server = session.server
        is_verified = server.spec.trust == "verified"
        offered = foreign_tools.offered(listed, server.spec.tools, verified=is_verified, paddocks=paddocks)
        session.offered = self._known[server.key] = offered
        remark = f"; left out: {offered.left_out_text()}" if offered.left_out else ""
        status = {
            "tools": {
                "count": len(offered.tools),
                "names": sorted(offered.tools),
                "leftOut": len(offered.left_out),
                "digest": foreign_tools.digest_of(listed),
                "marks": foreign_tools.marks(listed),
            },
            "protocol": session.protocol,
        }
        ready = Condition(READY, "True", "Answering", f"{len(offered.tools)} tools{remark}")
        if any(now.status.get(key) != value for key, value in status.items()) or not _is_ready(now, server):
            self._servers.report(server, ready, status)
        if server.key in self._missed:
            self._missed.discard(server.key)
            self.notices.publish_to_all(Notice(server.obj.namespace, None, TOOLS_CHANGED))

    def _list_tools(self, session: Session, deadline: float) -> list[foreign_tools.Tool]:
        collected: list[foreign_tools.Tool] = []
        params: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = self._ask(session, "tools/list", params, deadline)
            tools = page.get("tools")
            collected += [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(collected) > _MOST_LISTED:
                break
            params = {"cursor": cursor}
        return collected[:_MOST_LISTED]

    def learn_again(self, key: Key, future: "Future[Session]") -> None:
        """List the tools of a server that said that they changed. Raises StartRefused, and ends the session, if so."""
        session = future.result()
        session.client.tools_changed = False
        try:
            self._learn(session, self._clock() + session.server.spec.startup_seconds)
        except (ServerGone, ServerRefused, FutureTimeout) as error:
            self.drop(key, future)
            raise StartRefused(f"{session.server}: its tools can't be listed: {error}") from error
        except StartRefused:
            self.drop(key, future)
            raise

    def _ask(self, session: Session, method: str, params: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
        _, answer = session.client.request(method, session.params(params))
        result: Mapping[str, Any] = answer.result(max(deadline - self._clock(), 0.001))
        return result


_ALL_SANDBOXED = Condition(SANDBOXED, "True", "Sandboxed", "every session runs in a sandbox")


def _unsandboxed_condition(count: int) -> Condition:
    message = f"sessions without a sandbox, as their users' own processes: {count}"
    return Condition(SANDBOXED, "False", "Unsandboxed", message)


def _versions_after(refused_version: str, error: ServerRefused) -> list[str]:
    """Return the versions to try after the first refusal: those that the server names, if it does, else all others."""
    versions = [version for version in (LEGACY, MODERN, *HANDSHAKES[1:]) if version != refused_version]
    return [version for version in versions if version in error.versions] or versions


def _capabilities(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    capabilities = answer.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


def _changed_condition(server: Server) -> Condition:
    name = server.obj.name
    look = f"look at them (`paddock why mcpserver/{name}`), then `paddock mcp approve {name}`"
    return Condition(READY, "False", "ToolsChanged", f"the definitions of its tools changed; {look}")


def _with_changes(session: Session, pinned: Mapping[str, Any], listed: Sequence[foreign_tools.Tool]) -> dict[str, Any]:
    """Return what is known of the pinned tools, with the change: the last one, unless the pinned ones are back."""
    digest = foreign_tools.digest_of(listed)
    if digest == pinned.get("digest") and pinned.get("changedDigest"):
        return dict(pinned)
    changes = [
        {key: session.client.redacted(text) for key, text in change.items()}
        for change in foreign_tools.changes(pinned.get("marks"), listed)
    ]
    return {**pinned, "changedDigest": digest, "changedCount": len(listed), "changes": changes}


def _is_ready(now: StoredObject, server: Server) -> bool:
    ready = ready_condition(now)
    return ready.get("status") == "True" and ready.get("observedGeneration") == server.obj.generation
