"""Removal of what a probe or trial made, without a long wait."""

import threading
from collections.abc import Sequence
from contextlib import suppress

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault

_REMOVE_SECONDS, _LATER_SECONDS = 1.0, 600.0
# By operation and path: first the container, then its image.
Removal = tuple[str, str]


def remove_each(client: Client, *removals: Removal) -> None:
    """Have the engine remove these, one after the other, without a long wait. Raises Fault.

    The engine locks a container for that, and each of an image's containers, so one that hangs delays the removal.
    Newer engines give a removal up when nobody waits for it any more, so a thread does, and goes on with the rest.
    """
    for position, removal in enumerate(removals):
        try:
            _remove(client, removal, _REMOVE_SECONDS)
        except Fault as fault:
            if fault.kind != "timeout":
                raise
            remaining = removals[position:]
            threading.Thread(target=_remove_later, args=(client, remaining), name="removal", daemon=True).start()
            return


def _remove_later(client: Client, removals: Sequence[Removal]) -> None:
    for removal in removals:
        with suppress(Fault):  # it stays, labelled as ours, if the container hangs for longer
            _remove(client, removal, _LATER_SECONDS)


def _remove(client: Client, removal: Removal, timeout_seconds: float) -> None:
    operation, path = removal
    params = {"force": "1", **({"v": "1"} if operation == "containers.remove" else {})}
    try:
        client.stream(operation, "DELETE", path, params=params, timeout_seconds=timeout_seconds).release()
    except Fault as fault:
        if operation != "containers.remove" or fault.status not in (404, 409):  # the engine removes it at this moment
            raise
