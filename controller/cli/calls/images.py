"""Images of hosts: list, pull, build, push, delete."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock._archive.tar import END, Entry, header, padding
from paddock._client.connection import Connection
from paddock._client.errors import ClientError, refusal
from paddock._client.transfer import exchange

Step = Mapping[str, Any]
Progress = Callable[[Step], None]
_BROKE = "the daemon ended the work without a result; see its log"


class Images:
    """The images of all hosts. `progress` is called with each step: `text`, `layer`, bytes.

    `host` is the one that does the work; "": that of the daemon.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> list[dict[str, Any]]:
        """Return the images that you may use. Raises Refused."""
        images: list[dict[str, Any]] = self.of_hosts()["items"]
        return images

    def of_hosts(self) -> dict[str, Any]:
        """Return the images that you may use as `items`, and `missing` hosts if there are several. Raises Refused."""
        answer: dict[str, Any] = self._connection.get("images")
        return answer

    def inspect(self, image: str, *, host: str = "") -> dict[str, Any]:
        """Return an image with its `volumes`; with no host, from the first that has it. Raises Refused."""
        answer: dict[str, Any] = self._connection.get("images/inspect", image=image, host=host)
        return answer

    def pull(self, image: str, progress: Progress = lambda _: None, *, host: str = "") -> dict[str, Any]:
        """Pull an image; return it. Raises Refused, ClientError."""
        return self._work("pull", [("image", image), *_at(host)], None, progress)

    def pulling(self) -> Sequence[dict[str, Any]]:
        """Return the pulls in progress that sandboxes wait for: `image`, `currentBytes`, `totalBytes`."""
        pulls: Sequence[dict[str, Any]] = self._connection.get("images/pulling")["items"]
        return pulls

    def push(self, image: str, progress: Progress = lambda _: None, *, host: str = "") -> dict[str, Any]:
        """Push an image to the registry in its name; return it. Raises Refused, ClientError."""
        return self._work("push", [("image", image), *_at(host)], None, progress)

    def build(
        self,
        tag: str,
        folder: str,
        *,
        dockerfile: str = "Dockerfile",
        arguments: Mapping[str, str] | None = None,
        host: str = "",
        progress: Progress = lambda _: None,
    ) -> dict[str, Any]:
        """Build an image from a folder, where `dockerfile` is a path; return it. Raises ClientError, OSError."""
        query = [("tag", tag), ("dockerfile", dockerfile), *_at(host)]
        query += [("arg", f"{name}={value}") for name, value in (arguments or {}).items()]
        return self._work("build", query, _pack(folder), progress)

    def delete(self, image: str, *, host: str = "") -> None:
        """Delete an image by one of its names. Raises Refused: a container uses it, or you may not."""
        self._connection.request("POST", "images/delete", params=dict([("image", image), *_at(host)]))

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


def _at(host: str) -> list[tuple[str, str]]:
    return [("host", host)] if host else []


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    remainder = b""
    for piece in pieces:
        *lines, remainder = (remainder + piece).split(b"\n")
        yield from lines


def _pack(folder: str) -> Iterator[bytes]:
    """Yield a folder as a tar stream, without what its .dockerignore leaves out."""
    top = Path(folder)
    try:
        ignored = Ignored((top / ".dockerignore").read_text(errors="replace"))
    except FileNotFoundError:
        ignored = Ignored("")
    for at, folders, files in os.walk(top):
        inside = Path(at).relative_to(top).as_posix()
        for name in sorted((*folders, *files)):
            path = name if inside == "." else f"{inside}/{name}"
            if not ignored.leaves_out(path):
                yield from _entry(top / path, path)
        if not ignored.exceptions:  # else one of them may bring back what is below
            folders[:] = [
                folder_name
                for folder_name in folders
                if not ignored.leaves_out(f"{inside}/{folder_name}".removeprefix("./"))
            ]
    yield END


def _entry(file: Path, name: str) -> Iterator[bytes]:
    file_stat, packed_name = file.lstat(), os.fsencode(name)
    if stat.S_ISLNK(file_stat.st_mode):
        yield header(Entry(packed_name, "link", mode=0o777, target=os.fsencode(os.readlink(file))))
    elif stat.S_ISDIR(file_stat.st_mode):
        yield header(Entry(packed_name, "folder", mode=stat.S_IMODE(file_stat.st_mode)))
    elif stat.S_ISREG(file_stat.st_mode):
        data = file.read_bytes()
        yield header(Entry(packed_name, "file", len(data), stat.S_IMODE(file_stat.st_mode)))
        yield data + padding(len(data))


class Ignored:
    """Rules of a .dockerignore: patterns with `*`, `?` and `**`; `!` brings back; the last match decides."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], bool]] = []
        for line in map(str.strip, text.splitlines()):
            pattern = line.removeprefix("!").strip().strip("/").removeprefix("./")
            if pattern and not line.startswith("#"):
                self._rules.append((_matcher(pattern), not line.startswith("!")))

    @property
    def exceptions(self) -> bool:
        """True if a rule brings something back."""
        return not all(out for _, out in self._rules)

    def leaves_out(self, path: str) -> bool:
        """Return True if this path, relative to the folder, is left out."""
        is_out = False
        for pattern, out in self._rules:
            if pattern.fullmatch(path):
                is_out = out
        return is_out


def _matcher(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches the path itself, and all below it."""
    expression = ""
    for piece in re.findall(r"\*\*/?|\*|\?|.", pattern):
        if piece.startswith("**"):
            expression += "(?:.*/)?" if piece.endswith("/") else ".*"
        else:
            expression += {"*": "[^/]*", "?": "[^/]"}.get(piece, re.escape(piece))
    return re.compile(f"{expression}(?:/.*)?", re.DOTALL)
