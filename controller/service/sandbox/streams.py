"""Into a box: which container a sandbox's name means now, and its logs and commands."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed.observed import Container, State
from controller.kinds.registry import Kind
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.secret import Environment, NoSecret, SecretRef
from controller.policy.exec_paths import folder_refused, program_refused
from controller.ports import Engine, LeftExecs, Secrets, StreamError, Streams
from controller.service import errors
from controller.service.objects.objects import Objects
from controller.service.sandbox.activity import WAIT_SECONDS, Used, UsedStream, is_coming, words
from controller.service.sandbox.escaped_processes import Escapes
from controller.service.sandbox.exec_deadline import ExecDeadlines
from controller.service.sandbox.exec_limits import ExecRules, Places
from controller.service.sandbox.secrets import revealed

T = TypeVar("T")
Opener = Callable[[], Iterator[Chunk]]


class IntoBox:
    """Logs and exec. Both find the container and raise what speaks against it; what they give opens the stream.

    Opening may block (an engine may begin to take stdin) and raise StreamError: call it where that does no harm.
    """

    def __init__(
        self,
        *,
        objects: Objects,
        engine: Engine,
        streams: Streams,
        used: Used,
        rules: ExecRules,
        escapes: Escapes,
        left: LeftExecs,
        deadlines: ExecDeadlines,
        secrets: Secrets | None = None,
    ) -> None:
        self._secrets = secrets
        self._objects, self._engine, self._streams, self._used = objects, engine, streams, used
        self._left, self._deadlines = left, deadlines
        self._places, self._escapes = Places(rules.per_sandbox), escapes
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
        """Log output of the sandbox's container, running or not. `since` is Unix seconds.

        A log that is followed keeps a box from being idle, but wakes none.
        """
        container = self._container(self._objects.get(kind, namespace, name))
        read = partial(self._streams.logs, container.id, follow=follow, tail=tail, since=since, timestamps=timestamps)
        return partial(self._used.stream, container.uid, read, asks=False) if follow else read

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
    ) -> Callable[[], UsedStream]:
        """Run a command in the sandbox; the last chunk is `exit`. A box that idleness suspended is started for it.

        `env` may name secrets of the namespace; their values go to the command alone.
        Without `timeout_seconds` its template's or the host's limit holds; 0 is none. The stream is an ExecStream.
        """
        if not command or not command[0]:
            raise errors.BadRequest("there is no command to run; write it after `--`")
        wrong = {"command[0]": program_refused(command[0]), "workingDir": folder_refused(working_dir)}
        if any(wrong.values()):
            raise errors.BadRequest("; ".join(f"{field}: {words}" for field, words in wrong.items() if words))
        obj = self._objects.get(kind, namespace, name)
        if not is_coming(obj):
            container = self._container(obj)
            if container.state is not State.RUNNING:
                raise errors.Conflict(f"{_word(obj)} is not running ({container.state}){words(obj)}")
        self._places.check(obj.uid, _word(obj))
        limit = self.time_limit(obj, timeout_seconds, tty=tty)
        start = partial(
            self._streams.exec,
            command=command,
            env=self._environment(namespace, env or {}),
            working_dir=working_dir,
            user=user,
            stdin=stdin,
            timeout_seconds=limit,
            tty=tty,
        )
        patience = min(limit or WAIT_SECONDS, WAIT_SECONDS)

        def open_() -> Iterator[Chunk]:
            leave = self._places.take(obj.uid, _word(obj))
            try:
                found = self._used.running(partial(self._same, kind, obj), patience)
                return UsedStream(start(found.id, escaped=self._escapes.handler(obj, found)), leave)
            except BaseException:
                leave()
                raise

        return partial(self._used.stream, obj.uid, open_, asks=True)

    def _environment(self, namespace: str, env: Environment) -> Mapping[str, str]:
        """The variables with the values of the secrets among them. BadRequest for one that can't be used."""
        found: dict[str, str] = {}
        for variable, value in env.items():
            try:
                found[variable] = revealed(self._secrets, namespace, value) if isinstance(value, SecretRef) else value
            except NoSecret as error:
                raise errors.BadRequest(f"{variable}: {error}") from error
        return found

    def time_limit(self, obj: StoredObject, asked: float | None, *, tty: bool) -> float | None:
        """How long a command in this sandbox may run, in seconds; None: as long as it likes. BadRequest."""
        return self._deadlines.limit(obj, asked, tty=tty)

    def follow(self, kind: Kind, namespace: str, name: str, ref: ExecRef, timeout_seconds: float | None) -> UsedStream:
        """The stream of a command that a daemon before this one began: see kinds.LeftExecs. It wakes no box."""
        obj = self._objects.get(kind, namespace, name)

        def escaped(words: str) -> None:
            self._escapes.handler(obj, self._container(obj))(words)

        def open_() -> Iterator[Chunk]:
            chunks = self._left.follow(ref, timeout_seconds=timeout_seconds, escaped=escaped)
            return UsedStream(chunks, self._places.hold(obj.uid))

        return self._used.stream(obj.uid, open_, asks=False)

    def enter(
        self, kind: Kind, namespace: str, name: str, do: Callable[[Container], T], *, frozen: bool = False
    ) -> tuple[T, Callable[[], None]]:
        """Do something with the running box; it is in use until the second result is called. One that sleeps is woken.

        `frozen`: a paused box will do. May block for as long as a box takes to start. Raises ServiceError.
        """
        obj = self._objects.get(kind, namespace, name)
        states = (State.RUNNING, State.PAUSED) if frozen else (State.RUNNING,)
        if not is_coming(obj):
            container = self._container(obj)
            if container.state not in states:
                raise errors.Conflict(f"{_word(obj)} is not running ({container.state}){words(obj)}")
        over = self._used.begin(obj.uid)
        try:
            found = self._found(obj)
            if not frozen or found is None or found.state is not State.PAUSED:
                found = self._used.running(partial(self._same, kind, obj), WAIT_SECONDS)
            return do(found), over
        except StreamError as error:
            over()
            raise errors.Conflict(str(error)) from error
        except BaseException:
            over()
            raise

    def seen(self, obj: StoredObject) -> Container | None:
        """The container that is this sandbox now, running or not. ServiceUnavailable when nobody can tell."""
        found = self._found(obj)
        if found is None and self._engine.observe().blind:
            return self._container(obj)
        return found

    def _container(self, obj: StoredObject) -> Container:
        """The container that is this sandbox now. Raises ServiceUnavailable or Conflict when there is none."""
        found = self._found(obj)
        if found is not None:
            return found
        blind = self._engine.observe().blind
        if blind:
            raise errors.ServiceUnavailable(f"the engine can't be asked for the container of {_word(obj)}: {blind}")
        raise errors.Conflict(f"{_word(obj)} has no container{words(obj)}")

    def _found(self, obj: StoredObject) -> Container | None:
        """The one of its derived name, or that its status names.

        Others may bear its labels: `docker commit` hands them on to an image, and to what runs from it.
        """
        named = str(obj.status.get("instanceRef", {}).get("containerID", ""))
        derived = container_name(obj.name, obj.uid)
        seen = self._engine.observe().containers.get(obj.uid, ())
        own = [each for each in seen if each.name == derived or each.id == named]
        return max(own, key=lambda each: (each.state is State.RUNNING, each.created_at), default=None)

    def _same(self, kind: Kind, before: StoredObject) -> tuple[StoredObject, Container | None]:
        """The object and its container as they are now. Raises Conflict when it is another one by now."""
        now = self._objects.get(kind, before.namespace, before.name)
        if now.uid != before.uid:
            raise errors.Conflict(f"{_word(before)} was deleted and created anew meanwhile; try again")
        return now, self._found(now)


def _word(obj: StoredObject) -> str:
    return f"{obj.kind.lower()} `{obj.name}`"
