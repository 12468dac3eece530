"""Credentials for hosts: who may have them, and the proxy that adds them."""

from typing import Any

import pytest

from controller.kinds.sandbox import SandboxSpec
from controller.policy.container.credentials import AUTHORITIES
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import squid_conf
from controller.policy.sandbox import Rendered, admit, render

POLICY = Policy()


def spec_of(*credentials: dict[str, Any], level: str = "development", **fields: Any) -> SandboxSpec:
    hosts = ["git.example.org", "*.wild.example.org"] if level in ("development", "build") else None
    document: dict[str, Any] = {"template": {"image": "a:1"}, "securityLevel": level, "credentials": list(credentials)}
    return SandboxSpec.model_validate({**document, "network": {"allowedHosts": hosts} if hosts else {}, **fields})


def rendered(spec: SandboxSpec) -> Rendered:
    assert spec.template is not None
    return render(spec, spec.template, name="a", uid="a", policy=POLICY)


def credential(host: str = "git.example.org", **fields: Any) -> dict[str, Any]:
    return {"host": host, "secretRef": {"name": "token"}, **fields}


@pytest.mark.parametrize(
    ("credentials", "level", "field", "message"),
    [
        ([credential()], "full-isolation", "spec.credentials", "level full-isolation has no proxy that could add them"),
        ([credential()], "production", "spec.credentials", "level production has no proxy that could add them"),
        ([credential("x.example.org")], "development", "spec.credentials[0].host", "add it to network.allowedHosts"),
        ([credential("*.wild.example.org")], "development", "spec.credentials[0].host", "stands for many hosts"),
        ([credential(header="Host")], "development", "spec.credentials[0].header", "belongs to the transport"),
        ([credential(header="Proxy-Authorization")], "development", "spec.credentials[0].header", "transport"),
        ([credential(scheme="Basic")], "development", "spec.credentials[0].user", "Basic needs `user:`"),
        ([credential(user="me")], "development", "spec.credentials[0].user", "no other has one"),
        ([credential(), credential(header="authorization")], "development", "spec.credentials[1]", "set twice"),
    ],
)
def test_credentials_that_can_not_be_kept_are_refused(
    credentials: list[dict[str, Any]], level: str, field: str, message: str
) -> None:
    [refusal] = admit(spec_of(*credentials, level=level), POLICY)
    assert (refusal.field, message in refusal.message) == (field, True)


def test_a_sandbox_trusts_the_proxy_by_file_and_variables() -> None:
    own_document = {"template": {"image": "a:1", "env": [{"name": "PIP_CERT", "value": "/mine"}]}}
    created = rendered(spec_of(credential(), **own_document))
    variables = dict(created.config.env)
    assert variables["SSL_CERT_FILE"] == variables["NODE_EXTRA_CA_CERTS"] == variables["GIT_SSL_CAINFO"] == AUTHORITIES
    assert variables["PIP_CERT"] == "/mine"
    assert [(slot.path, slot.file) for slot in created.config.slots] == [(AUTHORITIES, True)]
    plain = rendered(spec_of())
    assert (plain.config.slots, "SSL_CERT_FILE" in dict(plain.config.env)) == ((), False)


def test_another_header_replaces_the_proxy_alone() -> None:
    first, second = (rendered(spec_of(credential(header=name))) for name in ("X-Token", "X-Other"))
    assert first.config_hash == second.config_hash
    assert first.sealed is not None
    assert second.sealed is not None
    assert first.sealed.egress.hash() != second.sealed.egress.hash()
    assert rendered(spec_of()).config_hash != first.config_hash


def test_only_hosts_with_credentials_are_decrypted() -> None:
    plain = squid_conf(["git.example.org"])
    assert "bump first" not in plain
    assert "include" not in plain
    sealed = rendered(spec_of(credential())).sealed
    assert sealed is not None
    conf = dict(sealed.egress.env)["PADDOCK_SQUID_CONF"].splitlines()
    assert [name for name in conf if name.startswith("acl decrypted_host")] == [
        r"acl decrypted_host dstdom_regex -n -i ^git\.example\.org$"
    ]
    assert conf.index("ssl_bump bump first decrypted_host") < conf.index("ssl_bump peek first")
    assert conf.index("http_access deny decrypted_host !CONNECT !secure") < conf.index("http_access allow listed")
    assert "token" not in "\n".join(conf)
