"""Untrusted text: no control character reaches a terminal, and no table gets an extra row."""

import json

import pytest
import yaml

from controller.cli.safe_text import UNSAFE
from controller.cli.text.output import columns
from tests.cli.conftest import Run
from tests.helpers_api import ApiStack

EVIL = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202etxt.exe\r\nforged   row"


@pytest.fixture
def evil(served: ApiStack) -> ApiStack:
    """A sandbox with control characters in its texts."""
    served.apply()
    condition = {"type": "Ready", "status": "False", "reason": "StartFailed", "message": EVIL}
    served.change(annotations={"example.org/note": EVIL}, status={"conditions": [condition]})
    served.add_event(served.sandbox(), "Failed", EVIL, "Warning")
    return served


@pytest.mark.parametrize(
    "words",
    [
        ["get", "sandboxes"],
        ["get", "events"],
        ["get", "sandboxes", "-o", "json"],
        ["get", "sandboxes", "-o", "yaml"],
        ["get", "sandboxes", "-o", "custom-columns=A:.metadata.annotations.example\\.org/note"],
        ["describe", "sandbox", "quickstart"],
        ["events"],
        ["annotate", "sandbox", "quickstart", "--list"],
        ["get", "sandbox", EVIL],
        ["logs", EVIL],
    ],
    ids=" ".join,
)
def test_no_control_character_is_printed(paddock: Run, evil: ApiStack, words: list[str]) -> None:
    done = paddock(*words)
    assert "txt.exe" in done.stdout + done.stderr or words == ["get", "sandboxes"], "it is not hidden either"
    assert not UNSAFE.search(done.stdout)
    assert not UNSAFE.search(done.stderr)


def test_a_row_is_a_line(paddock: Run, evil: ApiStack) -> None:
    lines = paddock("get", "events").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("\\x1b]0;owned\\x07 \\x1b[2J \\x9b31m \\u202etxt.exe\\x0d\\nforged   row")
    assert columns([["a\tb", "c"], ["d", "e"]]) == "a\\tb   c\nd      e"


def test_programs_read_the_exact_text(paddock: Run, evil: ApiStack) -> None:
    name = ("get", "sandbox", "quickstart", "-o")
    for document in (json.loads(paddock(*name, "json").stdout), yaml.safe_load(paddock(*name, "yaml").stdout)):
        assert document["metadata"]["annotations"] == {"example.org/note": EVIL}
    path = "jsonpath={.metadata.annotations.example\\.org/note}"
    assert paddock(*name, path).stdout_bytes == f"{EVIL}\n".encode()


def test_safe_text_is_unchanged(paddock: Run, served: ApiStack) -> None:
    served.apply()
    served.change(annotations={"note": "Grüße\tan 世界 👩‍💻"})
    assert "Grüße\tan 世界 👩‍💻" in paddock("describe", "sandbox", "quickstart").stdout
    assert "Grüße" in paddock("get", "sandbox", "quickstart", "-o", "json").stdout
    assert "世界" in paddock("get", "sandbox", "quickstart", "-o", "yaml").stdout
