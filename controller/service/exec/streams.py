"""The logs and commands of a sandbox: find its current container, and open streams to it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.registry import Kind
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.agent_call import LeftExec
from controller.kinds.runtime.models import with_models
from controller.kinds.runtime.secret import Environment, NoSecret, SecretRef
from controller.policy.exec_paths import folder_refused, program_refused
from controller.ports import AdoptedExecs, AgentError, Engine, ExecStream, NotNow, Secrets, StreamError, Streams
from controller.service import errors
from controller.service.exec.activity import (
    WAIT_SECONDS,
    ActivityTracker,
    TrackedStream,
    is_behind,
    is_expected,
    state_message,
    will_start,
)
from controller.service.exec.agent_calls import AgentCalls
from controller.service.exec.exec_deadline import EscapedProcesses, ExecDeadlines
from controller.service.exec.exec_limits import ExecRules, ExecSlots
from controller.service.exec.exec_records import AttachedExecs
from controller.service.exec.secrets import secret_text
from controller.service.objects.objects import Objects

T = TypeVar("T")
_PAUSES_SECONDS = (0.05, 0.2, 0.5)  # before a command is tried again that the engine did not begin
Opener = Callable[[], Iterator[Chunk]]


class SandboxStreams:
    """Logs and exec. Both find the container, raise ServiceError if that fails, and return an opener of the stream.

    The opener may block (an engine may start to read stdin) and raise StreamError: call it off the event loop.
    """

    def __init__(
        self,
        *,
        objects: Objects,
        engine: Engine,
        streams: Streams,
        activity: ActivityTracker,
        rules: ExecRules,
        escapes: EscapedProcesses,
        adopted: AdoptedExecs,
        deadlines: ExecDeadlines,
        secrets: Secrets | None = None,
        agents: AgentCalls | None = None,
        attached: AttachedExecs | None = None,
    ) -> None:
        """`agents` run commands where they can: quicker, and else the same. `attached` records the others."""
        self._secrets, self._agents, self._attached = secrets, agents, attached
        self._objects, self._engine, self._streams, self._activity = objects, engine, streams, activity
        self._adopted, self._deadlines = adopted, deadlines
        self._exec_slots, self._escapes = ExecSlots(rules.per_sandbox), escapes
        self.rules = rules

    def logs(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> Opener:
        """Return an opener of the container's log, running or not. `since` is Unix seconds.

        A followed log keeps a sandbox from being idle, but wakes none.
        """
        container = self._container(self._objects.get(kind, namespace, name))
        read = partial(self._streams.logs, container.id, follow=follow, tail=tail, since=since, timestamps=timestamps)
        return partial(self._activity.stream, container.uid, read, wakes=False) if follow else read

    def exec(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        command: Sequence[str],
        *,
        env: Environment | None = None,
        working_dir: str = "",
        user: str = "",
        stdin: Iterable[bytes] | None = None,
        timeout_seconds: float | None = None,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        prepared: Callable[[ExecRef], None] | None = None,
        hangs_up: bool = False,
        label: str = "",
    ) -> Callable[[], TrackedStream]:
        """Run a command in the sandbox; the last chunk is `exit`. A sandbox suspended as idle is started for it.

        `env` may name secrets of the namespace; only the command gets their values. `prepared` makes the
        stream a DetachableExec: it is called with its reference just before the command starts. `size` are the rows and
        columns that a terminal (`tty`) begins with.
        `hangs_up`: closing the stream ends the command as a lost terminal does, and does not kill it.
        `label`: a command that the sandbox's agent runs outlives this daemon, and is found again by `orphans`.
        Without `timeout_seconds` the template's or the host's limit applies; 0 is none. The stream is an ExecStream.
        """
        if not command or not command[0]:
            raise errors.BadRequest("there is no command to run; write it after `--`")
        refusals = {"command[0]": program_refused(command[0]), "workingDir": folder_refused(working_dir)}
        if any(refusals.values()):
            raise errors.BadRequest("; ".join(f"{field}: {message}" for field, message in refusals.items() if message))
        obj = self.usable(kind, namespace, name)
        limit = self.time_limit(obj, timeout_seconds, tty=tty)
        variables = self.variables(obj, env or {})
        options: dict[str, Any] = {"env": variables, "working_dir": working_dir, "timeout_seconds": limit}
        whole_input = _complete_input(stdin) if not (tty or user or prepared or hangs_up) else None
        forget_record: Callable[[], None] = lambda: None  # noqa: E731
        if prepared is None and self._attached is not None and not hangs_up:
            prepared, forget_record = self._attached.recorder(obj, command, limit, tty=tty)

        def start(container: Container) -> ExecStream:
            escaped = self._escapes.handler(obj, container)
            if whole_input is not None and (
                quick := self._quick(obj, container, command, whole_input, escaped=escaped, label=label, **options)
            ):
                return quick
            engine_options: dict[str, Any] = {"user": user, "stdin": stdin, "tty": tty, "escaped": escaped}
            engine_options |= ({"prepared": prepared} if prepared else {}) | ({"size": size} if tty and size else {})
            engine_options |= {"hangs_up": True} if hangs_up else {}
            return self._streams.exec(container.id, command, **options, **engine_options)

        def open_() -> TrackedStream:
            container, release = self.occupy(kind, obj, min(limit or WAIT_SECONDS, WAIT_SECONDS))
            with ExitStack() as lease:
                lease.callback(release)
                lease.callback(forget_record)
                return TrackedStream(start(container), lease.pop_all().close)

        return partial(self._insist, open_, kind, obj)

    def _insist(self, open_: Callable[[], TrackedStream], kind: Kind, obj: StoredObject) -> TrackedStream:
        """Open it; for a sandbox that is said to run, again for a moment, if the engine has not begun it."""
        pauses, until = iter(_PAUSES_SECONDS), time.monotonic() + sum(_PAUSES_SECONDS)
        while True:
            try:
                return open_()
            except NotNow:
                seconds = next(pauses, None)
                late = seconds is None or time.monotonic() > until
                if late or not is_behind(self._objects.get(kind, obj.namespace, obj.name)):
                    raise
                time.sleep(seconds or 0.0)

    def _quick(
        self, obj: StoredObject, container: Container, command: Sequence[str], stdin: Sequence[bytes], **options: Any
    ) -> ExecStream | None:
        """Run a command by the sandbox's agent; None: by the engine, then. Raises StreamError."""
        if self._agents is None:
            return None
        try:
            return self._agents.exec(obj, container, command, stdin=stdin, **options)
        except AgentError as error:
            raise StreamError(str(error)) from error

    def orphans(self, kind: Kind, namespace: str, name: str) -> Sequence[LeftExec]:
        """Return the commands with a label that an earlier daemon left; none of a sandbox that does not run.

        Raises ServiceError.
        """
        container = self.awake(kind, namespace, name)
        if self._agents is None or container is None or container.state is not State.RUNNING:
            return ()
        try:
            return self._agents.orphans(self._objects.get(kind, namespace, name), container)
        except AgentError as error:
            raise errors.ServiceUnavailable(str(error), retry_after_seconds=errors.SOON) from error

    def join(self, kind: Kind, namespace: str, name: str, id_: str) -> TrackedStream:
        """Return the stream of one of them. May block. Raises ServiceError; StreamError."""
        obj = self.usable(kind, namespace, name)
        container, release = self.occupy(kind, obj, WAIT_SECONDS)
        with ExitStack() as lease:
            lease.callback(release)
            try:
                stream = self._agents.join(obj, container, id_) if self._agents is not None else None
            except AgentError as error:
                raise StreamError(str(error)) from error
            if stream is None:
                raise StreamError("there is no agent here")
            return TrackedStream(stream, lease.pop_all().close)

    def object(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Return the sandbox's object, whatever its state. Raises NotFound."""
        return self._objects.get(kind, namespace, name)

    def usable(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Return the sandbox, if a command may be started in it. Raises ServiceError."""
        self._activity.await_first_look()
        obj = self._objects.get(kind, namespace, name)
        if not will_start(obj):
            container = self._container(obj)
            if container.state is not State.RUNNING and not is_behind(obj):
                raise self.refusal(obj, f"{_subject(obj)} is not running ({container.state}){state_message(obj)}")
        else:
            self.observed_container(obj)
        self._exec_slots.check(obj.uid, _subject(obj))
        return obj

    def occupy(
        self, kind: Kind, obj: StoredObject, wait_seconds: float, *, fresh: bool = False
    ) -> tuple[Container, Callable[[], None]]:
        """Return its running container, in use and with a slot of its commands until the second result is called.

        `fresh`: the object was read just now. Blocks while a sandbox suspended as idle starts. Raises StreamError.
        """
        with ExitStack() as lease:
            lease.callback(self._activity.begin(obj.uid))
            lease.callback(self._exec_slots.take(obj.uid, _subject(obj)))
            container = self._container_of(obj) if fresh else None
            if container is None or not self._activity.may_use(obj, container):
                container = self._activity.running(partial(self._current, kind, obj), wait_seconds)
            self._activity.mark_used(obj, container)
            return container, lease.pop_all().close

    def environment(self, namespace: str, env: Environment) -> Mapping[str, str]:
        """Return the variables with the values of their secrets. Raises BadRequest for an unusable secret."""
        values_by_name: dict[str, str] = {}
        for variable, value in env.items():
            try:
                values_by_name[variable] = (
                    secret_text(self._secrets, namespace, value) if isinstance(value, SecretRef) else value
                )
            except NoSecret as error:
                raise errors.BadRequest(f"{variable}: {error}") from error
        return values_by_name

    def variables(self, obj: StoredObject, env: Environment) -> Mapping[str, str]:
        """Return a command's variables; in a sandbox with models also those of the gateway, unless it has its own."""
        sent = self.environment(obj.namespace, env)
        if not obj.spec.get("models"):
            return sent
        own_variables = {str(variable["name"]): "" for variable in self._deadlines.template(obj).get("env", ())}
        return {
            name: value
            for name, value in with_models({**own_variables, **sent}).items()
            if name in sent or name not in own_variables
        }

    def time_limit(self, obj: StoredObject, requested: float | None, *, tty: bool) -> float | None:
        """Return the time limit of a command in this sandbox, in seconds; None: no limit. Raises BadRequest."""
        return self._deadlines.limit(obj, requested, tty=tty)

    def follow(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        ref: ExecRef,
        timeout_seconds: float | None,
        *,
        starts: bool = False,
    ) -> TrackedStream:
        """Return the stream of a command that an earlier daemon started (see ports.AdoptedExecs). Wakes no sandbox."""
        obj = self._objects.get(kind, namespace, name)

        def escaped(processes: str) -> None:
            self._escapes.handler(obj, self._container(obj))(processes)

        def open_() -> Iterator[Chunk]:
            chunks = self._adopted.follow(ref, timeout_seconds=timeout_seconds, escaped=escaped, starts=starts)
            return TrackedStream(chunks, self._exec_slots.hold(obj.uid))

        return self._activity.stream(obj.uid, open_, wakes=False)

    def enter(
        self, kind: Kind, namespace: str, name: str, do: Callable[[Container], T], *, frozen: bool = False
    ) -> tuple[T, Callable[[], None]]:
        """Call `do` with the running container; it is in use until the second result is called. Wakes an idle sandbox.

        `frozen`: a paused sandbox is accepted. May block while a sandbox starts. Raises ServiceError.
        """
        obj = self._objects.get(kind, namespace, name)
        states = (State.RUNNING, State.PAUSED) if frozen else (State.RUNNING,)
        if not will_start(obj):
            container = self._container(obj)
            if container.state not in states and not is_behind(obj):
                raise self.refusal(obj, f"{_subject(obj)} is not running ({container.state}){state_message(obj)}")
        end_use = self._activity.begin(obj.uid)
        try:
            current = self._container_of(obj)
            if not frozen or current is None or current.state is not State.PAUSED:
                current = self._activity.running(partial(self._current, kind, obj), WAIT_SECONDS)
            self._activity.mark_used(obj, current)
            return do(current), end_use
        except StreamError as error:
            end_use()
            still = self._container_of(obj)
            if isinstance(error, NotNow) or still is None or still.state not in states:
                raise self.refusal(obj, str(error)) from error
            raise errors.Conflict(str(error)) from error
        except BaseException:
            end_use()
            raise

    def awake(self, kind: Kind, namespace: str, name: str) -> Container | None:
        """Return the container if it runs now; None otherwise. Wakes no sandbox, and is no use. Raises ServiceError."""
        self._activity.await_first_look()
        container = self._container_of(self._objects.get(kind, namespace, name))
        return container if container is not None and container.state in (State.RUNNING, State.PAUSED) else None

    def refusal(self, obj: StoredObject, message: str) -> errors.ServiceError:
        """Return the error for a sandbox that can't be used now: unavailable where asking again may help."""
        if is_expected(obj, self._container_of(obj)) or self._engine.observe().blind:
            return errors.ServiceUnavailable(message, retry_after_seconds=errors.SOON)
        return errors.Conflict(message)

    def observed_container(self, obj: StoredObject) -> Container | None:
        """Return the sandbox's current container, running or not. Raises ServiceUnavailable if that is unknown."""
        container = self._container_of(obj)
        if container is None and self._engine.observe().blind:
            return self._container(obj)
        return container

    def _container(self, obj: StoredObject) -> Container:
        """Return the sandbox's current container. Raises ServiceUnavailable or Conflict if there is none."""
        container = self._container_of(obj)
        if container is not None:
            return container
        blind = self._engine.observe().blind
        if blind:
            message = f"the engine can't be asked for the container of {_subject(obj)}: {blind}"
            raise errors.ServiceUnavailable(message, retry_after_seconds=errors.SOON)
        raise self.refusal(obj, f"{_subject(obj)} has no container{state_message(obj)}")

    def _container_of(self, obj: StoredObject) -> Container | None:
        """Return the container of the derived name, or of the status.

        Others may have its labels: `docker commit` copies them to an image, and so to its containers.
        """
        recorded_id = str(obj.status.get("instanceRef", {}).get("containerID", ""))
        derived = container_name(obj.name, obj.uid)
        candidates = self._engine.observe().containers.get(obj.uid, ())
        own_containers = [
            container for container in candidates if container.name == derived or container.id == recorded_id
        ]
        return max(
            own_containers, key=lambda container: (container.state is State.RUNNING, container.created_at), default=None
        )

    def _current(self, kind: Kind, before: StoredObject) -> tuple[StoredObject, Container | None]:
        """Return the current object and its container. Raises Conflict if the object was recreated."""
        now = self._objects.get(kind, before.namespace, before.name)
        if now.uid != before.uid:
            raise errors.Conflict(f"{_subject(before)} was deleted and recreated meanwhile; try again")
        return now, self._container_of(now)


def _complete_input(stdin: Iterable[bytes] | None) -> Sequence[bytes] | None:
    """Return the input if all of it is known already; None: it will stream."""
    if stdin is None:
        return ()
    return stdin if isinstance(stdin, tuple | list) else None


def _subject(obj: StoredObject) -> str:
    return f"{obj.kind.lower()} `{obj.name}`"
