"""Access tokens and signatures: E2B's own form, and nothing forged, foreign or expired."""

import base64
import hashlib
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.e2b.identity import Tries
from controller.e2b.signature import Access, AccessTokens, SignedUrl, signature
from controller.kinds.access.access import Grant
from controller.kinds.access.api_key import key_of, token_of
from controller.service.access.authenticate import new_token
from controller.service.errors import TooManyRequests
from tests.examples import examples

TOKENS = AccessTokens(b"k" * 32)
ACCESS = Access(str(uuid.uuid4()), "0123456789ab")


def test_an_access_token_is_read_again() -> None:
    text = TOKENS.issue(ACCESS)
    assert TOKENS.read(text) == ACCESS
    assert text == TOKENS.issue(ACCESS)  # a URL signed by it lives as long


@settings(max_examples=examples(200))
@given(st.integers(0, 107), st.sampled_from("0123456789abcdefG_"))
def test_a_changed_access_token_is_refused(at: int, letter: str) -> None:
    text = TOKENS.issue(ACCESS)
    changed = text[:at] + letter + text[at + 1 :]
    assert changed == text or TOKENS.read(changed) is None


def test_a_token_of_another_key_is_refused() -> None:
    assert AccessTokens(b"x" * 32).read(TOKENS.issue(ACCESS)) is None
    for text in ("", "0", TOKENS.issue(ACCESS) + "0", "é" * 108):
        assert TOKENS.read(text) is None


def test_signatures_are_those_of_the_clients() -> None:
    url = SignedUrl("a/b.txt", "read", "", "", "1700000000")
    digest = hashlib.sha256(b"a/b.txt:read::secret:1700000000").digest()
    assert signature(url, "secret") == "v1_" + base64.b64encode(digest).decode().rstrip("=")


def test_a_signature_is_of_one_request() -> None:
    def signed(path: str = "f", operation: str = "read", user: str = "", expires: str = "") -> SignedUrl:
        bare = SignedUrl("f", "read", "", "", "")
        return SignedUrl(path, operation, user, signature(bare, "one"), expires)  # type: ignore[arg-type]

    assert signed().signer(["two", "one"]) == "one"
    for signed_url in (signed(path="g"), signed(operation="write"), signed(user="root"), signed(expires="9999999999")):
        assert signed_url.signer(["two", "one"]) == ""
    assert signed().signer(["two"]) == ""


@pytest.mark.parametrize("expires", ["-1", "1e9", "x", "٣", "1" * 13])
def test_a_malformed_expiry_is_refused(expires: str) -> None:
    assert not SignedUrl("f", "read", "", "v1_" + "A" * 43, expires).is_well_formed


def test_an_expiry_is_exclusive() -> None:
    url = SignedUrl("f", "read", "", "v1_" + "A" * 43, "100")
    assert (url.is_expired(99.9), url.is_expired(100.0)) == (False, True)


def test_wrong_tries_are_bounded_by_source() -> None:
    tries = Tries()
    for _ in range(60):
        tries.check("one", 10.0)
        tries.add("one")
    with pytest.raises(TooManyRequests):
        tries.check("one", 10.0)
    tries.check("neighbour", 10.0)
    tries.check("one", 71.0)  # a minute later


def test_api_keys_are_tokens() -> None:
    _, text = new_token("ci", Grant(role="user"), now=0.0, by="", expires_at=None)
    key = key_of(text)
    assert key.startswith("e2b_")
    assert set(key[4:]) <= set("0123456789abcdef")
    assert token_of(key) == text
    assert token_of(text) == text
    assert key_of("e2b_00") == ""
