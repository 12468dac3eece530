"""Readings of requests: metadata filters, fields, host names, networks."""

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from starlette.datastructures import Headers

from controller.e2b.control.network import network_of
from controller.e2b.control.sandboxes import namespace_of, on_timeout, resumes
from controller.e2b.control.template import image_of
from controller.e2b.envd.watch import Listing, differences, looks
from controller.e2b.fields import Fields
from controller.e2b.identity import Destination, check_host, check_user, named_by
from controller.e2b.metadata import filter_of, matches
from controller.kinds.access.access import Caller, Grant
from controller.service.errors import BadRequest, Misdirected
from controller.settings import Settings

DOMAIN = "e2b.localhost:18443"


def test_metadata_filters_are_quoted_twice() -> None:
    document = {"k": "a b&c=d", "ü": "%41"}
    query = urlencode({quote(key): quote(value) for key, value in document.items()})
    assert filter_of(query) == document
    assert matches({**document, "more": "1"}, document)
    assert not matches({"k": "a b&c=d"}, document)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("text", 1, "must be text, not a number"),
        ("text", None, "is missing"),
        ("text", "a\0b", "NUL"),
        ("number", -1, "whole number"),
        ("number", True, "whole number"),
        ("number", 1 << 40, "whole number"),
        ("flag", "yes", "true or false"),
        ("data", "not base64!", "base64"),
        ("fields", [], "must be an object"),
        ("texts", ["a", 1], "x.1: must be text"),
        ("text_map", {"a": {}}, "x.a: must be text"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, message: str) -> None:
    fields = Fields({"x": value})
    arguments = {"number": (0,), "flag": (True,)}.get(field, ())
    with pytest.raises(BadRequest, match=message):
        getattr(fields, field)("x", *arguments)


def test_int64_may_be_text() -> None:
    assert Fields({"x": "12"}).number("x", 0) == 12


@pytest.mark.parametrize(
    ("headers", "path", "named"),
    [
        ({"host": f"8080-sb.{DOMAIN}"}, "/", Destination("sb", 8080)),
        ({"host": f"49983-i-1.{DOMAIN}"}, "/files", Destination("i-1", 49983)),
        ({"host": f"api.{DOMAIN}"}, "/sandboxes", None),
        ({"host": "127.0.0.1:9470"}, "/sandboxes", None),
        ({"host": "127.0.0.1:9470"}, "/process.Process/Start", Destination("", 49983)),
        ({"host": "x", "e2b-sandbox-id": "sb", "e2b-sandbox-port": "49999"}, "/execute", Destination("sb", 49999)),
        ({"host": "x"}, "/contexts/1/restart", Destination("", 49999)),
    ],
)
def test_hosts_headers_and_paths_name_the_sandbox(
    headers: dict[str, str], path: str, named: Destination | None
) -> None:
    assert named_by(Headers(headers), path, DOMAIN) == named


@pytest.mark.parametrize("host", [f"0-sb.{DOMAIN}", f"99999-sb.{DOMAIN}", f"sb.{DOMAIN}", f"x-sb.{DOMAIN}"])
def test_other_host_names_are_refused(host: str) -> None:
    with pytest.raises(BadRequest):
        named_by(Headers({"host": host}), "/", DOMAIN)


def test_a_foreign_host_needs_a_token() -> None:
    check_host(Headers({"host": "evil.example"}), domain=DOMAIN, authenticated=True)
    check_host(Headers({"host": "127.0.0.1:9470"}), domain=DOMAIN, authenticated=False)
    check_host(Headers({"host": f"1-a.{DOMAIN}"}), domain=DOMAIN, authenticated=False)
    with pytest.raises(Misdirected):
        check_host(Headers({"host": "evil.example"}), domain=DOMAIN, authenticated=False)


def test_other_users_are_refused_with_a_hint() -> None:
    check_user("user")
    with pytest.raises(BadRequest, match="template sets"):
        check_user("root")


def test_networks_only_narrow() -> None:
    document = {"allow_internet_access": True}
    assert network_of(Fields(document), "full-isolation") is None
    assert network_of(Fields(document), "development") is None
    assert network_of(Fields({"allow_internet_access": False}), "full-isolation") is None
    assert network_of(Fields({"allow_internet_access": False}), "development") == {"allowedHosts": []}
    narrowed = {"network": {"allowOut": ["PyPI.org"], "denyOut": ["0.0.0.0/0"]}}
    assert network_of(Fields(narrowed), "development") == {"allowedHosts": ["pypi.org"]}


@pytest.mark.parametrize(
    ("network", "level", "message"),
    [
        ({"allowOut": ["pypi.org"]}, "full-isolation", "level development"),
        ({"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]}, "development", "is an address"),
        ({"denyOut": ["10.0.0.0/8"]}, "development", "single addresses"),
        ({"allowPublicTraffic": True}, "development", "never open to anybody"),
        ({"rules": {}}, "development", "not offered"),
    ],
)
def test_what_would_widen_a_network_is_refused(network: Any, level: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        network_of(Fields({"network": network}), level)


def test_a_template_is_the_first_image_here() -> None:
    setting = Settings().e2b_templates["code-interpreter-v1"]
    assert image_of(setting, lambda image: True) == "paddock/data:1"
    assert image_of(setting, lambda image: False) == "paddock/python:1"
    assert image_of("", lambda image: True) == ""


def test_the_time_out_kills_or_pauses() -> None:
    assert on_timeout(Fields({})) == "kill"
    assert on_timeout(Fields({"autoPause": True})) == "pause"
    assert on_timeout(Fields({"autoPause": True, "autoPauseMemory": False})) == "suspend"
    assert resumes(Fields({"autoPause": True, "autoResume": {"enabled": True}}))
    with pytest.raises(BadRequest, match="on_timeout"):
        resumes(Fields({"autoResume": {"enabled": True}}))


@pytest.mark.parametrize(
    ("namespaces", "namespace"),
    [(("*",), "default"), (("team-a",), "team-a"), (("team-a", "default"), "default"), (("team-*",), "default")],
)
def test_a_token_has_one_namespace(namespaces: tuple[str, ...], namespace: str) -> None:
    assert namespace_of(Caller("token x", grants=(Grant(role="user", namespaces=namespaces),))) == namespace


def test_listings_differ_by_events() -> None:
    def item(**changed: Any) -> dict[str, Any]:
        return {"type": "file", "size": 1, "modified": 1.0, "mode": "0644", **changed}

    def listing(items: dict[str, dict[str, Any]]) -> Listing:
        return looks({**item, "name": name} for name, item in items.items())

    before = {"same": item(), "gone": item(), "grown": item(), "folder": item(type="folder"), "run": item()}
    after = {**before, "new": item(), "grown": item(size=2), "folder": item(type="folder", modified=2.0)}
    after["run"] = item(mode="0755")
    del after["gone"]
    assert sorted(differences(listing(before), listing(after))) == [
        ("gone", "EVENT_TYPE_REMOVE"),
        ("grown", "EVENT_TYPE_WRITE"),
        ("new", "EVENT_TYPE_CREATE"),
        ("run", "EVENT_TYPE_CHMOD"),
    ]
