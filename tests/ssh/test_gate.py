"""Logins of the SSH port: tries are bounded by source and by key, and a right that is gone ends what is open."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import NullMeter
from controller.service import errors
from controller.service.front.ssh import SshLogin
from controller.ssh import supervisor as supervising
from controller.ssh.channels import SandboxWork
from controller.ssh.gate import Failures, Gate, source_of
from controller.ssh.keys import Keys
from controller.ssh.supervisor import SshParts, Supervisor
from tests.conftest import HandClock
from tests.daemon import wait_for

_USER = Caller("uid 1000", grants=(Grant(role="user"),), uid=1000)


class Host:
    """Facts that a gate asks for: the users of this host with their grants of now, and the stored sandboxes."""

    def __init__(self) -> None:
        self.users = {1000: _USER}
        self.tokens = {"good": _USER}
        self.recorded: list[str] = []
        self.looked_up = threading.Event()
        self.lookups = 0
        self.troubles: list[Exception] = []

    def user(self, uid: int) -> Caller:
        self.lookups += 1
        if self.troubles:
            raise self.troubles.pop(0)
        self.looked_up.set()
        if uid not in self.users:
            raise errors.Forbidden("no grants")
        return self.users[uid]

    def token(self, text: str, source: str) -> Caller:
        if text not in self.tokens:
            raise errors.Unauthorized("no token")
        return replace(self.tokens[text], source=source)

    def unknown(self, source: str, what: str) -> None:
        self.recorded.append(f"{source}: {what}")

    def gate(self, folder: Path) -> Gate:
        recorder: Any = SimpleNamespace(record_unknown=self.unknown, record_use=lambda *_: None)
        objects: Any = SimpleNamespace(get=lambda *_: SimpleNamespace(uid="uid-1"))
        tokens: Any = SimpleNamespace()
        expirations: Any = SimpleNamespace(is_due=lambda: False)
        registry: Any = SimpleNamespace(by_name=lambda _name: SANDBOX, get=lambda _name: SANDBOX)
        identify: Any = SimpleNamespace(token=self.token)
        return Gate(
            Keys(folder / "keys.json"),
            identify,
            tokens,
            expirations,
            registry=registry,
            objects=objects,
            recorder=recorder,
            clock=HandClock(),
            user_of_host=self.user,
            failures=Failures(lambda: 0.0),
        )


def _try(gate: Gate, source: str, token: str) -> type[Exception] | None:
    message = {"source": source, "token": token, "user": "box--default", "asks": True}
    try:
        gate.login(message)
    except errors.ServiceError as error:
        return type(error.__cause__ or error)
    return None


def test_tries_are_bounded_by_source_and_by_key(tmp_path: Path) -> None:
    host = Host()
    gate = host.gate(tmp_path)
    for number in range(20):  # one secret, of many addresses
        assert _try(gate, f"10.0.0.{number}", "bad") is errors.Unauthorized
    assert _try(gate, "10.0.1.1", "bad") is errors.TooManyRequests
    assert _try(gate, "10.0.1.1", "good") is None
    for number in range(20):  # many secrets, of one network of IPv6
        assert _try(gate, f"2001:db8::{number:x}", f"bad {number}") is errors.Unauthorized
    assert _try(gate, "2001:db8::ffff", "good") is errors.TooManyRequests
    assert _try(gate, "2001:db8:0:1::1", "good") is None
    assert len(host.recorded) == 40
    assert not any("bad" in line for line in host.recorded), "no secret is recorded"


def test_offers_by_strangers_keep_no_key_out(tmp_path: Path) -> None:
    """A public key is public: offers of it count for the address that makes them, and not for the key."""
    gate = Host().gate(tmp_path)
    offer = {"key": "ssh-ed25519 AAAA of somebody else", "user": "box--default", "asks": True}
    for number in range(40):
        for _ in range(10):
            with pytest.raises(errors.Unauthorized):
                gate.login({"source": f"10.0.0.{number}", **offer})
    with pytest.raises(errors.Unauthorized):
        gate.login({"source": "10.0.1.1", **offer})


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_is_one_source(address: str, source: str) -> None:
    assert source_of(address) == source


def _supervisor(gate: Gate, folder: Path) -> Supervisor:
    work: Any = SandboxWork(*(SimpleNamespace() for _ in range(6)))  # type: ignore[arg-type]
    return Supervisor(SshParts(work, NullMeter(), folder / "host_key", "instance", gate.keys, gate))


def test_a_lost_group_ends_an_open_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up that fails, with whatever error, ends neither a connection nor the watch."""
    monkeypatch.setattr(supervising, "_LOOK_SECONDS", 0.01)
    host, ended = Host(), threading.Event()
    host.troubles = [OSError("a test"), ValueError("a test")]
    supervisor = _supervisor(host.gate(tmp_path), tmp_path)
    sent: Any = SimpleNamespace(send=lambda message, *_: ended.set() if message["type"] == "end" else None)
    try:
        supervisor._child = sent
        for number in (-1, -2):
            supervisor._follow(number, SshLogin(_USER, "default", "box", "uid-1"), "SHA256:x")
        assert host.looked_up.wait(30)
        assert not ended.is_set()
        host.users.clear()
        assert ended.wait(30), "the process is told to end it"
        wait_for("the end of both", lambda: not supervisor._connections)
    finally:
        supervisor._child = None
        supervisor.close()


def test_a_user_is_looked_up_once_a_look(tmp_path: Path) -> None:
    host = Host()
    logins = {number: SshLogin(_USER, "default", "box", "uid-1") for number in range(3)}
    gate = host.gate(tmp_path)
    assert gate.ended(logins) == ([], {})
    assert host.lookups == 1
    host.troubles = [OSError("a test")]
    assert gate.ended(logins) == ([], {1000: "OSError: a test"})
    host.users.clear()
    assert gate.ended(logins) == ([0, 1, 2], {})
