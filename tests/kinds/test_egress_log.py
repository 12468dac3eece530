"""Lines as squid wrote them, and what they tell."""

import pytest

from controller.kinds.runtime.egress_log import parsed

SANDBOX = "10.213.104.137"


@pytest.mark.parametrize(
    ("line", "verdict", "host", "inside"),
    [
        (
            f"1795291289.296 {SANDBOX} TCP_MISS/200 GET git.example.org:80 - 198.51.100.80 178",
            "allowed",
            "git.example.org",
            "",
        ),
        (
            f"1795291296.122 {SANDBOX} TCP_TUNNEL/200 CONNECT git.example.org:443 git.example.org 198.51.100.80 1908",
            "allowed",
            "git.example.org",
            "git.example.org",
        ),
        (
            f"1795291299.229 {SANDBOX} NONE_NONE/200 CONNECT git.example.org:443 other.example.org - 0",
            "asked",
            "git.example.org",
            "other.example.org",
        ),
        (
            f"1795291312.526 {SANDBOX} TCP_DENIED/403 GET other.example.org:80 - - 3352",
            "refused",
            "other.example.org",
            "",
        ),
        (
            f"1795291316.691 {SANDBOX} TCP_DENIED/200 CONNECT other.example.org:443 x - 0",
            "refused",
            "other.example.org",
            "x",
        ),
        (f"1795762742.552 {SANDBOX} TCP_MISS/502 GET no.example.org:80 - - 3345", "unresolved", "no.example.org", ""),
        (f"1795762742.601 {SANDBOX} TCP_DENIED/503 CONNECT a.org:443 - - 364", "unresolved", "a.org", ""),
        (f"1795762742.567 {SANDBOX} NONE_NONE/500 CONNECT a.org:443 a.org - 0", "unresolved", "a.org", "a.org"),
        (
            f"1795762773.891 {SANDBOX} NONE_NONE_ABORTED/000 GET late.example.org:80 - - 0",
            "unresolved",
            "late.example.org",
            "",
        ),
        (
            f"1795762742.703 {SANDBOX} NONE_NONE/503 CONNECT a.org:443 a.org 198.51.100.80 0",
            "allowed",
            "a.org",
            "a.org",
        ),
        (f"1795291331.602 {SANDBOX} NONE_NONE/400 GET -:- - - 3489", "refused", "-", ""),
    ],
)
def test_a_log_line_is_parsed(line: str, verdict: str, host: str, inside: str) -> None:
    access = parsed(line)
    assert access is not None
    assert (access.verdict, access.host, access.inside) == (verdict, host, inside)
    assert access.at > 1.7e9


@pytest.mark.parametrize(
    "line",
    [
        f"1795762742.567 {SANDBOX} NONE_NONE/000 - -:- - - 0",
        f"1795774321.240 {SANDBOX} TCP_TUNNEL/200 CONNECT a.org:443 - 127.0.0.1 14976",
        "",
        "a b c",
        "x 1 TCP_MISS/200 GET a:80 - - 1",
        "1 2 TCP GET a:80 - - 1",
        "1 2 A/1 G a - - b",
    ],
)
def test_other_lines_are_ignored(line: str) -> None:
    assert parsed(line) is None
