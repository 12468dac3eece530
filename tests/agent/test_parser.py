"""The HTTP parser: any cutting of the bytes gives the same requests, and no bytes break it."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from images.agent.paddock_agent.http import MAX_BODY, MAX_HEAD, HTTPError, Parser, Request
from tests.examples import examples

bodies = st.binary(max_size=200)
names = st.sampled_from(["x-a", "X-B", "accept", "mcp-name"])
values = st.text("abc ;,=/*:", max_size=20).map(str.strip)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes, dict[str, str]]:
    """Return a request's bytes, its body and its headers."""
    body = draw(bodies)
    headers = draw(st.dictionaries(names, values, max_size=3))
    lines = [b"POST /mcp?x=1 HTTP/1.1", b"Host: localhost"]
    lines += [f"{name}: {value}".encode() for name, value in headers.items()]
    if draw(st.booleans()):
        lines.append(b"content-length: %d" % len(body))
        payload = body
    else:
        lines.append(b"Transfer-Encoding: chunked")
        size = draw(st.integers(1, 50))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        payload = b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in parts) + b"0\r\n\r\n"
    return b"\r\n".join(lines) + b"\r\n\r\n" + payload, body, {name.lower(): value for name, value in headers.items()}


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(at)]


def parse(parts: list[bytes]) -> list[Request]:
    parser, observed = Parser(), []
    for piece in parts:
        parser.feed(piece)
        while (request := parser.next()) is not None:
            observed.append(request)
    return observed


@settings(max_examples=examples(300))
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 10_000), max_size=20))
def test_cuts_change_nothing(given_requests: list[tuple[bytes, bytes, dict[str, str]]], cuts: list[int]) -> None:
    document = parse(pieces(b"".join(data for data, _, _ in given_requests), cuts))
    assert [entry.body for entry in document] == [body for _, body, _ in given_requests]
    for request, (_, _, headers) in zip(document, given_requests, strict=True):
        assert (request.method, request.path, request.query) == ("POST", "/mcp", "x=1")
        assert headers.items() <= request.headers.items()


@settings(max_examples=examples(500))
@given(st.lists(st.binary(max_size=300) | requests().map(lambda each: each[0]), max_size=6))
def test_any_bytes_are_taken_or_refused(parts: list[bytes]) -> None:
    parser = Parser()
    try:
        for piece in parts:
            parser.feed(piece)
            while parser.next() is not None:
                pass
            assert parser.held <= MAX_HEAD + MAX_BODY + 100
    except HTTPError as error:
        status = error.status
        assert 400 <= status < 600
