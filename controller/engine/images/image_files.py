"""Small files of an image, read through the engine where its layers can't be (see image_layers.py).

The engine hands out files of containers only. One is created of the image, never started, and removed again: some
tenths of a second for each image, once.
"""

import io
import tarfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault

_MOST_BYTES = 256 << 10
_ROOM_BYTES = 32 << 10  # headers and the padding of an archive


@lru_cache(maxsize=128)
def etc_files(client: Client, image_id: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
    """Return the texts of these files in the image's /etc, "" for one that it lacks; None: the engine refuses.

    Raises Fault if the engine does not answer, or fails: that says nothing about the image.
    """
    body = {"Image": image_id, "Cmd": ["never-started"], "HostConfig": {"NetworkMode": "none"}}
    try:
        container = str(client.call("containers.create", lambda api: api.create_container_from_config(body))["Id"])
    except Fault as fault:
        if fault.kind != "4xx":  # that would be repeated: the result is kept as long as the daemon runs
            raise
        return None
    try:
        return {name: _text(client, container, f"/etc/{name}") for name in names}
    finally:
        client.call("containers.remove", lambda api: api.remove_container(container, force=True, v=True))


def _text(client: Client, container: str, path: str) -> str:
    """Return a regular file's text; "" for none, another kind of file, or one that is too large. Raises Fault."""
    try:
        return client.call("containers.archive", lambda api: _read(api, container, path))
    except Fault as fault:
        if fault.unreachable:
            raise
        return ""


def _read(api: Any, container: str, path: str) -> str:
    stream, _ = api.get_archive(container, path)
    try:
        return text_of(stream)
    finally:
        stream.close()


def text_of(archive: Iterable[bytes]) -> str:
    """Return the text of the one regular file in a tar stream; "" for anything else, such as a folder with its content.

    No more is read than such a file can have.
    """
    received = bytearray()
    for piece in archive:
        received += piece
        if len(received) > _MOST_BYTES + _ROOM_BYTES:
            return ""
    with tarfile.open(fileobj=io.BytesIO(received)) as tree:
        member = tree.next()
        content = tree.extractfile(member) if member is not None and member.isreg() else None
        return content.read().decode("utf-8", "replace").replace("\0", "") if content else ""
