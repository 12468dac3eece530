"""Authorisation on every listener: objects the caller may not read return 404."""

import os
import random
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import unix_connect

from controller.api.server.server import SocketTaken
from controller.kinds.access.access import PeerGrant
from tests.api.listeners import API, asked_as, certificate, client, make_listeners, opened, token
from tests.examples import examples
from tests.helpers_api import QUICKSTART, ApiStack

IN_B = QUICKSTART.replace("name: quickstart", "name: secret-box\n  namespace: team-b")
B = f"{API}/namespaces/team-b/sandboxes"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")


@pytest.fixture
def two(api: ApiStack) -> ApiStack:
    """A sandbox in `default`, and one in `team-b`."""
    api.apply()
    api.apply(IN_B)
    return api


def apply(made: httpx.Client, text: str = QUICKSTART, **more: Any) -> httpx.Response:
    return made.post(f"{API}/apply", json={"documents": [{"file": "a.yaml", "text": text}], **more})


def test_the_owner_of_the_daemon_goes_on_as_before(two: ApiStack) -> None:
    with opened(two), client(two) as root:
        assert root.get(f"{B}/secret-box").status_code == 200
        assert apply(root, QUICKSTART.replace("500m", "400m")).status_code == 200
        document = root.get(f"{API}/auth/whoami").json()
        assert document["grants"] == [{"role": "admin", "namespaces": ["*"]}]
        assert document["source"] == f"unix pid {os.getpid()} uid {os.getuid()}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PUT", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/logs"),
        ("GET", "/why"),
    ],
)
def test_forbidden_and_unknown_are_answered_alike(two: ApiStack, method: str, path: str) -> None:
    body = {"metadata": {"name": "secret-box"}} if method in ("PUT", "PATCH") else None
    headers = {"Content-Type": "application/merge-patch+json"}
    with opened(two), client(two, token(two, "admin", "team-a")) as second:
        answer = second.request(method, f"{B}/secret-box{path}", json=body, headers=headers)
        absent = second.request(method, f"{B}/no-such-ox{path}", json=body, headers=headers)
        own_response = second.get(f"{API}/namespaces/team-a/sandboxes/secret-box")
    assert answer.status_code == absent.status_code == own_response.status_code == 404
    assert answer.text.replace("secret-box", "no-such-ox") == absent.text
    assert own_response.text == answer.text.replace("team-b", "team-a") or method != "GET" or path
    anew = {name: answer.headers[name] for name in ("date", "x-trace-id")}
    assert dict(answer.headers) == dict(absent.headers) | anew
    assert two.sandbox("secret-box", "team-b").deleted_at is None


def test_collections_elsewhere_are_refused_whether_or_not_anything_is_there(two: ApiStack) -> None:
    with opened(two), client(two, token(two, "operator", "team-a")) as second:
        for query in ("", "?watch=true"):
            response, empty = second.get(f"{B}{query}"), second.get(f"{API}/namespaces/team-c/sandboxes{query}")
            assert response.status_code == empty.status_code == 403
            assert response.text.replace("team-b", "team-c") == empty.text
        for path in ("sandboxes", "sandboxes?watch=1", "instances", "events"):
            assert second.get(f"{API}/{path}").status_code == 403
            assert second.get(f"{API}/namespaces/team-b/{path}").status_code == 403
        assert second.get(f"{API}/namespaces/team-a/sandboxes").json()["items"] == []
        assert second.delete(B).status_code == 403
    assert two.sandbox("secret-box", "team-b").deleted_at is None


def test_apply_and_diff_ask_for_each_document_and_look_at_nothing_before(two: ApiStack) -> None:
    mine = QUICKSTART.replace("name: quickstart", "name: mine\n  namespace: team-a")
    with opened(two), client(two, token(two, "user", "team-a")) as user:
        for route in ("apply", "diff"):
            documents = [{"file": "a.yaml", "text": f"{mine}---\n{IN_B}"}]
            answer = user.post(f"{API}/{route}", json={"documents": documents})
            assert answer.status_code == 403
            (cause,) = answer.json()["details"]["causes"]
            assert "it needs the role user in namespace `team-b`" in cause["message"]
            absent = user.post(f"{API}/{route}", json={"documents": [{"file": "a.yaml", "text": answer_free()}]})
            assert absent.status_code == 403
        assert apply(user, mine).status_code == 200
        assert apply(user, QUOTA).status_code == 403
        assert apply(user, TEMPLATE).status_code == 403
    assert two.store.get("Quota", "team-a", "q") is None


