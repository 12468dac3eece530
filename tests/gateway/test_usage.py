"""Tokens that an answer reports, estimates where it reports none, and a key that is never passed on."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.gateway.config import Target, choose, is_match
from controller.gateway.usage import Redactor, UsageReader
from tests.examples import examples

_KEY = "sk-abab-1"


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from([_KEY, "sk-", "s", "sk-abab", "x", "\n", "ab"]), max_size=20), st.integers(1, 7))
def test_a_key_never_passes_however_it_is_divided(parts: list[str], size: int) -> None:
    text = "".join(parts).encode()
    redactor = Redactor(_KEY)
    passed = b"".join(redactor.feed(text[at : at + size]) for at in range(0, len(text), size)) + redactor.flush()
    assert passed == text.replace(_KEY.encode(), b"***")


def test_events_are_not_held_back() -> None:
    assert Redactor(_KEY).feed(b'data: {"a": "s"}\n\n') == b'data: {"a": "s"}\n\n'
    assert Redactor("").feed(b"sk") == b"sk"


def _stream(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_usage_of_streams() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    anthropic = _stream(start, {"type": "message_delta", "usage": {"output_tokens": 30}})
    openai = _stream({"choices": []}, {"usage": {"prompt_tokens": 4, "completion_tokens": 5}})
    responses = _stream({"type": "response.completed", "response": {"usage": {"input_tokens": 2, "output_tokens": 3}}})
    for body, expected in ((anthropic, (7, 30)), (openai, (4, 5)), (responses, (2, 3))):
        for size in (1, 7, len(body)):
            reader = UsageReader("text/event-stream; charset=utf-8", 400)
            for at in range(0, len(body), size):
                reader.feed(body[at : at + size])
            assert reader.tokens() == expected


def test_unreported_and_cut_answers_are_estimated() -> None:
    reader = UsageReader("text/event-stream", 400)
    reader.feed(_stream(*[{"choices": []}] * 12))
    assert reader.tokens() == (100, 12)
    cut = UsageReader("text/event-stream", 400)
    cut.feed(_stream({"message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}, *[{}] * 20))
    assert cut.tokens(finished=False) == (7, 21)
    endless = UsageReader("text/event-stream", 0)
    endless.feed(b"data: " + b"x" * (3 << 20))
    assert endless.tokens()[0] == 0
    usage_reader = UsageReader("application/json", 0)
    usage_reader.feed(json.dumps({"usage": {"prompt_tokens": 3, "total_tokens": 3}}).encode())
    assert usage_reader.tokens() == (3, 0)
    false = UsageReader("application/json", 8)
    false.feed(json.dumps({"usage": {"prompt_tokens": -5, "completion_tokens": True}}).encode())
    assert false.tokens() == (2, len(json.dumps({"usage": {"prompt_tokens": -5, "completion_tokens": True}})) // 4)


def _target(name: str, *models: str, renamed: str = "") -> Target:
    return Target(id=name, namespace="default", name=name, form="OpenAI", models=models, renamed=renamed)


def test_a_model_belongs_to_the_first_that_lists_it() -> None:
    targets = (_target("openai", "gpt-*"), _target("router", "*"), _target("smol", "smol", renamed="tiny"))
    chooses = {entry: choose(targets, entry) for entry in ("gpt-4", "llama", "smol/smol", "openai/gpt-4", "router/a/b")}
    assert {name: (got[0].name, got[1]) for name, got in chooses.items() if got} == {
        "gpt-4": ("openai", "gpt-4"),
        "llama": ("router", "llama"),
        "smol/smol": ("smol", "tiny"),
        "openai/gpt-4": ("openai", "gpt-4"),
        "router/a/b": ("router", "a/b"),
    }
    assert choose(targets[:1], "llama") is None


def test_patterns_are_of_whole_names() -> None:
    assert is_match("claude-*", "claude-")
    assert is_match("*-a-*", "x-a-a-")
    assert not is_match("claude-*", "my-claude-1")
    assert not is_match("ab*ba", "aba")
    assert not is_match("gpt-4", "gpt-4o")
