"""Headers that pass between a browser and the program of a preview."""

import pytest

from controller.api.preview.headers import PreviewRequest, cookies_of, without_cookie

_ORIGIN = "https://080--a--b.example.org"


def _head(*headers: tuple[bytes, bytes]) -> dict[bytes, list[bytes]]:
    sent: dict[bytes, list[bytes]] = {}
    for name, value in PreviewRequest("GET", 80, "", b"/", headers, "https", _ORIGIN).head():
        sent.setdefault(name, []).append(value)
    return sent


def _answer(*headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return list(PreviewRequest("GET", 80, "", b"/", (), "https", _ORIGIN).answer_headers(headers))


def test_the_program_takes_it_for_localhost() -> None:
    sent = _head(
        (b"host", b"080--a--b.example.org"),
        (b"origin", _ORIGIN.encode()),
        (b"referer", _ORIGIN.encode() + b"/page?x=1"),
        (b"authorization", b"Bearer of-the-app"),
        (b"x-forwarded-host", b"evil"),
        (b"connection", b"keep-alive, x-secret"),
        (b"x-secret", b"1"),
    )
    assert sent == {
        b"host": [b"localhost:80"],
        b"origin": [b"http://localhost:80"],
        b"referer": [b"http://localhost:80/page?x=1"],
        b"authorization": [b"Bearer of-the-app"],
    }


def test_a_navigation_says_its_public_address() -> None:
    assert _head((b"x-forwarded-host", b"evil"), (b"x-forwarded-proto", b"ftp")) == {
        b"host": [b"localhost:80"],
        b"x-forwarded-host": [b"080--a--b.example.org"],
        b"x-forwarded-proto": [b"https"],
    }


def test_a_foreign_origin_stays_foreign() -> None:
    foreign = b"https://080--a--b.example.org.evil.test"
    assert _head((b"origin", foreign), (b"referer", foreign + b"/"))[b"origin"] == [foreign]
    assert _head((b"origin", foreign), (b"referer", foreign + b"/"))[b"referer"] == [foreign + b"/"]


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        (b"__Host-paddock-preview=t", b""),
        (b"a=1; __Host-paddock-preview=t; b=2", b"a=1; b=2"),
        (b"a=1;__Host-paddock-preview =t ;b=2", b"a=1; b=2"),
        (b"x__Host-paddock-preview=1", b"x__Host-paddock-preview=1"),
    ],
)
def test_our_cookie_never_reaches_the_program(sent: bytes, passed: bytes) -> None:
    assert without_cookie(sent) == passed
    assert _head((b"cookie", sent)).get(b"cookie", [b""]) == [passed]


def test_every_cookie_of_our_name_is_seen() -> None:
    assert cookies_of([(b"cookie", b"a=1; __Host-paddock-preview=x"), (b"cookie", b"__Host-paddock-preview=y")]) == [
        "x",
        "y",
    ]


def test_answers_do_not_speak_for_other_hosts() -> None:
    assert _answer(
        (b"set-cookie", b"s=1; Path=/"),
        (b"set-cookie", b"s=1; Path=/; DOMAIN=example.org"),
        (b"set-cookie", b"__Host-paddock-preview=forged; Path=/; Secure"),
        (b"strict-transport-security", b"max-age=1; includeSubDomains"),
        (b"alt-svc", b'h3=":443"'),
        (b"location", b"http://localhost:80/login"),
        (b"content-security-policy", b"default-src 'self'"),
    ) == [
        (b"set-cookie", b"s=1; Path=/"),
        (b"location", _ORIGIN.encode() + b"/login"),
        (b"content-security-policy", b"default-src 'self'"),
        (b"origin-agent-cluster", b"?1"),
        (b"x-robots-tag", b"noindex"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


@pytest.mark.parametrize("place", [b"http://localhost:8080/", b"http://localhost:801/", b"https://evil.test/", b"/x"])
def test_other_redirects_stay(place: bytes) -> None:
    assert (b"location", place) in _answer((b"location", place))


def test_a_policy_of_the_program_stays() -> None:
    answer = _answer((b"cross-origin-resource-policy", b"cross-origin"))
    assert [value for name, value in answer if name == b"cross-origin-resource-policy"] == [b"cross-origin"]