QUOTA = "{apiVersion: paddock/v1alpha1, kind: Quota, metadata: {name: q, namespace: team-a}, spec: {hard: {cpu: 99}}}"
TEMPLATE = (
    "{apiVersion: paddock/v1alpha1, kind: SandboxTemplate, metadata: {name: t, namespace: team-a}, spec: {image: a}}"
)


def answer_free() -> str:
    return IN_B.replace("secret-box", "no-such-ox")


def test_pruning_reaches_no_further_than_its_caller(two: ApiStack) -> None:
    with opened(two):
        with client(two) as root:
            assert apply(root, IN_B, applySet="web").status_code == 200
        with client(two, token(two, "admin", "team-a")) as second:
            mine = QUICKSTART.replace("name: quickstart", "name: mine\n  namespace: team-a")
            answer = apply(second, mine, applySet="web", prune=True)
    assert answer.status_code == 403
    assert "secret-box" not in answer.text
    assert "team-b" not in answer.text
    assert two.sandbox("secret-box", "team-b").deleted_at is None
    assert two.store.get("Sandbox", "team-a", "mine") is None


def test_grant_bounds_hold_on_every_endpoint(two: ApiStack) -> None:
    bounds = {"images": ["paddock/python:1"], "limits": {"memory": "512Mi"}}
    patch = {"Content-Type": "application/merge-patch+json"}
    mine = f"{API}/namespaces/default/sandboxes"
    with opened(two), client(two, token(two, "user", "default", **bounds)) as user:
        assert apply(user, QUICKSTART.replace("500m", "300m")).status_code == 200
        for answer in (
            apply(user, QUICKSTART.replace("python:1", "other:1")),
            apply(user, QUICKSTART.replace("512Mi", "1Gi")),
            user.post(
                mine,
                content=QUICKSTART.replace("name: quickstart", "name: new").replace("512Mi", "1Gi"),
                headers={"Content-Type": "application/yaml"},
            ),
            user.patch(f"{mine}/quickstart", json={"spec": {"template": {"image": "x:1"}}}, headers=patch),
            user.patch(
                f"{mine}/quickstart", json={"spec": {"resources": {"limits": {"memory": "2Gi"}}}}, headers=patch
            ),
        ):
            assert answer.status_code == 422, answer.text
            assert "you may request" in answer.text or "not one of your images" in answer.text


def exec_status(api: ApiStack, text: str, name: str, namespace: str) -> tuple[int, bytes]:
    path = f"ws://paddock{API}/namespaces/{namespace}/sandboxes/{name}/exec?command=true"
    try:
        with unix_connect(str(api.socket), uri=path, additional_headers={"Authorization": f"Bearer {text}"}) as created:
            list(created)
            return 101, b""
    except InvalidStatus as error:
        return error.response.status_code, bytes(error.response.body or b"")


def test_exec_over_a_websocket(two: ApiStack) -> None:
    two.view.show(two.sandbox())
    with opened(two):
        assert exec_status(two, token(two, "user", "default"), "quickstart", "default")[0] == 101
        assert exec_status(two, token(two, "viewer", "default"), "quickstart", "default")[0] == 403
        second = token(two, "admin", "team-a")
        present, absent = (exec_status(two, second, entry, "team-b") for entry in ("secret-box", "no-such-ox"))
        assert present[0] == 404
        assert present[1].replace(b"secret-box", b"no-such-ox") == absent[1]
        assert exec_status(two, "pdk_000000000000_" + "A" * 43, "quickstart", "default")[0] == 401
    assert len(two.streams.asked) == 1


