"""Listeners of a test API, with authentication, as the daemon starts them."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.api.app import create_app
from controller.api.listeners import ListenerRules, Listeners
from controller.kinds.access.access import Grant
from tests.helpers_api import ApiStack

API = "/apis/paddock/v1alpha1"
ROOT = Path(__file__).resolve().parents[2]


def make_listeners(api: ApiStack, **rules: Any) -> Listeners:
    """Return listeners on the API's socket."""

    def make(who: Any) -> Any:
        return create_app(api.services, ready=lambda: api.checks, meter=api.meter, who=who)

    return Listeners(ListenerRules(api.socket, **rules), api.store.tokens, api.clock, make)


@contextmanager
def opened(api: ApiStack, **rules: Any) -> Iterator[Listeners]:
    """Start listeners on the API's socket."""
    listeners = make_listeners(api, **rules)
    listeners.start()
    try:
        yield listeners
    finally:
        listeners.stop()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for 127.0.0.1 in that folder, and its key. Skips the test without openssl."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    message = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=paddock -addext subjectAltName=IP:127.0.0.1"
    done = subprocess.run([*message.split(), "-keyout", key, "-out", cert], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("there is no openssl to make a certificate with")
    key.chmod(0o600)
    return cert, key


def token(api: ApiStack, role: str, *namespaces: str, name: str = "", **bounds: Any) -> str:
    """Return a new token with that grant."""
    grant = Grant.model_validate({"role": role, "namespaces": namespaces or ("*",), **bounds})
    number = len(api.store.tokens.all())
    return api.services.tokens.create(name or f"t{number}", grant, seconds=3600).text


@contextmanager
def client(api: ApiStack, text: str = "") -> Iterator[httpx.Client]:
    """Over the Unix socket; with a token where one is given, else as the user of this process."""
    headers = {"Authorization": f"Bearer {text}"} if text else {}
    transport = httpx.HTTPTransport(uds=str(api.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", headers=headers, timeout=60) as created:
        yield created


_AS_OTHER = """
import http.client, json, os, socket, sys
folder, uid, gid, groups, asked = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]), sys.argv[5]
os.chdir(folder)
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
client = http.client.HTTPConnection("paddock")
client.sock = socket.socket(socket.AF_UNIX)
client.sock.connect("p.sock")
client.request("GET", asked)
answer = client.getresponse()
print(json.dumps([answer.status, json.load(answer)]))
client.close()
"""


def asked_as(api: ApiStack, uid: int, gid: int, path: str, groups: Sequence[int] = ()) -> tuple[int, Any]:
    """Return the response to another user of this host. For root only, with a world-writable socket."""
    api.folder.chmod(0o755)
    arguments = [sys.executable, "-c", _AS_OTHER, str(api.folder), str(uid), str(gid), json.dumps(list(groups)), path]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    code, body = json.loads(done.stdout)
    return code, body
