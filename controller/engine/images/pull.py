"""Image pulls. The engine reports failures inside a stream that began with status 200."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import requests
from docker.auth import get_config_header, resolve_repository_name
from docker.utils import parse_repository_tag

from controller.engine.docker import raw_http
from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault, of_status
from controller.engine.images.registries import Registries
from controller.kinds.runtime.images import ImagePull

# Longest silence of a registry between layers.
_SILENCE_SECONDS = 120.0
_UNKNOWN = "the registry does not have it, or requires a login"
# The engine's message and ours. A registry's answer is never repeated: it may be any server that the host can reach,
# and the user who names the image would read its answer.
_PULL_TROUBLE = (
    ("no space left on device", "the engine's disk is full"),
    ("toomanyrequests", "the registry limits requests; log in (`docker login`), or retry later"),
    ("no matching manifest", "the image has no build for this architecture"),
    ("manifest unknown", _UNKNOWN),
    ("connection refused", "the registry refused the connection"),
    ("no such host", "the registry's name does not resolve"),
    ("i/o timeout", "the registry did not answer in time"),
    ("deadline exceeded", "the registry did not answer in time"),
    ("Client.Timeout", "the registry did not answer in time"),
    ("no route to host", "there is no route to the registry"),
    ("network is unreachable", "there is no route to the registry"),
    ("HTTP response to HTTPS client", "the registry does not speak TLS"),
    ("x509:", "the registry's certificate is not trusted"),
    ("no basic auth credentials", "the registry requires a login"),
    ("unauthorized", "the registry refuses this host's login"),
    ("401 Unauthorized", "the registry refuses this host's login"),
    ("403 Forbidden", "the registry refuses this host's login"),
    ("authentication required", "the registry refuses this host's login"),
    ("denied", "the registry refuses this host's login"),
)


class Pulls:
    """The pulls in progress, kept in memory: one write per chunk to the store would be too many. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._layers: dict[str, dict[str, tuple[int, int]]] = {}

    def all(self) -> Sequence[ImagePull]:
        """Return each pull with its bytes so far."""
        with self._lock:
            layers_by_image = {image: tuple(layers.values()) for image, layers in self._layers.items()}
        return [
            ImagePull(image, sum(current for current, _ in layers), sum(total for _, total in layers))
            for image, layers in layers_by_image.items()
        ]

    @contextmanager
    def counting(self, image: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Yield a function that counts the engine's steps of one pull, as long as it lasts."""
        layers: dict[str, tuple[int, int]] = {}
        with self._lock:
            self._layers[image] = layers

        def count(step: Mapping[str, Any]) -> None:
            layer, detail = str(step.get("id") or ""), step.get("progressDetail") or {}
            with self._lock:
                if step.get("status") == "Downloading" and detail.get("total"):
                    layers[layer] = (int(detail.get("current") or 0), int(detail["total"]))
                elif layer in layers and step.get("status") != "Downloading":
                    layers[layer] = (layers[layer][1],) * 2  # the layer is here, and is unpacked

        try:
            yield count
        finally:
            with self._lock:
                if self._layers.get(image) is layers:
                    del self._layers[image]


def pull(client: Client, image: str, pulls: Pulls, registries: Registries) -> None:
    """Pull `image` unless it is on this host. Raises Fault; RegistryRefused."""
    if is_here(client, image):
        return
    registries.check(image)
    with pulls.counting(image) as count:
        client.call("images.pull", lambda api: _fetch(api, image, client.timeout_seconds, count))


def is_here(client: Client, image: str) -> bool:
    """Return True if the image is on this host. Raises Fault."""
    try:
        client.image(image)
    except Fault as fault:
        if fault.is_gone:
            return False
        raise
    return True


def _fetch(api: Any, image: str, connect_seconds: float, count: Callable[[Mapping[str, Any]], None]) -> None:
    repository, tag = parse_repository_tag(image)
    login = login_for(api, image)
    answer: requests.Response = api.post(
        f"{api.base_url}/v{api.api_version}/images/create",
        params={"fromImage": repository, "tag": tag or "latest"},
        headers=login,
        stream=True,
        # docker-py's own pull has no time-out.
        timeout=(connect_seconds, _SILENCE_SECONDS),
    )
    with answer:
        if answer.status_code >= 400:
            raise raw_http.refusal(answer.status_code, answer.content)
        for line in answer.iter_lines():
            step = json.loads(line) if line else {}
            if "error" in step:
                raise of_status(500, str(step["error"]))
            count(step)


def login_for(api: Any, image: str) -> dict[str, str]:
    """Return the header with this host's login for the image's registry; empty if it has none. Never log it."""
    repository, _ = parse_repository_tag(image)
    registry, _ = resolve_repository_name(repository)
    login = get_config_header(api, registry)
    return {"X-Registry-Auth": login if isinstance(login, str) else login.decode()} if login else {}


def not_pulled(status: int, answer: str) -> str:
    """Describe a failed pull, given the engine's status and message."""
    for sign, message in _PULL_TROUBLE:
        if sign in answer:
            return message
    if status in (401, 403):
        return "the registry refuses this host's login"
    return _UNKNOWN if status == 404 else "the registry's answer is not a valid image"
