"""`ports:` of a Compose service. Paddock publishes none by itself: a client forwards them (`paddock port-forward`)."""

import re

from controller.documents.compose.part import Part

_SHORT = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:.]*\]|[0-9]+(?:\.[0-9]+){3}):)?(?:(?P<host>[0-9-]*):)?(?P<port>[0-9-]+)(?:/(?P<protocol>[a-z]+))?\Z"
)
_LOOPBACK = "127.0.0.1"


def read_ports(part: Part, sandbox: str) -> None:
    """Add a note for each port that can be forwarded, and a problem for each other one."""
    for each in part.items():
        if each.node.fields is not None:
            _long(each, sandbox)
        elif (text := each.text()) is not None:
            found = _SHORT.match(text)
            if found is None:
                each.refuse(f'`{text}` is not a port; write "127.0.0.1:8080:80"')
            else:
                _port(each, sandbox, found["ip"] or "", found["host"] or "", found["port"], found["protocol"] or "tcp")


def _long(part: Part, sandbox: str) -> None:
    part.known("target", "published", "host_ip", "protocol", "name", "app_protocol", "mode")
    given = {name: part.child(name) for name in ("target", "published", "host_ip", "protocol", "mode")}
    texts = {name: (each.text() or "") if each is not None else "" for name, each in given.items()}
    if texts["mode"] not in ("", "host", "ingress"):
        part.refuse("`mode` must be host; remove it")
    if not texts["target"]:
        part.refuse("needs a `target:`")
        return
    _port(part, sandbox, texts["host_ip"], texts["published"], texts["target"], texts["protocol"] or "tcp")


def _port(part: Part, sandbox: str, address: str, host: str, port: str, protocol: str) -> None:
    if protocol != "tcp":
        part.refuse(f"{protocol} is not forwarded; only tcp is")
    elif "-" in host or "-" in port:
        part.refuse("is a range; write each port")
    elif not _valid(port) or (host and not _valid(host)):
        part.refuse("must be from 1 to 65535")
    elif host and address != _LOOPBACK:
        where = f"at {address}" if address else "at every address of the host"
        part.refuse(f'would listen {where}; write "{_LOOPBACK}:{host}:{port}"')
    elif address not in ("", _LOOPBACK):
        part.refuse(f'would listen at {address}; write "{_LOOPBACK}::{port}"')
    else:
        local = f"{host}:{port}" if host and host != port else port
        part.note(f"nothing listens on the host by itself: `paddock port-forward {sandbox} {local}` opens it")


def _valid(text: str) -> bool:
    return text.isdigit() and 1 <= int(text) <= 65535
