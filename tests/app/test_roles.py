"""Roles of a daemon in its settings: what can't be is refused, with what to do."""

from typing import Any

import pytest
from pydantic import ValidationError

from controller.settings import Settings

_MANY = {"scheduler": "manual", "database_url": "postgresql+psycopg://u@db/paddock"}
_FILES = {"fleet_cert_file": "/c", "fleet_key_file": "/k", "fleet_ca_file": "/a"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"roles": ["api", "host"]}, "the only host has all of them"),
        ({**_MANY, "roles": ["api", "fleet"]}, "fleet needs host"),
        ({**_MANY, "roles": ["api"]}, "fleet_cert_file: missing"),
        ({**_MANY, **_FILES, "roles": ["host"]}, "fleet_address: missing"),
        ({**_MANY, "roles": []}, "at least 1"),
        ({**_MANY, "roles": ["cook"]}, "'api', 'host' or 'fleet'"),
    ],
)
def test_impossible_roles_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("proxy.example.org:3128", "must be http://HOST:PORT"),
        ("https://proxy.example.org:3128", "must be http://HOST:PORT"),
        ("http://user:word@proxy.example.org:3128", "a proxy that asks for a password"),
        ("http://proxy.example.org:70000", "must be http://HOST:PORT"),
        ("http://127.0.0.1:3128", "names this host itself"),
    ],
)
def test_an_upstream_proxy_that_no_container_reaches(url: str, reason: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Settings(upstream_proxy=url)
    assert reason in str(refusal.value)
    assert Settings(upstream_proxy="http://10.1.2.3:3128/").upstream_proxy == "http://10.1.2.3:3128"


def test_only_a_host_has_a_hosts_place() -> None:
    assert Settings().place == "host"
    assert Settings(**_MANY, host_name="b", roles=["api", "host"]).place == "b"
    front = Settings(**_MANY, **_FILES, host_name="b", roles=["api"])
    assert (front.place, front.is_host) == ("api/b", False)
