"""Spec files that went wrong as files do: cut, doubled, mixed up. They are read, or their problems are told."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.documents.document import parse
from controller.kinds.registry import discover
from tests.examples import examples

REGISTRY = discover()
EXAMPLES = sorted(path.read_text() for path in (Path(__file__).parents[2] / "specs").glob("**/*.yaml"))
WORDS = "--- ... &a *a !!python/object:os.system !!binary ? : - | >- { } [ ] \" ' # %YAML ~ 1e999 0x10 .nan no <<: *a"
RUNS = ("9" * 400, "-" * 400, "  " * 60, "\\u0000")
PIECES = st.sampled_from([*(f"{name} " for name in WORDS.split()), *"\n\t\r\x00\ufeff\u2028\ud7ff", *RUNS])


@st.composite
def spoiled(draw: st.DrawFn) -> str:
    """An example, after some accidents."""
    text = draw(st.sampled_from(EXAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 60)))
        accident = draw(st.sampled_from(("put", "cut", "double", "tail", "swap")))
        if accident == "put":
            text = text[:at] + draw(PIECES) + text[at:]
        elif accident == "cut":
            text = text[:at] + text[end:]
        elif accident == "double":
            text = text[:end] + text[at:]
        elif accident == "tail":
            text = text[:at]
        else:
            text = text[:at] + draw(PIECES) + text[end:]
    return text


@settings(max_examples=examples(100))
@given(spoiled())
def test_a_corrupted_file_is_read_or_reported(text: str) -> None:
    documents, problems = parse("spoiled.yaml", text, REGISTRY)
    lines = 2 + sum(text.count(name) for name in "\n\r\x85\u2028\u2029")
    for problem in problems:
        assert problem.message
        assert 0 <= problem.line <= lines
    assert all(document.kind in REGISTRY for document in documents)
