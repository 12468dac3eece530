"""The git tool: listed operations and options, and nothing that runs another program."""

import pytest

from tests.agent.conftest import Start


def test_a_commit_is_made_and_shown(start: Start) -> None:
    agent = start()
    assert agent.tool("git", operation="init", args=["-b", "main"])["success"]
    (agent.root / "f").write_text("x\n")
    assert agent.tool("git", operation="add", args=["-A"])["success"]
    done = agent.tool("git", operation="commit", args=["-m", "first"], author="A <a@example.org>")
    assert done["success"], done
    assert "first" in agent.tool("git", operation="log", args=["--oneline", "-5"])["output"]
    assert "+x" in agent.tool("git", operation="show")["output"]


def test_hooks_do_not_run(start: Start) -> None:
    agent = start()
    agent.tool("git", operation="init")
    hook = agent.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {agent.root}/hooked\n")
    hook.chmod(0o755)
    assert agent.tool("git", operation="commit", args=["--allow-empty", "-m", "x"], author="A <a@example.org>")[
        "success"
    ]
    assert not (agent.root / "hooked").exists()


@pytest.mark.parametrize(
    ("operation", "args", "reason"),
    [
        ("fetch", ["--upload-pack=touch x", "."], "option `--upload-pack` is not allowed"),
        ("clone", ["-ucmd", "x"], "option `-ucmd` is not allowed"),
        ("clone", ["-c", "core.sshCommand=x", "y"], "option `-c` is not allowed"),
        ("clone", ["ext::sh -c touch% x", "y"], "`ext::` would run a program"),
        ("log", ["--output=/tmp/x"], "option `--output` is not allowed"),
        ("grep", ["-Ocmd", "x"], "option `-Ocmd` is not allowed"),
        ("rebase", ["--exec", "touch x"], "option `--exec` is not allowed"),
        ("config", ["alias.x", "!sh"], "is not on the list"),
        ("submodule", ["update"], "is not on the list"),
    ],
)
def test_what_runs_other_programs_is_refused(start: Start, operation: str, args: list[str], reason: str) -> None:
    answer = start(git="Remote").tool("git", operation=operation, args=args)
    assert answer["success"] is False
    assert reason in answer["error"]


def test_settings_decide_what_is_reached(start: Start) -> None:
    assert "set `template.agent.git` to Remote" in start(git="Local").tool("git", operation="fetch")["error"]
    assert "git is off in this sandbox" in start(git="None").tool("git", operation="status")["error"]
