"""Logs of sandboxes, in pieces of any size as they come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paddock._client.connection import Connection


@contextmanager
def opened_log(
    connection: Connection,
    sandbox_path: str,
    *,
    follow: bool = False,
    tail: int | None = None,
    since_seconds: float | None = None,
    timestamps: bool = False,
    previous: bool = False,
    egress: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Iterator[bytes]]:
    """Stream the log of a sandbox's main process; `tail` is a number of lines. Raises Refused.

    `previous`: of the previous run. `warn` is called if only the last lines were kept. `egress`: the egress log
    instead.
    """
    options = {
        "follow": "true" if follow else "",
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": "" if since_seconds is None else f"{since_seconds:g}",
        "timestamps": "true" if timestamps else "",
        "previous": "true" if previous else "",
        "egress": "true" if egress else "",
    }
    parameters = {key: value for key, value in options.items() if value}
    with connection.stream(f"{sandbox_path}/logs", parameters, warn=warn) as pieces:
        yield pieces
