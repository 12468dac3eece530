"""Previews: host names of sandboxes' ports, and signed tokens for them."""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal

from controller.kinds.runtime.agent import PORT as AGENT_PORT
from controller.kinds.runtime.models import PORT as MODELS_PORT

PARAMETER, COOKIE, HEADER = "paddock-preview", "__Host-paddock-preview", "x-paddock-preview-token"
FRAME_COOKIE = "__Host-paddock-preview-frame"  # of a preview in a frame of another site's page
MOST_SECONDS, DEFAULT_SECONDS = 7 * 86_400, 8 * 3_600
Purpose = Literal["link", "cookie", "frame"]
_NAME = r"[a-z0-9](?:[a-z0-9]|-(?!-))*"
_LABEL = re.compile(rf"([0-9]{{3,5}})--({_NAME})--({_NAME})--[a-z2-7]{{8}}")
_HASHED = re.compile(r"p-[a-z2-7]{32}")
_MOST_LABEL, _MAC_BYTES, _LABEL_BYTES, _UID_BYTES = 63, 24, 20, 5
_TOKEN = re.compile(r"([0-9]{1,12})\.([0-9a-f]{12}|u[0-9]{1,10}|-)\.([A-Za-z0-9_-]{32})(?:\.([A-Za-z0-9_-]{1,400}))?")
_REFUSED = {
    AGENT_PORT: "it is the agent's, and whoever has a link could run commands",
    MODELS_PORT: "it is the model gateway's, and whoever has a link could use paid models",
}


@dataclass(frozen=True, slots=True)
class PreviewTarget:
    """A port of a sandbox."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class PreviewToken:
    """The parts of a token. `maker` is the id of the maker's own token, `u` and the uid for a user of the host, or `-`.

    `target` is written out where the host name can't say it.
    """

    expires: int
    maker: str
    mac: str
    target: PreviewTarget | None = None


def port_refused(port: int) -> str:
    """Return why this port gets no preview; empty if it may."""
    if not 1 <= port <= 65535:
        return f"a port is a number from 1 to 65535, not {port}"
    return f"port {port} has no previews: {_REFUSED[port]}" if port in _REFUSED else ""


def label_of(target: PreviewTarget, uid: str) -> str:
    """Return the first label of the host name of the sandbox of this uid.

    It ends with a hash of the uid: a later sandbox of the name is another origin, which the pages, the service workers
    and the data of this one can't reach. A port has three digits at least: some libraries refuse `80--`.
    """
    plain = f"{target.port:03d}--{target.name}--{target.namespace}--{_hash(uid.encode(), _UID_BYTES)}"
    if len(plain) <= _MOST_LABEL and "--" not in target.name and "--" not in target.namespace:
        return plain
    return "p-" + _hash(_text("label", target) + b"\0" + uid.encode(), _LABEL_BYTES)


def _hash(data: bytes, size: int) -> str:
    return base64.b32encode(hashlib.sha256(data).digest()[:size]).decode().lower()


def target_of(label: str) -> PreviewTarget | None:
    """Return the target of a label; None for one that does not say it (a hash) or is none of ours."""
    match = _LABEL.fullmatch(label)
    if match is None or len(label) > _MOST_LABEL:
        return None
    target = PreviewTarget(match[3], match[2], int(match[1]))
    return target if not port_refused(target.port) and f"{target.port:03d}" == match[1] else None


def is_label(label: str) -> bool:
    """Return True for a label that previews have."""
    return target_of(label) is not None or _HASHED.fullmatch(label) is not None


def sign(key: bytes, purpose: Purpose, target: PreviewTarget, uid: str, counter: int, expires: int, maker: str) -> str:
    """Return a token. It holds for this uid and counter of the sandbox."""
    text = "\0".join((uid, str(counter), str(expires), maker)).encode()
    mac = hmac.new(key, _text(purpose, target) + b"\0" + text, hashlib.sha256).digest()[:_MAC_BYTES]
    token = f"{expires}.{maker}.{base64.urlsafe_b64encode(mac).decode()}"
    if target_of(label_of(target, uid)) is not None:
        return token
    target_text = f"{target.port}/{target.name}/{target.namespace}"
    return f"{token}.{base64.urlsafe_b64encode(target_text.encode()).decode().rstrip('=')}"


def parse_token(text: str) -> PreviewToken | None:
    """Return the parts of a token; None if it is none."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        return None
    target = None
    if match[4]:
        try:
            target_text = base64.urlsafe_b64decode(match[4] + "=" * (-len(match[4]) % 4)).decode()
            port, name, namespace = target_text.split("/")
            target = PreviewTarget(namespace, name, int(port))
        except ValueError:
            return None
    return PreviewToken(int(match[1]), match[2], match[3], target)


def _text(purpose: str, target: PreviewTarget) -> bytes:
    parts = ("paddock preview 1", purpose, target.namespace, target.name, str(target.port))
    return "\0".join(parts).encode()
