"""Into a box: which container a sandbox's name means now, and its logs and commands."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from controller.kinds.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.observed import Container, State
from controller.kinds.registry import Kind
from controller.ports import Chunk, Engine, Streams
from controller.service import errors
from controller.service.objects import Objects

Opener = Callable[[], Iterator[Chunk]]


class IntoBox:
    """Logs and exec. Both find the container and raise what speaks against it; what they give opens the stream.

    Opening may block (an engine may begin to take stdin) and raise StreamError: call it where that does no harm.
    """

    def __init__(self, *, objects: Objects, engine: Engine, streams: Streams) -> None:
        self._objects, self._engine, self._streams = objects, engine, streams

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
        """Log output of the sandbox's container, running or not. `since` is Unix seconds."""
        container = self._container(self._objects.get(kind, namespace, name))
        return partial(self._streams.logs, container.id, follow=follow, tail=tail, since=since, timestamps=timestamps)

    def exec(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        user: str = "",
        stdin: Iterable[bytes] | None = None,
        timeout_seconds: float | None = None,
    ) -> Opener:
        """Run a command in the sandbox; the last chunk is `exit`."""
        if not command or not command[0]:
            raise errors.BadRequest("there is no command to run; write it after `--`")
        obj = self._objects.get(kind, namespace, name)
        container = self._container(obj)
        if container.state is not State.RUNNING:
            raise errors.Conflict(f"{_word(obj)} is not running ({container.state}){_why(obj)}")
        return partial(
            self._streams.exec,
            container.id,
            command,
            env=env,
            working_dir=working_dir,
            user=user,
            stdin=stdin,
            timeout_seconds=timeout_seconds,
        )

    def _container(self, obj: StoredObject) -> Container:
        """The container that is this sandbox now: the one of its derived name, or that its status names.

        Others may bear its labels: `docker commit` hands them on to an image, and to what runs from it.
        """
        seen = self._engine.observe()
        named = str(obj.status.get("instanceRef", {}).get("containerID", ""))
        derived = container_name(obj.name, obj.uid)
        own = [each for each in seen.containers.get(obj.uid, ()) if each.name == derived or each.id == named]
        if own:
            return max(own, key=lambda each: (each.state is State.RUNNING, each.created_at))
        if seen.blind:
            raise errors.ServiceUnavailable(
                f"the engine can't be asked for the container of {_word(obj)}: {seen.blind}"
            )
        raise errors.Conflict(f"{_word(obj)} has no container{_why(obj)}")


def _word(obj: StoredObject) -> str:
    return f"{obj.kind.lower()} `{obj.name}`"


def _why(obj: StoredObject) -> str:
    """What the object's own conditions say about it, for the end of a message."""
    if obj.deleted_at is not None:
        return ": it is being deleted"
    ready = next((each for each in obj.status.get("conditions", ()) if each["type"] == "Ready"), None)
    if ready is None:
        return " yet: it was not looked at so far; try again in a moment"
    return f": {ready['reason']}" + (f": {ready['message']}" if ready.get("message") else "")
