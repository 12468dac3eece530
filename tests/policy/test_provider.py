"""Providers: the endpoints that the gateway may connect to, and who may create them."""

from pathlib import Path
from typing import Any

import pytest

from controller.engine.mounts.authority import Authority
from controller.kinds.access.access import AccessRequest, Caller, Grant
from controller.kinds.provider import KIND, ProviderSpec
from controller.policy.access import decide, refusals
from controller.policy.addresses import is_public
from controller.policy.levels.levels import Policy
from controller.policy.provider import admit, base_url, hosts_refused, url_refused


def spec_of(url: str = "https://api.example.com", **fields: Any) -> ProviderSpec:
    return ProviderSpec.model_validate({"type": "OpenAI", "url": url, **fields})


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1234",
        "https://10.1.2.3",
        "https://169.254.169.254/latest",
        "https://[::1]:9000",
        "https://[::ffff:10.0.0.1]",
        "https://[64:ff9b::a9fe:a9fe]",
        "https://[2002:7f00:1::]",
        "https://100.64.1.1",
        "https://0.0.0.0",
        "https://localhost",
        "https://LOCALHOST.",
        "https://api.localhost",
        "https://metadata.google.internal",
        "https://printer.local",
        "https://ollama",
        "https://2130706433",
        "https://0x7f.1",
        "https://127.1",
        "https://1.2.3.4.5",
        "http://api.example.com",
        "https://api.example.com:0",
        "https://api.example.com:70000",
    ],
)
def test_endpoint_refused_without_the_setting(url: str) -> None:
    assert url_refused(url, Policy()), url


@pytest.mark.parametrize("url", ["https://api.anthropic.com", "https://8.8.8.8:8443/v1", "https://[2606:4700::1]/v1"])
def test_public_endpoints_are_admitted(url: str) -> None:
    assert admit(spec_of(url), Policy()) == ()


def test_a_listed_endpoint_may_be_private_and_plain() -> None:
    policy = Policy(provider_hosts=("127.0.0.1:11434", "Ollama.lan:80", "[::1]:9000"))
    for url in ("http://127.0.0.1:11434/v1", "http://ollama.lan", "https://ollama.lan:80/x", "http://[::1]:9000"):
        assert url_refused(url, policy) == "", url
    assert "provider_hosts, `127.0.0.1:11435`" in url_refused("http://127.0.0.1:11435", policy)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8090/v1", "http://localhost:8090", "http://models.paddock.internal:1", "http://[::1]:8090"],
)
def test_the_gateway_is_no_provider_of_its_own(url: str) -> None:
    listed = ("127.0.0.1:8090", "localhost:8090", "models.paddock.internal:1", "[::1]:8090")
    assert "own gateway" in url_refused(url, Policy(provider_hosts=listed))


@pytest.mark.parametrize(
    ("type_", "url", "base"),
    [
        ("OpenAI", "https://api.openai.com", "https://api.openai.com/v1"),
        ("OpenAI", "https://api.openai.com/v1/", "https://api.openai.com/v1"),
        ("OpenAI", "https://host.example/v1beta/openai", "https://host.example/v1beta/openai"),
        ("Anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("Anthropic", "https://host.example/anthropic/v1", "https://host.example/anthropic/v1"),
    ],
)
def test_base_of_routes(type_: str, url: str, base: str) -> None:
    assert base_url(spec_of(url, type=type_)) == base


def test_a_route_in_the_path_is_refused() -> None:
    [refusal] = admit(spec_of("https://api.example.com/v1/chat/completions"), Policy())
    assert "without it" in refusal.message


def test_entries_of_the_setting_are_host_and_port() -> None:
    assert list(hosts_refused(("127.0.0.1:80", "[::1]:80", "a.lan:8080"))) == []
    assert len(list(hosts_refused(("127.0.0.1", "http://a:1", "a:1/x", "[::1]", "")))) == 5


@pytest.mark.parametrize("address", ["224.0.0.1", "240.0.0.1", "192.0.2.1", "fe80::1%eth0", "fd00::1", "ff02::1"])
def test_special_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_operators_write_providers_and_users_use_them() -> None:
    ask = AccessRequest("use", "Provider", "team", "", "v1")
    for role, uses, writes in (("viewer", False, False), ("user", True, False), ("operator", True, True)):
        caller = Caller("them", "", (Grant(role=role, namespaces=("team",)),))
        assert decide(caller, ask).allowed is uses
        assert (refusals(caller, KIND, spec_of(), "team", Policy()) == ()) is writes
    bounded = Caller("them", "", (Grant(role="operator", namespaces=("team",), images=("x",)),))
    assert refusals(bounded, KIND, spec_of(), "team", Policy())


def test_authorities_of_its_own_are_certificates(tmp_path: Path) -> None:
    pem = Authority(tmp_path).certificate().decode()
    assert admit(spec_of(certificateAuthority=f"of our lab\n{pem}{pem}"), Policy()) == ()
    listed = Policy(provider_hosts=("127.0.0.1:80",))
    for sent, url, message in (
        ("nothing", "https://api.example.com", "not a certificate in PEM form"),
        ("schl\u00fcssel", "https://api.example.com", "not a certificate in PEM form"),
        (pem[:200], "https://api.example.com", "not a certificate in PEM form"),
        ((tmp_path / "authority.pem").read_text(), "https://api.example.com", "contains a private key"),
        (pem, "http://127.0.0.1:80", "has no certificate"),
    ):
        [refusal] = admit(spec_of(url, certificateAuthority=sent), listed)
        assert (refusal.field, message in refusal.message) == ("spec.certificateAuthority", True), sent
