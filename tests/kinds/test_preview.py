"""Host names and tokens of previews."""

import pytest

from controller.kinds.runtime.preview import (
    PreviewTarget,
    is_label,
    label_of,
    parse_token,
    port_refused,
    sign,
    target_of,
)

_TARGET = PreviewTarget("default", "my-app", 80)
_LONG = PreviewTarget("n" * 40, "a" * 40, 8080)
_DASHES = PreviewTarget("default", "my--app", 80)
_KEY = b"k" * 32


def test_a_label_says_its_target() -> None:
    label = label_of(_TARGET, "uid")
    assert label.startswith("080--my-app--default--")
    assert target_of(label) == _TARGET
    assert target_of(label_of(PreviewTarget("ns", "x", 65535), "uid")) == PreviewTarget("ns", "x", 65535)


@pytest.mark.parametrize("target", [_TARGET, _LONG, _DASHES])
def test_a_reused_name_is_another_label(target: PreviewTarget) -> None:
    assert label_of(target, "uid 1") != label_of(target, "uid 2")


@pytest.mark.parametrize("target", [_LONG, _DASHES])
def test_a_label_that_can_not_is_a_hash(target: PreviewTarget) -> None:
    label = label_of(target, "uid")
    assert label.startswith("p-")
    assert len(label) <= 63
    assert is_label(label)
    token = parse_token(sign(_KEY, "link", target, "uid", 0, 99, "-"))
    assert token is not None
    assert token.target == target


@pytest.mark.parametrize(
    "label",
    [
        *("80--my-app--default--aaaaaaaa", "0080--my-app--default--aaaaaaaa", "08080--my-app--default--aaaaaaaa"),
        *("080--my--app--default--aaaaaaaa", "080--my-app--default", "080--my-app--default--aaaaaaa1"),
        *("8500--a--b--aaaaaaaa", "8090--a--b--aaaaaaaa", "99999--a--b--aaaaaaaa", "000--a--b--aaaaaaaa"),
        *("080--A--b--aaaaaaaa", "080--a--aaaaaaaa", "p-short", "www", ""),
    ],
)
def test_other_labels_lead_nowhere(label: str) -> None:
    assert target_of(label) is None
    assert not is_label(label)


def test_a_token_is_of_all_that_it_is_for() -> None:
    tokens = {
        sign(_KEY, "link", _TARGET, "uid", 0, 99, "-"),
        sign(_KEY, "cookie", _TARGET, "uid", 0, 99, "-"),
        sign(_KEY, "link", PreviewTarget("default", "my-app", 81), "uid", 0, 99, "-"),
        sign(_KEY, "link", PreviewTarget("other", "my-app", 80), "uid", 0, 99, "-"),
        sign(_KEY, "link", _TARGET, "uid2", 0, 99, "-"),
        sign(_KEY, "link", _TARGET, "uid", 1, 99, "-"),
        sign(_KEY, "link", _TARGET, "uid", 0, 98, "-"),
        sign(_KEY, "link", _TARGET, "uid", 0, 99, "0123456789ab"),
        sign(b"j" * 32, "link", _TARGET, "uid", 0, 99, "-"),
    }
    assert len({token.split(".")[2] for token in tokens}) == 9


@pytest.mark.parametrize(
    "text", ["", "1.-.short", "x.-." + "a" * 32, "1.zz." + "a" * 32, "1.-." + "a" * 33, "1" * 5000]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    assert parse_token(text) is None


def test_ports_with_more_power_are_refused() -> None:
    assert [port for port in (0, 1, 80, 8090, 8500, 65535, 65536) if not port_refused(port)] == [1, 80, 65535]
