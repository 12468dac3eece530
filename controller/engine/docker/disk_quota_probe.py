"""Probe for disk quotas: does the engine enforce a size of a container's writable layer?

The engine's own facts don't tell: the containerd image store accepts the option and ignores it, and most file systems
refuse it. The probe creates a container of an empty image with a small size, never starts it, and writes past that size
through the engine. Container and image are removed again.
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
from controller.engine.docker.removal import remove_each
from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.images import OURS

_SIZE_BYTES = 4 << 20
_FITS_BYTES = 1 << 20


def probe_disk_quota(client: Client) -> DiskAbility:
    """Run the probe once; takes some tenths of a second. Raises Fault where the engine fails otherwise."""
    data, label = _archive("made-by-paddock", 1), f"LABEL {OURS}=disk-trial"
    reported = client.call("images.import", lambda api: api.import_image_from_data(data, changes=[label]))
    image = str(json.loads(str(reported).strip().splitlines()[-1])["status"])
    try:
        return _with_image(client, image)
    finally:
        remove_each(client, ("images.remove", f"/images/{quote(image, safe='')}"))


class DiskQuotaProbe:
    """Result of the probe, cached for each engine; a failed probe is retried. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str, str], DiskAbility] = {}

    def with_disk(self, facts: HostFacts) -> HostFacts:
        """Return the facts of this engine with the result of the probe."""
        key = (facts.engine_version, facts.storage_driver, facts.root_dir)
        with self._lock:
            if key not in self._found:
                try:
                    self._found[key] = probe_disk_quota(self._client)
                except Fault as fault:
                    return replace(facts, disk=DiskAbility(False, f"the probe failed: {fault.message}"))
            return replace(facts, disk=self._found[key])


def _with_image(client: Client, image: str) -> DiskAbility:
    body = {
        "Image": image,
        "Cmd": ["never-started"],
        "HostConfig": {"NetworkMode": "none", "StorageOpt": {"size": str(_SIZE_BYTES)}},
    }
    try:
        answer = client.call("containers.create", lambda api: api.create_container_from_config(body))
    except Fault as fault:
        if fault.unreachable:
            raise
        return DiskAbility(False, f"the engine refuses a size for the writable layer ({fault.message})")
    container = str(answer["Id"])
    try:
        return _probe_by_write(client, container)
    finally:
        client.call("containers.remove", lambda api: api.remove_container(container, force=True, v=True))


def _probe_by_write(client: Client, container: str) -> DiskAbility:
    _put(client, container, "small", _FITS_BYTES)  # a small file must fit, or the refusal of a large one means nothing
    try:
        _put(client, container, "large", 2 * _SIZE_BYTES)
    except Fault as fault:
        if fault.unreachable:
            raise
        return DiskAbility(True, f"writing past the size was refused ({fault.message})")
    return DiskAbility(False, "the engine accepts a size for the writable layer, but does not enforce it")


def _put(client: Client, container: str, name: str, size: int) -> None:
    data = _archive(name, size)
    is_written = client.call("containers.archive", lambda api: api.put_archive(container, "/", data))
    if not is_written:
        raise Fault("5xx", f"the engine refused {size} bytes", status=500)


def _archive(name: str, size: int) -> bytes:
    """Return a tar of one incompressible file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tree:
        entry: Any = tarfile.TarInfo(name)
        entry.size = size
        tree.addfile(entry, io.BytesIO(os.urandom(size)))
    return content.getvalue()