@pytest.mark.parametrize("body", [{"command": ["true"], "tool": "exec", "method": "tools/list"}, {}, []])
def test_work_in_sandboxes_is_refused_before_its_body(two: ApiStack, body: Any) -> None:
    two.view.show(two.sandbox(), agent="paddock-agent-1")
    viewers, remaining = token(two, "viewer", "default"), token(two, "admin", "team-a")
    with opened(two), client(two, viewers) as viewer, client(two, remaining) as second:
        for sub in ("exec", "mcp/execute", "mcp"):
            answer = viewer.post(f"{API}/namespaces/default/sandboxes/quickstart/{sub}", json=body)
            assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden")
            names = ("secret-box", "no-such-ox")
            response, absent = (second.post(f"{B}/{name}/{sub}", json=body) for name in names)
            assert response.status_code == 404
            assert response.text.replace("secret-box", "no-such-ox") == absent.text
    assert not two.streams.asked
    entries = [
        entry for entry in two.store.audit.entries() if entry.outcome == "allowed" and entry.verb in ("exec", "mcp")
    ]
    assert entries == []


def test_a_bad_token_is_not_made_good_by_the_user_who_sends_it(two: ApiStack) -> None:
    with opened(two), client(two, "pdk_000000000000_" + "A" * 43) as root:
        answer = root.get(f"{B}/secret-box")
        assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert root.get("/healthz").status_code == 200
        for path in ("/readyz", "/version", "/openapi.json", "/docs", "/nothing", f"{API}/tokens"):
            assert root.get(path).status_code == 401
    both = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]
    with opened(two), client(two) as root:
        assert root.get("/version", headers=both).status_code == 400


# A caller's own keys give no more than the caller has.
_OF_CALLERS = (f"{API}/auth/whoami", f"{API}/auth/can-i", f"{API}/ssh/keys")
OPEN = {"/healthz", "/readyz", "/version", "/openapi.json", API, *_OF_CALLERS}


def test_no_route_is_open_to_somebody_to_whom_nothing_here_is_granted(two: ApiStack) -> None:
    """Every route that the application describes, and those that it does not."""
    with opened(two), client(two) as root, client(two, token(two, "admin", "elsewhere")) as second:
        described = root.get("/openapi.json").json()["paths"]
        number = 0
        for path, operations in described.items():
            if path in OPEN or path in (f"{API}/apply", f"{API}/diff", f"{API}/images/pull"):
                continue
            plain = path.replace("{namespace}", "team-b").replace("{name}", "secret-box").replace("{id}", "0a1b2c3d")
            plain = plain.replace("{port}", "80").replace("{path}", "index.html")
            plain = plain.replace("{artifact}", "dist").replace("{context}", "python")
            plain = plain.replace("{fingerprint}", "SHA256:x")
            assert "{" not in plain, f"a parameter of {path} is new: say here what stands for it"
            for method in operations:
                query = {"image": "secret:1"} if plain.endswith("/images/inspect") else None
                answer = second.request(method, plain, params=query, json={})
                host_read = method == "get" and "namespaces/" not in path and answer.status_code in (200, 404)
                assert host_read or answer.status_code in (403, 404, 405, 422), (method, plain, answer.status_code)
                if answer.status_code == 422:
                    # The body is judged before anything is looked at: it must not be the way in.
                    assert root.request(method, plain, json={}).text == answer.text
                assert "00000000-0000-4000-8000-000000000002" not in answer.text  # the uid of what is there
                number += 1
        assert number > 40
    assert two.sandbox("secret-box", "team-b").deleted_at is None


_PARTS = [
    "namespaces",
    "team-b",
    "team-a",
    "sandboxes",
    "secret-box",
    "..",
    ".",
    "",
    "%2e%2e",
    "%2F",
    "tokens",
    "apply",
]
_PARTS += ["team-a%2F..%2Fteam-b", "logs", "why", "exec", "events", "instances", "TEAM-B", "team-b%00", "auth"]


