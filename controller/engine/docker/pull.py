"""Bringing an image to this host. The engine tells of failures inside a stream that began with 200."""

import json
from typing import Any

import requests
from docker.auth import get_config_header, resolve_repository_name
from docker.utils import parse_repository_tag

from controller.engine.docker import raw_http
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault, of_status

# A registry may be silent for a while between layers, but never this long.
_SILENCE_SECONDS = 120.0


def pull(client: Client, image: str) -> None:
    """Have `image` on this host; nothing is done when it is there already. Raises Fault."""
    try:
        client.call("images.inspect", lambda api: api.inspect_image(image))
    except Fault as fault:
        if not fault.gone:
            raise
        client.call("images.pull", lambda api: _fetch(api, image, client.timeout_seconds))


def _fetch(api: Any, image: str, connect_seconds: float) -> None:
    repository, tag = parse_repository_tag(image)
    registry, _ = resolve_repository_name(repository)
    login = get_config_header(api, registry)
    answer: requests.Response = api.post(
        f"{api.base_url}/v{api.api_version}/images/create",
        params={"fromImage": repository, "tag": tag or "latest"},
        headers={"X-Registry-Auth": login} if login else {},
        stream=True,
        # docker-py's own pull waits for ever.
        timeout=(connect_seconds, _SILENCE_SECONDS),
    )
    with answer:
        if answer.status_code >= 400:
            raise raw_http.refusal(answer.status_code, answer.content)
        for line in answer.iter_lines():
            said = json.loads(line) if line else {}
            if "error" in said:
                raise of_status(500, str(said["error"]))
