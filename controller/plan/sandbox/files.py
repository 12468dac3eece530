"""Files in memory of a sandbox across its stops: `lifecycle.onSuspend: KeepFiles`.

This host mounts its folders in memory, so they outlive the container. A suspension checks first that they fit, stops
the sandbox, saves them, and then frees the memory. The next start puts them back before its first process.
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import Action, SignalContainer
from controller.kinds.planning.outcome import FILES_NOT_SAVED, FILES_TOO_LARGE
from controller.kinds.runtime.mount import BoundMount, CheckFiles, RemoveFiles, SaveFiles
from controller.kinds.sandbox import keeps_files
from controller.plan.base.backoff import CALL_LONGEST_SECONDS, waits
from controller.plan.base.reconcile_context import ALIVE, Decision, ReconcileContext
from controller.policy.sandbox import Rendered

TYPE = "FilesKept"
IN_MEMORY = ("memory", "tmpfs")  # kinds of mounts
_DISCARDS = (
    "lifecycle.onSuspend is Discard: its files in memory are lost when it stops; `paddock set on-suspend` changes that"
)
_OLDER = "its container was made before its folders in memory were kept; the next start makes it anew"
_OLDER_WRITABLE = (
    "its container was made before its folders in memory were kept; a new one, as after any change of its template,"
    " keeps them, and loses what it wrote to its root file system"
)
_ELSEWHERE = "the engine is on another machine, where this daemon can't hold folders in memory"


def held_folders(container: Container) -> tuple[BoundMount, ...]:
    """Return the folders in memory that this host holds for a container."""
    return tuple(mount for mount in container.bound if mount.kind in IN_MEMORY and mount.origin)


def is_older(container: Container, rendered: Rendered) -> bool:
    """Return True if the engine holds its folders in memory, though this host would in a new container."""
    folders = {memory_mount.path for memory_mount in rendered.config.memory_mounts}
    return bool(folders) and not folders <= set(container.slots)


def is_renewed(context: ReconcileContext, container: Container, rendered: Rendered) -> bool:
    """Return True if the next start makes it anew so that its files are kept: it has nothing that this would lose."""
    return keeps_files(context.spec) and rendered.config.read_only_root and is_older(container, rendered)


def kept_and_lost(context: ReconcileContext, container: Container, rendered: Rendered) -> str:
    """Return which files a new container of a sandbox has, as the end of a message: what stays, and what goes."""
    config, folders = rendered.config, held_folders(container)
    if context.is_pool_member:
        return ""
    source = f"snapshot `{config.restore_from.partition('@')[0]}`" if config.restore_from else "its image"
    before, after = (
        fields.get("restore_from") for fields in (context.state.container.template_fields, rendered.template_fields)
    )
    if config.restore_from and before != after:
        return f"; its files are those of {source} then"
    stays = ["its volumes"] if any(mount.kind == "volume" for mount in config.mounts) else []
    if folders and keeps_files(context.spec):
        stays.append("files in memory")
    message = f"; {' and '.join(stays)} stay" if stays else ""
    if (folders and not keeps_files(context.spec)) or is_older(container, rendered):
        message += "; files in memory are lost"
    if not config.read_only_root:
        message += f"; its root file system begins from {source} again"
    return message


def with_check(context: ReconcileContext, container: Container, decision: Decision) -> Decision:
    """Return the decision to stop a sandbox for longer, with a check before it that its files can be saved."""
    stops = any(isinstance(action, SignalContainer) for action in decision.actions)
    if not stops or not keeps_files(context.spec) or not held_folders(container):
        return decision
    check = CheckFiles(
        uid=context.obj.uid, name=container.name, container_id=container.id, why="files in memory are kept"
    )
    return replace(decision, actions=(check, *decision.actions))


def blocked_stop(context: ReconcileContext) -> Decision | None:
    """Return the decision to let a sandbox run on whose files do not fit; None: nothing is known against its stop."""
    failure = context.state.backoff.failure
    if failure is None or failure.reason != FILES_TOO_LARGE or not keeps_files(context.spec):
        return None
    if failure.generation != context.obj.generation or not waits(context.now, failure.retry_at, CALL_LONGEST_SECONDS):
        return None
    return Decision(context.state, failure.reason, f"it runs on: {failure.message}", until=failure.retry_at)


def save(context: ReconcileContext, container: Container, decision: Decision) -> Decision:
    """Return the decision for a stopped sandbox, with its files saved, or dropped."""
    folders = held_folders(container)
    if context.is_pool_member or not (folders or _has_unrecorded_save(context, container)):
        return decision
    uid = context.obj.uid
    name = container.name
    failure = context.state.backoff.failure
    if not keeps_files(context.spec):
        if not any(folder.keeps_files for folder in folders):
            return decision  # its host drops them after a moment
        return replace(
            decision, actions=(*decision.actions, SaveFiles(uid=uid, name=name, why="onSuspend is Discard", keep=False))
        )
    if (
        failure is not None
        and is_of_files(failure.reason)
        and waits(context.now, failure.retry_at, CALL_LONGEST_SECONDS)
    ):
        return replace(decision, until=failure.retry_at)
    return replace(
        decision, actions=(*decision.actions, SaveFiles(uid=uid, name=name, why=decision.message or decision.reason))
    )


def _has_unrecorded_save(context: ReconcileContext, container: Container) -> bool:
    """Return True if its memory was freed, and no save is recorded: a daemon that ended in between recorded none."""
    rendered = context.rendered
    if rendered is None or not container.finished_at or context.state.memory.saved_files is not None:
        return False
    is_kept = keeps_files(context.spec) and bool(rendered.config.memory_mounts)
    return is_kept and not is_older(container, rendered)


def is_of_files(reason: str) -> bool:
    """Return True for the reason of a failure that only concerns the saving of files."""
    return reason in (FILES_TOO_LARGE, FILES_NOT_SAVED)


def remove(context: ReconcileContext) -> Iterator[Action]:
    """Yield the removal of the saved files of a deleted object without a container."""
    if context.state.memory.saved_files is not None:
        yield RemoveFiles(uid=context.obj.uid, name=context.obj.name, why="deleted")


def condition(context: ReconcileContext) -> Iterator[Condition]:
    """Yield the FilesKept condition of a sandbox with folders in memory."""
    rendered = context.rendered
    container = context.container
    failure = context.state.backoff.failure
    if context.is_pool_member or rendered is None or context.blind:
        return
    if not rendered.config.tmpfs and not any(mount.kind == "memory" for mount in rendered.config.mounts):
        return
    if not keeps_files(context.spec):
        yield Condition(TYPE, "False", "Discarded", _DISCARDS)
    elif failure is not None and is_of_files(failure.reason) and failure.generation == context.obj.generation:
        reason = "TooLarge" if failure.reason == FILES_TOO_LARGE else "NotSaved"
        yield Condition(TYPE, "False", reason, failure.message)
    # What its owner chose comes first, then what this host can't do, then what the present container can't.
    elif not rendered.config.holds_memory:
        yield Condition(TYPE, "False", "EngineElsewhere", _ELSEWHERE)
    elif container is not None and is_older(container, rendered):
        renewed = is_renewed(context, container, rendered)
        yield Condition(
            TYPE, "False", "NextStart" if renewed else "NextContainer", _OLDER if renewed else _OLDER_WRITABLE
        )
    elif (saved := context.state.memory.saved_files) is not None and (
        container is None or container.state not in ALIVE
    ):
        omitted = f"; {saved.omitted} sockets and devices are left out" if saved.omitted else ""
        message = f"{saved.file_count} files of {format_bytes(saved.size_bytes)} are saved on disk{omitted}"
        yield Condition(TYPE, "True", "Saved", message)
    else:
        yield Condition(TYPE, "True", "InMemory", "its files in memory are saved when it is suspended")