def test_no_path_leads_around_it(two: ApiStack) -> None:
    chance = random.Random(20)
    with opened(two), client(two, token(two, "operator", "team-a")) as second:
        for _ in range(examples(300)):
            method = chance.choice(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
            path = "/".join(chance.choices(_PARTS, k=chance.randrange(7)))
            answer = second.request(method, httpx.URL(f"{API}/{path}"))
            assert answer.status_code < 500, (method, path)
            assert "00000000-0000-4000-8000-000000000002" not in answer.text, (method, path)  # of what is in team-b
    assert two.sandbox("secret-box", "team-b").deleted_at is None


@as_root
def test_users_of_this_host_are_known_by_the_kernels_word(two: ApiStack) -> None:
    grants = (PeerGrant(subject="uid:4243", role="viewer", namespaces=("default",)),)
    with opened(two, group_role="none", grants=grants):
        two.socket.chmod(0o666)  # so that the door itself, and not the file's mode, decides
        code, body = asked_as(two, 4243, 4243, f"{API}/auth/whoami")
        assert (code, body["name"], body["grants"][0]["role"]) == (200, "uid 4243", "viewer")
        assert asked_as(two, 4243, 4243, f"{API}/namespaces/default/sandboxes/quickstart")[0] == 200
        assert asked_as(two, 4243, 4243, f"{B}/secret-box")[0] == 404
        code, body = asked_as(two, 4244, 4244, f"{API}/auth/whoami", groups=[0])
        assert (code, body["reason"]) == (403, "Forbidden")  # the socket's group, to which nothing is granted
    with opened(two):
        two.socket.chmod(0o666)
        assert asked_as(two, 4244, 4244, f"{B}/secret-box", groups=[0])[0] == 200
        assert asked_as(two, 4244, 4244, f"{B}/secret-box")[0] == 403


@as_root
def test_the_sockets_group_can_be_set(api: ApiStack) -> None:
    with opened(api, group="daemon"):
        assert api.socket.stat().st_gid == 1
    with pytest.raises(SocketTaken, match="there is no group `no-such-group`"):
        make_listeners(api, group="no-such-group").start()


def test_over_tcp_a_token_is_needed_and_what_else_is_said_about_the_client_is_not_believed(two: ApiStack) -> None:
    with opened(two, host="127.0.0.1") as listeners:
        assert listeners.url.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=listeners.url, verify=False, timeout=60) as nobody:
            assert nobody.get("/healthz").text == "ok"
            assert nobody.get("/version").status_code == 401
        sent = {"Authorization": f"Bearer {token(two, 'viewer', 'default')}", "X-Forwarded-For": "10.9.9.9"}
        with httpx.Client(base_url=listeners.url, headers=sent, verify=False, timeout=60) as viewer:
            assert viewer.get(f"{API}/auth/whoami").json()["source"] == "tcp 127.0.0.1"
            assert viewer.get(f"{B}/secret-box").status_code == 404
            two.services.tokens.revoke("t0")
            assert viewer.get(f"{API}/auth/whoami").status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no-such-host.invalid"])
def test_never_plain_beyond_loopback(api: ApiStack, host: str) -> None:
    with pytest.raises(SocketTaken, match=r"without TLS|not an address of this host"):
        make_listeners(api, host=host).start()
    assert not api.socket.exists()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return certificate(tmp_path)


def test_tls_by_certificate_files(two: ApiStack, pair: tuple[Path, Path]) -> None:
    cert, key = pair
    trusting = ssl.create_default_context(cafile=str(cert))
    with opened(two, host="0.0.0.0", cert=cert, key=key) as listeners:
        url = listeners.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        headers = {"Authorization": f"Bearer {token(two, 'viewer')}"}
        with httpx.Client(base_url=url, verify=trusting, headers=headers, timeout=60) as viewer:
            assert viewer.get(f"{B}/secret-box").status_code == 200
        with pytest.raises(httpx.ConnectError), httpx.Client(base_url=url, timeout=60) as stranger:
            stranger.get("/healthz")
        with pytest.raises(httpx.HTTPError), httpx.Client(base_url=url.replace("https", "http"), timeout=60) as plain:
            plain.get("/healthz")


def test_a_key_that_others_may_read_or_that_is_no_key_is_refused(api: ApiStack, pair: tuple[Path, Path]) -> None:
    cert, key = pair
    key.chmod(0o644)
    with pytest.raises(SocketTaken, match="a private key that others may use"):
        make_listeners(api, host="127.0.0.1", cert=cert, key=key).start()
    key.write_text("no key")
    key.chmod(0o600)
    with pytest.raises(SocketTaken, match="can't be used for TLS"):
        make_listeners(api, host="127.0.0.1", cert=cert, key=key).start()
