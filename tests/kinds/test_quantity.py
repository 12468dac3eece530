"""Quantities by Kubernetes' rules: exact, canonical, and refused in words."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kinds.common.quantity import format_bytes, format_cpu, parse_bytes, parse_cpu

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@pytest.mark.parametrize(
    ("text", "millicores"),
    [
        ("500m", 500),
        ("2", 2000),
        (2, 2000),
        (0.25, 250),
        ("0.5", 500),
        ("1.5", 1500),
        ("1e1", 10000),
        ("0", 0),
        (".5", 500),
    ],
)
def test_cpu_is_read_as_kubernetes_reads_it(text: object, millicores: int) -> None:
    assert parse_cpu(text) == millicores


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512Mi", 512 << 20),
        ("1.5Gi", 3 << 29),
        ("8G", 8 * 10**9),
        (1024, 1024),
        ("1e9", 10**9),
        ("128974848", 128974848),
    ],
)
def test_bytes_are_read_as_kubernetes_reads_them(text: object, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("512m", "`512m` is 0.512 bytes; write `512Mi`"),
        ("1.0001", "finer than one byte"),
        ("5MB", "`MB` is no unit of bytes"),
        ("lots", "is not a quantity"),
        ("-1", "is not a quantity"),
        (True, "must be a quantity"),
        (None, "must be a quantity"),
        ("", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
    ],
)
def test_wrong_bytes_are_refused_in_words(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "words"), [("0.0001", "finer than one millicore"), ("1Gi", "no unit of CPU"), ("a", "not")]
)
def test_wrong_cpu_is_refused_in_words(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_cpu(text)


@settings(deadline=None)
@given(st.integers(0, 1 << 60))
def test_bytes_survive_their_own_text(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_cpu_survives_its_own_text(millicores: int) -> None:
    assert parse_cpu(format_cpu(millicores)) == millicores


@settings(deadline=None)
@given(st.decimals(0, 10**6, places=3), st.sampled_from(sorted(_SUFFIXES)))
def test_bytes_are_exact_or_refused(number: Decimal, suffix: str) -> None:
    exact = number * _SUFFIXES[suffix]
    if exact == int(exact):
        assert parse_bytes(f"{number}{suffix}") == exact
    else:
        with pytest.raises(ValueError, match="finer"):
            parse_bytes(f"{number}{suffix}")


@settings(deadline=None)
@given(st.integers(0, 1 << 60))
def test_the_text_is_canonical(count: int) -> None:
    text = format_bytes(count)
    assert format_bytes(parse_bytes(text)) == text
