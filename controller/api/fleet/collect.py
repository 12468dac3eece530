"""Collection: the daemons of all hosts answer a read request in parallel, each for its own sandboxes.

Every daemon is asked with the caller's identity, and authorises it as any other forwarded request. One that does not
answer in time is named as missing: no host that is away fails the answer of the others.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.from_thread
import h11
import structlog
from starlette.requests import HTTPConnection

from controller.api.common.models import VERSION_PATH
from controller.api.common.trace import SCOPE_KEY
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.identity import HEADER, encode, identity_of
from controller.api.fleet.links import Link, Links, Unreachable, was_refused
from controller.api.fleet.tls import FleetTls, why_refused
from controller.kinds.access.access import Caller
from controller.service.access import access
from controller.service.fleet.locations import OtherHost

COLLECT_SECONDS = 2.0  # for all hosts, which are asked at once
_ANSWER_BYTES = 64 << 20
_OK = 200
_log = structlog.get_logger("paddock.fleet")
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Missing:
    """A host that gave no answer; the message says why."""

    host: str
    message: str


@dataclass(frozen=True, slots=True)
class Collected:
    """The answers of the other hosts by their names, and the hosts that gave none."""

    answers: Mapping[str, Answer]
    missing: Sequence[Missing]


class _NoAnswer(Exception):
    """The host was reached and gave no usable answer; the message says why."""


def collect(connection: HTTPConnection, target: bytes = b"", only: str = "") -> Collected | None:
    """Ask the other hosts for `target` (b"": what this GET request asks for); None: only this host is asked.

    That is so on a single host, and for a request that another daemon sends: nobody asks around twice. `only` is the
    one host that is asked ("": all). On a worker thread of the request only.
    """
    forwarding: Forwarding | None = connection.app.state.forwarding
    if forwarding is None or identity_of(connection.scope) is not None:
        return None
    hosts = [host for host in forwarding.locations.other_hosts() if only in ("", host.name)]
    if not hosts:
        return None
    scheme = "https" if connection.scope["scheme"] == "https" else "http"
    identity = encode(forwarding.locations.name, access.caller(), "", scheme)
    trace = str(connection.scope.get(SCOPE_KEY, ""))
    query = connection.scope.get("query_string", b"")
    target = target or connection.scope["raw_path"].partition(b"?")[0] + (b"?" + query if query else b"")
    return read_answers(hosts, anyio.from_thread.run(ask_all, forwarding.links, hosts, target, _head(identity, trace)))


def read_answers(hosts: Sequence[OtherHost], outcomes: Sequence[bytes | Missing]) -> Collected:
    """Return the JSON objects that the hosts have sent."""
    answers: dict[str, Answer] = {}
    missing = []
    for host, outcome in zip(hosts, outcomes, strict=True):
        if isinstance(outcome, Missing):
            missing.append(outcome)
            continue
        try:
            document = json.loads(outcome)
        except ValueError:
            document = None
        if isinstance(document, dict):
            answers[host.name] = document
        else:
            missing.append(unreadable(host.name))
    return Collected(answers, missing)


def unreadable(host: str) -> Missing:
    """Return the host as missing whose answer can't be used."""
    return Missing(host, "its answer can't be read; both daemons must be of about one version")


def unreachable(tls: FleetTls | None, own_host: str, hosts: Sequence[OtherHost]) -> Mapping[str, str]:
    """Return the reasons of those hosts that don't answer `own_host`, by name; takes COLLECT_SECONDS at most.

    For code outside of requests, on a thread without an event loop.
    """
    links = Links(tls)

    async def ask() -> list[bytes | Missing]:
        try:
            head = _head(encode(own_host, Caller("paddock doctor"), "", "https"), "")
            return await ask_all(links, hosts, VERSION_PATH.encode(), head)
        finally:
            links.close()
            await asyncio.sleep(0)  # for the connections to close before the loop does

    return {outcome.host: outcome.message for outcome in asyncio.run(ask()) if isinstance(outcome, Missing)}


async def ask_all(
    links: Links, hosts: Sequence[OtherHost], target: bytes, head: Sequence[tuple[bytes, bytes]]
) -> list[bytes | Missing]:
    """Return the body of each host's answer, or why there is none, in order of the hosts. Never raises."""
    return list(await asyncio.gather(*(_ask(links, host, target, head) for host in hosts)))


async def _ask(links: Links, host: OtherHost, target: bytes, head: Sequence[tuple[bytes, bytes]]) -> bytes | Missing:
    if host.away:
        return Missing(host.name, host.away)
    try:
        async with asyncio.timeout(COLLECT_SECONDS):
            return await _get(links, host, target, head)
    except TimeoutError:
        why = f"{host.address}: no answer in time"
    except (Unreachable, _NoAnswer) as error:
        why = str(error)
    _log.info("host gave no answer", host=host.name, error=why)
    return Missing(host.name, why)


async def _get(links: Links, host: OtherHost, target: bytes, head: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the body of the answer. Raises Unreachable; _NoAnswer."""
    request = h11.Request(method="GET", target=target, headers=[(b"host", host.name.encode()), *head])
    while True:
        link = await links.open(host.name, host.address)
        try:
            await link.push(request, h11.EndOfMessage())
            status, body = await _read(link)
        except (OSError, h11.RemoteProtocolError) as error:
            link.close()
            if link.is_reused:  # an idle connection may have ended meanwhile; a read may be asked again
                continue
            is_refused = was_refused(link.writer.transport)
            why = (
                "it refuses this host's certificate; the log of that daemon says why"
                if is_refused
                else why_refused(error)
            )
            raise _NoAnswer(f"{host.address}: {why}") from error
        except BaseException:
            link.close()
            raise
        links.keep(link)
        if status != _OK:
            raise _NoAnswer(_refusal(status, body))
        return body


async def _read(link: Link) -> tuple[int, bytes]:
    """Return the status and the body of the answer. Raises OSError; h11.RemoteProtocolError; _NoAnswer."""
    status, body = (await link.head()).status_code, bytearray()
    while data := await link.piece():
        body += data
        if len(body) > _ANSWER_BYTES:
            raise _NoAnswer(f"its answer is larger than {_ANSWER_BYTES >> 20} MiB")
    return status, bytes(body)


def _refusal(status: int, body: bytes) -> str:
    """Return the message of an answer that is none."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    message = document.get("message") if isinstance(document, dict) else None
    return f"it answers {status}: {message}" if isinstance(message, str) else f"it answers {status}"


def _head(identity: bytes, trace: str) -> list[tuple[bytes, bytes]]:
    """Return the headers for the other daemons."""
    parent = f"00-{trace}-{secrets.token_hex(8)}-01".encode()
    return [(HEADER.encode(), identity), *([(b"traceparent", parent)] if trace else ())]
