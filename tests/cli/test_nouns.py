"""`paddock sandbox ...`: other commands, below their noun."""

import pytest

from tests.cli.conftest import Run
from tests.helpers_api import ApiStack


@pytest.mark.parametrize("verb", ["get", "list", "describe", "delete"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_of_a_command_for_sandboxes(paddock: Run, verb: str, option: str) -> None:
    done = paddock("sandbox", verb, option)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: cli sandbox {verb} [OPTIONS] [NAME ...]\n")


def test_names_are_those_of_sandboxes(paddock: Run, served: ApiStack) -> None:
    served.apply()
    for arguments in (["get"], ["get", "quickstart"], ["list", "sandbox/quickstart"]):
        assert paddock("sandbox", *arguments, "-o", "name").stdout == "sandbox.paddock/quickstart\n"
    assert paddock("sandbox", "describe", "quickstart").stdout.startswith("Name:           quickstart\n")
    assert "write sandbox/x" in paddock("sandbox", "get", "pool/x").stderr
    assert paddock("sandbox", "delete", "quickstart", "--wait=false").exit_code == 0
    assert served.sandbox().deleted_at is not None


@pytest.mark.parametrize("noun", ["host", "sandbox", "project", "config"])
def test_summaries_are_whole(paddock: Run, noun: str) -> None:
    output = paddock(noun, "--help").stdout
    commands = " ".join(output.partition("Commands:")[2].split())
    assert commands
    assert "..." not in commands
    if noun == "host":
        assert (
            "Let sandboxes start on a host again that was cordoned, drained or released; those that waited for"
            in commands
        )


def test_a_sandbox_is_created_by_its_name(paddock: Run, served: ApiStack) -> None:
    assert paddock("sandbox", "create", "web", "--image", "a:1").stdout == "sandbox.paddock/web created\n"
    assert served.sandbox("web").spec["template"]["image"] == "a:1"
    assert "command" not in served.sandbox("web").spec["template"]
    done = paddock("create", "sandbox", "db", "--level", "none", "--", "sleep", "9")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/db created\n"), done.stderr
    template = served.sandbox("db").spec["template"]
    assert (template["command"], template["securityLevel"]) == (["sleep", "9"], "full-isolation")
    assert "already exists" in paddock("sandbox", "create", "web").stderr
    assert paddock("sandbox", "create", "one", "-f", "file").exit_code == 2
