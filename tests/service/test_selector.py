"""Label selectors, equality-based and set-based."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.service.errors import BadRequest
from controller.service.listing.selector import parse

LABELS = {"app": "web", "tier": "db", "example.org/team": "a-1", "empty": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "app=web",
        "app==web",
        "app = web , tier=db",
        "app!=api",
        "missing!=x",
        "app in (web, api)",
        "app notin (api)",
        "missing notin (api)",
        "app",
        "!missing",
        "example.org/team=a-1",
        "empty=",
        "app in (web,api),tier notin (x),!missing",
    ],
)
def test_matches(text: str) -> None:
    assert parse(text).matches(LABELS)


@pytest.mark.parametrize(
    "text", ["app=api", "app!=web", "app in (api)", "app notin (web,x)", "missing", "!app", "app=web,tier=x"]
)
def test_does_not_match(text: str) -> None:
    assert not parse(text).matches(LABELS)


@pytest.mark.parametrize(
    "text", ["app in", "app in web", "=web", "app=web,", "a b", "app in (we b)", "app=we b", "!", "app>1"]
)
def test_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match="write app=web"):
        parse(text)


_WORDS = st.sampled_from(["a", "b", "c"])


@settings(deadline=None)
@given(st.dictionaries(_WORDS, _WORDS), _WORDS, st.lists(_WORDS, min_size=1))
def test_in_and_notin_are_opposites(labels: dict[str, str], key: str, values: list[str]) -> None:
    inside, outside = parse(f"{key} in ({','.join(values)})"), parse(f"{key} notin ({','.join(values)})")
    assert inside.matches(labels) != outside.matches(labels)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    try:
        parse(text)
    except BadRequest as error:
        assert str(error)  # noqa: PT017 - either way is right; only another exception is not
