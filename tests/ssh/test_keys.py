"""Public keys of callers, and failed logins."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from controller.kinds.access.access import Caller
from controller.service import errors
from controller.ssh.gate import Failures
from controller.ssh.host_key import host_key, public_key
from controller.ssh.keys import Keys

_ROOT, _OTHER, _TOKEN = Caller("root", uid=0), Caller("other", uid=1000), Caller("token ci", token_id="0123456789ab")


def _key() -> str:
    return Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def test_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    keys, text = Keys(tmp_path / "ssh/keys.json"), _key()
    added = keys.add(_ROOT, f"{text} me@here\n")
    assert (added.type, added.comment) == ("ssh-ed25519", "me@here")
    assert keys.add(_ROOT, text).fingerprint == added.fingerprint
    assert [key.fingerprint for key in keys.of(_ROOT)] == [added.fingerprint]
    assert (keys.of(_OTHER), keys.of(_TOKEN)) == ([], [])
    with pytest.raises(errors.Conflict):
        keys.add(_OTHER, text)
    with pytest.raises(errors.NotFound):
        keys.remove(_TOKEN, added.fingerprint)
    found = Keys(tmp_path / "ssh/keys.json").find(text)
    assert found is not None
    assert found.uid == 0
    keys.remove(_ROOT, added.fingerprint)
    assert keys.find(text) is None


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "no key at all", "ssh-rsa\nssh-rsa", "x" * 5000]
)
def test_other_texts_are_no_keys(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.BadRequest):
        Keys(tmp_path / "keys.json").add(_ROOT, text)


def test_a_damaged_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{")
    with pytest.raises(errors.ServiceUnavailable):
        Keys(tmp_path / "keys.json").find(_key())


def test_failures_of_an_address_are_bounded() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    for _ in range(20):
        failures.check("10.0.0.1")
        failures.add("10.0.0.1")
    failures.check("10.0.0.2")
    with pytest.raises(errors.TooManyRequests):
        failures.check("10.0.0.1")
    now[0] = 61.0
    failures.check("10.0.0.1")


def test_offered_keys_count_a_little() -> None:
    failures = Failures(lambda: 0.0)
    for _ in range(300):
        failures.check("10.0.0.1")
        failures.add("10.0.0.1", weight=1 / 15)
    failures.add("10.0.0.1", weight=1 / 15)
    with pytest.raises(errors.TooManyRequests):
        failures.check("10.0.0.1")


def test_the_host_key_stays(tmp_path: Path) -> None:
    file = tmp_path / "ssh/host_key"
    first = host_key(file)
    assert (host_key(file), file.stat().st_mode & 0o777) == (first, 0o600)
    assert public_key(first).startswith("ssh-ed25519 ")
