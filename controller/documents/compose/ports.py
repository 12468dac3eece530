"""`ports:` of a Compose service. Each is forwarded from the loopback of the machine where `paddock compose` runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from controller.documents.compose.element import Element

_SHORT = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:.]*\]|[0-9]+(?:\.[0-9]+){3}):)?(?:(?P<host>[0-9-]*):)?(?P<port>[0-9-]+)(?:/(?P<protocol>[a-z]+))?\Z"
)
LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared, not bound
_LOCAL = (LOOPBACK, "[::1]", "::1", *_EVERYWHERE)
_MOST_PORTS = 100


@dataclass(frozen=True, slots=True)
class Published:
    """A published port: `local` at the loopback (0: any that is free), and the sandbox's own."""

    service: str
    sandbox: str
    local: int
    remote: int


def read_ports(ports: Element, service: str, sandbox: str) -> list[Published]:
    """Return the published ports, and note where they are; a problem for each that can't be forwarded."""
    published: list[Published] = []
    ports.note(f"`paddock compose up` opens them at {LOOPBACK} of the machine where it runs, and nowhere else")
    for port in ports.items():
        if port.node.fields is not None:
            pairs = _long(port)
        elif (text := port.text()) is not None:
            pairs = _short(port, text)
        else:
            continue
        for local, remote in pairs:
            published.append(Published(service, sandbox, local, remote))
    return published


def _short(element: Element, text: str) -> Iterator[tuple[int, int]]:
    match = _SHORT.match(text)
    if match is None:
        element.refuse(f'`{text}` is not a port; write "8080:80" or "127.0.0.1:8080:80"')
        return
    protocol, address = match["protocol"] or "tcp", match["ip"] or ""
    yield from _pairs(element, address, host=match["host"] or "", port=match["port"], protocol=protocol)


def _long(element: Element) -> Iterator[tuple[int, int]]:
    element.check_keys("target", "published", "host_ip", "protocol", "name", "app_protocol", "mode")
    children = {name: element.child(name) for name in ("target", "published", "host_ip", "protocol", "mode")}
    texts = {name: (child.text() or "") if child is not None else "" for name, child in children.items()}
    if texts["mode"] not in ("", "host", "ingress"):
        element.refuse("`mode` must be host; remove it")
    if not texts["target"]:
        element.refuse("needs a `target:`")
        return
    protocol = texts["protocol"] or "tcp"
    yield from _pairs(element, texts["host_ip"], host=texts["published"], port=texts["target"], protocol=protocol)


def _pairs(element: Element, address: str, host: str, port: str, protocol: str) -> Iterator[tuple[int, int]]:
    remotes, locals_ = _range(port), _range(host) if host else (0,)
    if protocol != "tcp":
        element.refuse(f"{protocol} is not forwarded, only tcp is; remove it")
    elif not remotes or not locals_:
        element.refuse("must be from 1 to 65535, or a range of at most 100 such as 8000-8010")
    elif address not in _LOCAL:
        element.refuse(f'would listen at {address}; ports are opened at {LOOPBACK} alone: write "{host}:{port}"')
    elif len(locals_) not in (1, len(remotes)) or (len(remotes) > 1 and locals_ not in ((0,), locals_[: len(remotes)])):
        element.refuse("must have as many ports on both sides")
    else:
        if len(locals_) != len(remotes):
            locals_ = (0,) * len(remotes)
        yield from zip(locals_, remotes, strict=True)


def _range(text: str) -> tuple[int, ...]:
    """Return the ports of `80` or `80-90`; none for anything else."""
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()) or len(text) > 11:
        return ()
    ports = range(int(first), int(last or first) + 1)
    return tuple(ports) if 1 <= ports.start <= ports.stop - 1 <= 65535 and len(ports) <= _MOST_PORTS else ()
