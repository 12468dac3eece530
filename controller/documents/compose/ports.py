"""`ports:` of a Compose service. Paddock publishes none by itself: a client forwards them (`paddock port-forward`)."""

import re

from controller.documents.compose.element import Element

_SHORT = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:.]*\]|[0-9]+(?:\.[0-9]+){3}):)?(?:(?P<host>[0-9-]*):)?(?P<port>[0-9-]+)(?:/(?P<protocol>[a-z]+))?\Z"
)
_LOOPBACK = "127.0.0.1"


def read_ports(ports: Element, sandbox: str) -> None:
    """Add a note for each port that can be forwarded, and a problem for each other one."""
    for port in ports.items():
        if port.node.fields is not None:
            _long(port, sandbox)
        elif (text := port.text()) is not None:
            match = _SHORT.match(text)
            if match is None:
                port.refuse(f'`{text}` is not a port; write "127.0.0.1:8080:80"')
            else:
                _port(
                    port,
                    sandbox,
                    match["ip"] or "",
                    host=match["host"] or "",
                    port=match["port"],
                    protocol=match["protocol"] or "tcp",
                )


def _long(element: Element, sandbox: str) -> None:
    element.check_keys("target", "published", "host_ip", "protocol", "name", "app_protocol", "mode")
    children = {name: element.child(name) for name in ("target", "published", "host_ip", "protocol", "mode")}
    texts = {name: (child.text() or "") if child is not None else "" for name, child in children.items()}
    if texts["mode"] not in ("", "host", "ingress"):
        element.refuse("`mode` must be host; remove it")
    if not texts["target"]:
        element.refuse("needs a `target:`")
        return
    _port(
        element,
        sandbox,
        texts["host_ip"],
        host=texts["published"],
        port=texts["target"],
        protocol=texts["protocol"] or "tcp",
    )


def _port(element: Element, sandbox: str, address: str, host: str, port: str, protocol: str) -> None:
    if protocol != "tcp":
        element.refuse(f"{protocol} is not forwarded; only tcp is")
    elif "-" in host or "-" in port:
        element.refuse("is a range; write each port")
    elif not _valid(port) or (host and not _valid(host)):
        element.refuse("must be from 1 to 65535")
    elif host and address != _LOOPBACK:
        where = f"at {address}" if address else "at every address of the host"
        element.refuse(f'would listen {where}; write "{_LOOPBACK}:{host}:{port}"')
    elif address not in ("", _LOOPBACK):
        element.refuse(f'would listen at {address}; write "{_LOOPBACK}::{port}"')
    else:
        local = f"{host}:{port}" if host and host != port else port
        element.note(f"nothing listens on the host by itself: `paddock port-forward {sandbox} {local}` opens it")


def _valid(text: str) -> bool:
    return text.isdigit() and 1 <= int(text) <= 65535
