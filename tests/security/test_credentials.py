"""Credentials of a sandbox: added by its proxy for one host alone, and nowhere inside."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.common.labels import container_name, egress_name
from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.lab import inet
from tests.lab.core import core_has, core_limits
from tests.lab.internet import Lab, impossible
from tests.mounts import unmount_below

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
KEY, OTHER_KEY = 'canary-7f3b"\\%c1', "canary-91d0e2"
# Status of each request through the proxy, as Python's own client asks, and who signed what it was shown.
CLIENT = """
import base64, http.client, json, os, socket, ssl, sys
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
seconds = float(sys.argv[2])

def ask(method, url, headers={}, inside=None):
    url = urlsplit(url)
    if url.scheme == "https":
        link = http.client.HTTPSConnection(proxy.hostname, proxy.port, timeout=seconds)
        link.set_tunnel(url.hostname, 443)
        target = inside or url.path
    else:
        link = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=seconds)
        target = url.geturl()
    try:
        link.request(method, target, headers=headers, body=b"x" * 70000 if method == "POST" else None)
        signed = dict(each[0] for each in link.sock.getpeercert()["issuer"]) if url.scheme == "https" else {}
        answer = link.getresponse()
        return [answer.status, signed.get("commonName", ""), 0 if inside else len(answer.read())]
    except (OSError, http.client.HTTPException) as error:
        return [type(error).__name__, "", 0]

