"""The answer of a program in an image, run in a container without a network, rights or files of this host."""

import os
from contextlib import suppress
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault

_MOST_BYTES = 4096
_SECONDS = 15
_NOBODY = "65534:65534"


def answer_of(client: Client, image: str, command: tuple[str, ...]) -> str:
    """Return what the command prints; "" if the image is not here, or the command fails. Never raises."""
    body: dict[str, Any] = {
        "Image": image,
        "Entrypoint": list(command),
        "Cmd": [],
        "User": _NOBODY,
        "Env": ["HOME=/tmp"],
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "size=16777216"},  # noqa: S108 - inside the container
            "Memory": 256 << 20,
            "PidsLimit": 64,
        },
    }
    name = f"paddock-question-{os.getpid()}"
    try:
        client.call("containers.create", lambda api: api.create_container_from_config(body, name))
    except Fault:
        return ""
    try:
        client.call("containers.start", lambda api: api.start(name))
        exit_status = client.call("containers.wait", lambda api: api.wait(name, timeout=_SECONDS))
        if exit_status.get("StatusCode") != 0:
            return ""
        printed: bytes = client.call("containers.logs", lambda api: api.logs(name, stderr=False))
        return printed[:_MOST_BYTES].decode(errors="replace").strip()
    except Fault:
        return ""
    finally:
        with suppress(Fault):
            client.call("containers.remove", lambda api: api.remove_container(name, force=True, v=True))
