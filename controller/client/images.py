"""Images of the daemon's host: list, pull, build, push."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from controller.archive.pack import pack, read_out
from controller.client.connection import Connection
from controller.client.errors import ClientError, refusal
from controller.client.transfer import exchange

Step = Mapping[str, Any]
Progress = Callable[[Step], None]
_BROKE = "the daemon ended the work without a result; see its log"


class Images:
    """The images of one daemon's host. `progress` is called with each step: `text`, `layer`, bytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> list[dict[str, Any]]:
        """Return the images that you may use. Raises Refused."""
        found: list[dict[str, Any]] = self._connection.get("images")["items"]
        return found

    def pull(self, image: str, progress: Progress = lambda _: None) -> dict[str, Any]:
        """Pull an image; return it. Raises Refused, ClientError."""
        return self._work("pull", [("image", image)], None, progress)

    def push(self, image: str, progress: Progress = lambda _: None) -> dict[str, Any]:
        """Push an image to the registry in its name; return it. Raises Refused, ClientError."""
        return self._work("push", [("image", image)], None, progress)

    def build(
        self,
        tag: str,
        folder: str,
        *,
        dockerfile: str = "Dockerfile",
        arguments: Mapping[str, str] | None = None,
        progress: Progress = lambda _: None,
    ) -> dict[str, Any]:
        """Build an image from a folder, where `dockerfile` is a path; return it. Raises ClientError, OSError."""
        query = [("tag", tag), ("dockerfile", dockerfile)]
        query += [("arg", f"{name}={value}") for name, value in (arguments or {}).items()]
        return self._work("build", query, _packed(folder), progress)

    def _work(
        self, what: str, query: Sequence[tuple[str, str]], body: Iterable[bytes] | None, progress: Progress
    ) -> dict[str, Any]:
        with exchange(self._connection.server, "POST", f"images/{what}", query, body) as answer:
            for line in _lines(answer.pieces()):
                step = json.loads(line)
                if "error" in step:
                    raise refusal(step["error"], int(step["error"].get("code", 500)))
                if "image" in step:
                    return step["image"] or {}
                progress(step)
        raise ClientError(_BROKE)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def _packed(folder: str) -> Iterator[bytes]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from read_out(pack(fd, b".", b"."))
    finally:
        os.close(fd)
