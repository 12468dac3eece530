"""Finds out whether the engine holds a container's writable layer to a size: by writing past one.

What an engine says of itself does not tell: the containerd image store takes the option and forgets it, and on most
file systems it is refused. A container of an empty image is made with a small size, never started, and written to
through the engine; container and image are removed again.
"""

import io
import json
import os
import tarfile
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.images import OURS

_SIZE_BYTES = 16 << 20
_FITS_BYTES = 1 << 20
_REMOVE_SECONDS = 1.0


def try_disk(client: Client) -> DiskAbility:
    """Try it once; some tenths of a second. Raises Fault where the engine fails at something else."""
    data, label = _archive("made-by-paddock", 1), f"LABEL {OURS}=disk-trial"
    told = client.call("images.import", lambda api: api.import_image_from_data(data, changes=[label]))
    image = str(json.loads(str(told).strip().splitlines()[-1])["status"])
    try:
        return _with_image(client, image)
    finally:
        _remove(client, image)


class DiskTrial:
    """Tries it once for each engine, whoever asks. Thread-safe; what could not be tried is tried again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str, str], DiskAbility] = {}

    def with_disk(self, facts: HostFacts) -> HostFacts:
        """The facts of this engine with what it was found to be able to."""
        key = (facts.engine_version, facts.storage_driver, facts.root_dir)
        with self._lock:
            if key not in self._found:
                try:
                    self._found[key] = try_disk(self._client)
                except Fault as fault:
                    return replace(facts, disk=DiskAbility(False, f"it could not be tried: {fault.words}"))
            return replace(facts, disk=self._found[key])


def _remove(client: Client, image: str) -> None:
    """Have the engine remove the image, without a long wait. Raises Fault.

    The engine asks each of its containers for it, anybody's, and removes it once none of them hangs.
    """
    try:
        path = f"/images/{quote(image, safe='')}"
        client.stream("images.remove", "DELETE", path, timeout_seconds=_REMOVE_SECONDS).release()
    except Fault as fault:
        if fault.kind != "timeout":
            raise


def _with_image(client: Client, image: str) -> DiskAbility:
    body = {
        "Image": image,
        "Cmd": ["never-started"],
        "HostConfig": {"NetworkMode": "none", "StorageOpt": {"size": str(_SIZE_BYTES)}},
    }
    try:
        made = client.call("containers.create", lambda api: api.create_container_from_config(body))
    except Fault as fault:
        if fault.unreachable:
            raise
        return DiskAbility(False, f"the engine refuses a size for the writable layer ({fault.words})")
    container = str(made["Id"])
    try:
        return _written(client, container)
    finally:
        client.call("containers.remove", lambda api: api.remove_container(container, force=True, v=True))


def _written(client: Client, container: str) -> DiskAbility:
    _put(client, container, "small", _FITS_BYTES)  # what fits has to be taken, or the refusal of more means nothing
    try:
        _put(client, container, "large", 2 * _SIZE_BYTES)
    except Fault as fault:
        if fault.unreachable:
            raise
        return DiskAbility(True, f"writing past a size was refused ({fault.words})")
    return DiskAbility(False, "the engine takes a size for the writable layer, and does not hold it to that")


def _put(client: Client, container: str, name: str, size: int) -> None:
    data = _archive(name, size)
    taken = client.call("containers.archive", lambda api: api.put_archive(container, "/", data))
    if not taken:
        raise Fault("5xx", f"the engine did not take {size} bytes", status=500)


def _archive(name: str, size: int) -> bytes:
    """A tar of one file that no file system can make smaller."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tree:
        made: Any = tarfile.TarInfo(name)
        made.size = size
        tree.addfile(made, io.BytesIO(os.urandom(size)))
    return content.getvalue()