print(json.dumps([ask(*each) for each in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    place.load("paddock/python:1")
    settings = {
        "PADDOCK_RESYNC_SECONDS": "2",
        "PADDOCK_SECRETS_DIR": str(place.folder / "secrets"),
        "PADDOCK_LOG_LEVEL": "debug",
        "SSL_CERT_FILE": str(place.folder / "cert.pem"),  # the authorities that this host trusts
    }
    created = place.daemon(place.folder / "credentials", **settings)
    for host, key in (("git.example.org", KEY), ("other.example.org", OTHER_KEY), ("wild.example.net", KEY)):
        created.paddock("secret", "set", "token", "--for", host, stdin=key)
    yield created
    created.stop()
    place.remove_containers()
    unmount_below(Path("/run/paddock/mounts") / created.instance_id())


def apply(daemon: RunningDaemon, name: str, *credentials: dict[str, Any], image: str = "paddock/python:1") -> None:
    hosts = ["git.example.org", "other.example.org", "packages.example.org", "wild.example.net"]
    spec = {
        "template": {"image": image, "command": ["sleep", "100000"]},
        "securityLevel": "development",
        "resources": {"limits": {"memory": "256Mi", "cpu": "500m"}},
        "network": {"allowedHosts": hosts},
        "credentials": list(credentials),
        "lifecycle": {"shutdownGracePeriodSeconds": 0},
    }
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec}
    daemon.apply(json.dumps(document))


def credential(host: str, **more: Any) -> dict[str, Any]:
    return {"host": host, "secretRef": {"name": "token"}, **more}


def asks(daemon: RunningDaemon, name: str, *requests: list[Any], seconds: float = 60) -> list[Any]:
    """Send requests one after the other; each waits for its answer for `seconds` at most."""
    program = ("python3", "-c", CLIENT, json.dumps(requests), str(seconds))
    answers: list[Any] = json.loads(daemon.paddock("exec", name, "--", *program, seconds=120).stdout)
    return answers


def until_proxied(daemon: RunningDaemon, name: str) -> None:
    """Wait until its proxy answers. A packet to one that has no network yet is lost: it is soon sent again."""
    daemon.paddock("wait", "--for=condition=NetworkReady", "--timeout=90s", f"sandbox/{name}")
    request = ["GET", "https://packages.example.org/"]
    wait_for("its proxy answers", lambda: asks(daemon, name, request, seconds=3)[0][0] == 404, 60)


@pytest.fixture(scope="module")
def sandbox(daemon: RunningDaemon) -> str:
    apply(daemon, "agent", credential("git.example.org"), credential("other.example.org", header="X-Token"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/agent")
    until_proxied(daemon, "agent")
    return "agent"


def asked(place: Lab, since: int) -> list[tuple[str, str, str]]:
    """Return the requests that reached the Internet: the URL's host and path, Authorization and X-Token."""
    observed = [document for document in place.log()[since : place.mark()] if "asked" in document]
    return [(e["asked"], e["headers"].get("authorization", ""), e["headers"].get("x-token", "")) for e in observed]


def test_the_header_is_added_for_its_host_alone(place: Lab, daemon: RunningDaemon, sandbox: str) -> None:
    since, own_document = place.mark(), {"Authorization": "Bearer mine", "X-Token": "mine"}
    answers = asks(
        daemon, sandbox,
        ["GET", "https://git.example.org/a", own_document],
        ["POST", "https://other.example.org/b", own_document],
        ["GET", "https://packages.example.org/c", own_document],
    )  # fmt: skip
    signer = "Paddock of this host"
    assert [(status, signed) for status, signed, _ in answers] == [(200, signer), (200, signer), (404, "lab")]
    assert asked(place, since) == [
        ("git.example.org/a", f"Bearer {KEY}", "mine"),
        ("other.example.org/b", "Bearer mine", OTHER_KEY),
        ("packages.example.org/c", "Bearer mine", "mine"),
    ]


def test_no_request_carries_it_to_another_place(place: Lab, daemon: RunningDaemon, sandbox: str) -> None:
    since = place.mark()
    answers = asks(
        daemon, sandbox,
        ["GET", "http://git.example.org/plain"],
        ["GET", "https://git.example.org/listed", {"Host": "packages.example.org"}],
        ["GET", "https://git.example.org/unlisted", {"Host": "evil.example.org"}],
        ["TRACE", "https://git.example.org/trace"],
        ["GET", "https://packages.example.org/inner", {"Host": "git.example.org"}],
    )  # fmt: skip
    assert [status for status, _, _ in answers] == [403, 403, 403, 403, 404]
    assert [(at, key) for at, key, _ in asked(place, since)] == [("git.example.org/inner", "")]


def test_no_tunnel_begins_inside_a_decrypted_connection(place: Lab, daemon: RunningDaemon, sandbox: str) -> None:
    since, hosts = place.mark(), ("git.example.org", "other.example.org", "packages.example.org", "evil.example.org")
    targets = [f"{host}:{port}" for host in hosts for port in (443, 80, 22)]
    answers = asks(daemon, sandbox, *(["CONNECT", "https://git.example.org/", {}, target] for target in targets))
    assert {target: status for target, (status, *_) in zip(targets, answers, strict=True)} == dict.fromkeys(
        targets, 403
    )
    assert asked(place, since) == []
    assert {port for _, port in place.packets(since)} <= {53}


def test_an_upstream_with_a_wrong_certificate_gets_nothing(place: Lab, daemon: RunningDaemon) -> None:
    apply(daemon, "wrong", credential("wild.example.net"))
    until_proxied(daemon, "wrong")
    since = place.mark()
    [[status, _, _]] = asks(daemon, "wrong", ["GET", "https://wild.example.net/a"])
    assert status == 503
    assert asked(place, since) == []
    daemon.paddock("delete", "sandbox", "wrong", "--wait=false")


def test_pip_trusts_the_proxy(place: Lab, daemon: RunningDaemon) -> None:
    apply(daemon, "pip", credential("git.example.org", scheme="Basic", user="me"))
    until_proxied(daemon, "pip")
    since = place.mark()
    command = (
        "python3",
        "-m",
        "pip",
        "download",
        "--retries=0",
        "--index-url=https://git.example.org/simple",
        "nothing",
    )
    done = daemon.paddock("exec", "pip", "--", *command, check=False, seconds=120)
    assert "SSL" not in done.stdout + done.stderr
    [(at, key, _)] = [group for group in asked(place, since) if "simple" in group[0]]
    assert (at, key.startswith("Basic ")) == ("git.example.org/simple/nothing/", True)


def test_the_key_is_nowhere_inside(place: Lab, daemon: RunningDaemon, sandbox: str) -> None:
    uid = str(daemon.get(sandbox)["metadata"]["uid"])
    keys = [KEY.encode(), OTHER_KEY.encode(), json.dumps(KEY).strip('"').encode()]
    containers = container_name(sandbox, uid), egress_name(uid)
    outputs = [place.docker("inspect", container) + place.docker("logs", container) for container in containers]
    outputs += [
        daemon.paddock(*what).stdout for what in (("audit",), ("events",), ("get", "sandbox", sandbox, "-o", "yaml"))
    ]
    outputs += ["".join(daemon.log)]
    assert not [output[:80] for output in outputs if any(key in output.encode() for key in keys)]
    inside = "find /etc/paddock /workspace /tmp /home /run -type f | xargs cat; cat /proc/[0-9]*/[ec][nm][vd]*"
    printed = daemon.paddock(
        "exec", sandbox, "--", "sh", "-c", f"({inside}) 2>/dev/null | base64 -w0", seconds=60
    ).stdout
    observed = subprocess.run(["base64", "-d"], input=printed.encode(), capture_output=True, check=True).stdout
    assert b"BEGIN CERTIFICATE" in observed
    assert b"PRIVATE KEY" not in observed
    assert not any(key in observed for key in keys)
    pid = int(json.loads(place.docker("inspect", containers[0]))[0]["State"]["Pid"])
    assert not core_has(pid, keys)
    proxy = [int(name) for name in place.docker("top", containers[1], "-eo", "pid").split()[1:]]
    assert any(core_has(number, keys) for number in proxy)  # the only place that has it, and that writes no core either
    assert {core_limits(number) for number in (pid, *proxy)} == {("0", "0")}
    stored = [path for path in daemon.folder.rglob("*") if path.is_file()]
    assert [path for path in stored if any(key in path.read_bytes() for key in keys)] == []


# One program of each kind in paddock/toolchain:1. None finds what it asks for: that it got an answer is enough.
PROGRAMS = {
    "curl": ["curl", "-sS", "--max-time", "60", "{url}"],
    "git": ["git", "ls-remote", "{url}"],
    "npm": ["npm", "view", "--fetch-retries=0", "--cache=/tmp/npm", "--registry={url}", "nothing"],
    "node": ["node", "--eval", "{node}", "{url}"],
}
NODE = r"""
const url = new URL(process.argv[1]), proxy = new URL(process.env.HTTPS_PROXY), servername = url.host
const request = `GET ${url.pathname} HTTP/1.1\r\nHost: ${servername}\r\nConnection: close\r\n\r\n`
require("http").request({host: proxy.hostname, port: proxy.port, method: "CONNECT", path: servername + ":443"})
  .on("connect", (_, socket) => {
    const link = require("tls").connect({socket, servername}, () => link.write(request))
    link.on("data", () => link.destroy())
  })
  .end()
"""


@pytest.mark.images
@pytest.mark.timeout(600)
def test_each_program_trusts_the_proxy_and_sends_it_there_alone(place: Lab, daemon: RunningDaemon) -> None:
    place.engine.load("paddock/toolchain:1")
    apply(daemon, "tools", credential("git.example.org"), image="paddock/toolchain:1")
    daemon.paddock("wait", "--for=condition=NetworkReady", "--timeout=90s", "sandbox/tools")
    for program, command in PROGRAMS.items():
        for host, sent in (("git.example.org", {f"Bearer {KEY}"}), ("packages.example.org", {""})):
            url, since = f"https://{host}/{program}/", place.mark()
            arguments = [name.replace("{url}", url).replace("{node}", NODE) for name in command]
            done = daemon.paddock("exec", "tools", "--", *arguments, check=False, seconds=120)
            keys = {key for at, key, _ in asked(place, since) if at.startswith(f"{host}/{program}/")}
            assert keys == sent, (program, host, done.stdout, done.stderr)
    daemon.paddock("delete", "sandbox", "tools", "--wait=false")


def test_a_changed_secret_is_used_and_a_deleted_one_ends_it(place: Lab, daemon: RunningDaemon) -> None:
    def sent(expected: str) -> bool:
        """True once a request carried that; none may carry another one that was replaced."""
        since = place.mark()
        [[status, _, _]] = asks(daemon, "rotated", ["GET", "https://other.example.org/rotated"], seconds=3)
        keys = [key for _, key, _ in asked(place, since)]
        return (status, keys) == (200, [f"Bearer {expected}"])

    def network() -> dict[str, Any]:
        return daemon.condition("rotated", "NetworkReady")

    set_it = ("secret", "set", "rotating", "--for", "other.example.org")
    daemon.paddock(*set_it, stdin="first-c4")
    apply(daemon, "rotated", {"host": "other.example.org", "secretRef": {"name": "rotating"}})
    daemon.paddock("wait", "--for=condition=NetworkReady", "--timeout=90s", "sandbox/rotated")
    wait_for("its proxy sends the secret", lambda: sent("first-c4"), 60)
    own_text = container_name("rotated", str(daemon.get("rotated")["metadata"]["uid"]))
    run = place.docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", own_text)
    daemon.paddock(*set_it, stdin="second-c4")
    wait_for("its proxy sends the new one", lambda: sent("second-c4"), 60)
    daemon.paddock("secret", "delete", "rotating", "--for", "other.example.org")
    wait_for("it says why", lambda: network().get("reason") == "SecretMissing", 60)
    assert "paddock secret set rotating --for other.example.org" in network()["message"]
    since = place.mark()
    requests = [["GET", f"https://{host}.example.org/gone"] for host in ("other", "packages")]
    answers = asks(daemon, "rotated", *requests, seconds=3)
    assert [status for status, _, _ in answers if isinstance(status, int)] == []
    assert asked(place, since) == []
    daemon.paddock(*set_it, stdin="third-c4")
    wait_for("its proxy sends the third", lambda: sent("third-c4"), 60)
    assert place.docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", own_text) == run  # the sandbox ran on
    daemon.paddock("delete", "sandbox", "rotated", "--wait=false")


def test_a_missing_secret_is_said_and_nothing_starts(daemon: RunningDaemon) -> None:
    apply(daemon, "keyless", {"host": "git.example.org", "secretRef": {"name": "nothing"}})

    def reason() -> Any:
        condition = daemon.condition("keyless", "Ready")
        return condition if condition.get("reason") == "SecretMissing" else None

    message = wait_for("it says why", reason, 60)["message"]
    assert "paddock secret set nothing --for git.example.org -n default" in message
    daemon.paddock("secret", "set", "nothing", "--for", "git.example.org", stdin="late")
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/keyless")
    assert "git.example.org" in daemon.paddock("secret", "list").stdout


def test_example_scraper_reaches_the_allowed_host_alone(place: Lab, daemon: RunningDaemon) -> None:
    since = place.mark()
    urls = ("http://git.example.org/", "http://other.example.org/")
    command = [sys.executable, "-W", "error", str(ROOT / "controller/client/examples/scraper.py"), *urls]
    done = subprocess.run(command, env=daemon.environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    line, message = done.stdout.splitlines()
    assert line == "http://git.example.org/ -> the internet"
    assert "403: paddock: other.example.org is not in this sandbox's allowed hosts" in message
    assert (inet.GIT, 80) in place.packets(since)
    assert (inet.OTHER, 80) not in place.packets(since)
