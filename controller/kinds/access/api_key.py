"""API keys in E2B's form: a token as `e2b_` and hexadecimal digits. Clients of E2B up to 2.40 accept no other."""

import base64
import re

_KEY = re.compile(r"e2b_([0-9a-f]{12})([0-9a-f]{64})\Z")
_TOKEN = re.compile(r"pdk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")
_LONGEST = 128  # longer texts are not parsed


def key_of(token: str) -> str:
    """Return the API key of a token; "" for a text that is none."""
    match = _TOKEN.match(token) if len(token) <= _LONGEST else None
    return f"e2b_{match[1]}{base64.urlsafe_b64decode(match[2] + '=').hex()}" if match else ""


def token_of(key: str) -> str:
    """Return the token of an API key; any other text as it is: it may be a token."""
    match = _KEY.match(key) if len(key) <= _LONGEST else None
    if match is None:
        return key
    secret = base64.urlsafe_b64encode(bytes.fromhex(match[2])).decode().rstrip("=")
    return f"pdk_{match[1]}_{secret}"
