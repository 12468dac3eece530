"""Answers of tools, in the shape that every protocol renders from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Callable
    from typing import Any

    Render = Callable[[int], tuple[dict[str, Any], str]]

STREAM_LIMIT = 256 * 1024
"""Bytes of one stream or file in an answer; halved until the whole message is small enough."""


class ToolError(Exception):
    """A refusal or failure in words for the caller."""


class Reply:
    """A tool's answer: `render(limit)` returns its structured content and its text, streams cut to the limit."""

    __slots__ = ("exit_code", "failed", "render")

    def __init__(self, render: Render, failed: bool = False, exit_code: int | None = None) -> None:
        self.render = render
        self.failed = failed
        self.exit_code = exit_code


def plain(structured: dict[str, Any], text: str) -> Reply:
    return Reply(lambda _: (structured, text))


def failure(message: str) -> Reply:
    return Reply(lambda _: ({"error": message}, message), failed=True)
