"""Completion in real shells, with a daemon and without one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.cli.commands import COMMANDS
from controller.cli.complete import FILES, NO_SPACE, candidates
from controller.cli.main import cli
from tests.helpers_api import QUICKSTART, ApiStack

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = """
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: tests}
spec: {stages: [{name: a, exec: {command: ["true"]}}], sandbox: {template: {image: paddock/python:1}}}
"""
Complete = Callable[..., list[str]]
BASH = """
source <(paddock completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 ))
_paddock_completion "$1" 2>&1
printf '%s\\n' "${COMPREPLY[@]}"
"""


# A shell's user gets an answer within a second, or none; on a loaded machine that would be none.
PATIENT = "import controller.cli.complete as c; c._TIMEOUT_SECONDS = 60; from controller.__main__ import main; main()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Working folder of the shell, with a `paddock` of its own."""
    command = tmp_path / "bin" / "paddock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -c "{PATIENT}" "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.fixture
def peopled(served: ApiStack) -> ApiStack:
    """Return a daemon with sandboxes to name."""
    served.apply(f"{QUICKSTART}---\n{QUICKSTART.replace('name: quickstart', 'name: quarry')}")
    served.apply(QUICKSTART.replace("name: quickstart", "name: far\n  namespace: team"))
    return served


@pytest.fixture
def complete(peopled: ApiStack, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what the shells' scripts ask for: completions of the last word, but for the marks of files and spaces."""
    monkeypatch.setattr("controller.cli.complete._TIMEOUT_SECONDS", 60)

    def words(*arguments: str, server: str = f"unix://{peopled.socket}") -> list[str]:
        lines = candidates(cli, list(arguments), server)
        return [line for line in lines if line not in (FILES, NO_SPACE)]

    return words


@pytest.fixture
def in_bash(folder: Path, peopled: ApiStack) -> Complete:
    """Return bash's completions of the last word."""

    def run(*words: str, server: str = f"unix://{peopled.socket}") -> list[str]:
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", BASH, "bash", "paddock", *words],
            env={"PATH": path, "PADDOCK_SERVER": server, "HOME": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    return run


def test_bash_completes(in_bash: Complete, folder: Path) -> None:
    (folder / "spec.yaml").touch()
    assert in_bash("de") == ["describe", "delete"]
    assert in_bash("apply", "--dry-run", "=", "cl") == ["client"]
    assert in_bash("describe", "sb", "q") == ["quarry", "quickstart"]
    assert in_bash("label", "sb/quarry", "sandboxe") == ["sandboxes/"]
    assert in_bash("apply", "-f", "spe") == ["spec.yaml"]


def test_commands_and_options(complete: Complete) -> None:
    assert complete("") == list(COMMANDS)
    assert complete("set", "r") == ["resources", "run-state"]
    assert "--dry-run" in complete("apply", "--d")
    assert complete("apply", "--dry-run", "s") == ["server"]


def test_kinds_and_object_names(complete: Complete) -> None:
    assert complete("describe", "sandboxe") == ["sandboxes"]
    assert complete("describe", "sb", "q") == ["quarry", "quickstart"]
    assert complete("describe", "sandbox/qui") == ["sandbox/quickstart"]
    assert complete("delete", "-n", "team", "sandbox", "") == ["far"]
    assert complete("label", "sb/quarry", "sandboxe") == ["sandboxes/"]
    assert complete("logs", "--tail", "3", "qua") == ["quarry"]
    assert complete("set", "image", "sb/qua") == ["sb/quarry"]
    assert complete("set", "run-state", "sb/quarry", "Su") == ["Suspended"]
    assert complete("wait", "-n", "te") == ["team"]
    assert complete("describe", "nothing", "") == []
    assert complete("get", "securityp") == ["securityprofiles"]
    assert complete("describe", "sp", "") == ["build", "development", "full-isolation", "production"]
    assert complete("delete", "even") == []  # it can only be read


def test_names_are_those_of_the_commands_kind(complete: Complete, served: ApiStack) -> None:
    served.apply(WORKFLOW)
    for arguments in (["exec"], ["sandbox", "logs", "quarry"], ["sandbox", "get"], ["project", "open"]):
        assert complete(*arguments, "qu") == ["quarry", "quickstart"], arguments
    assert complete("host", "cordon", "") == ["host"]
    assert complete("workflow", "run", "") == ["tests"]
    for message in (["token", "revoke"], ["config", "use-context"], ["mcp", "call"], ["secret", "delete"]):
        assert complete(*message, "") == [], message
    for texts in (["workflow", "cancel"], ["mcp", "enable"], ["plugin", "remove"], ["exec", "quarry"]):
        assert complete(*texts, "") == [], texts


def test_fields_and_shells(complete: Complete) -> None:
    assert complete("explain", "sandbox.spec.temp") == ["sandbox.spec.template", "sandbox.spec.templateRef"]
    assert complete("completion", "f") == ["fish"]


def test_without_a_daemon_it_is_silent(in_bash: Complete) -> None:
    nowhere = "unix:///nowhere.sock"
    assert in_bash("describe", "sb", "q", server=nowhere) == []
    assert in_bash("describe", "", server=nowhere) == []
    assert in_bash("desc", server=nowhere) == ["describe"]
    assert in_bash("describe", "sb", "q", server="nonsense") == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(folder: Path) -> None:
    stubs = 'compadd() { print -r -- "$@" }; compdef() { : }; source <(paddock completion zsh); '
    assert shell("zsh", ["-f", "-c", f"{stubs} words=(paddock des) CURRENT=2; _paddock"], folder) == "-- describe\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Path) -> None:
    script = "paddock completion fish | source; complete -C 'paddock des'"
    assert shell("fish", ["--no-config", "-c", script], folder) == "describe\n"


def shell(name: str, words: list[str], folder: Path) -> str:
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run([name, *words], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_unknown_shell_is_refused() -> None:
    done = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert (done.exit_code, "bash, zsh, fish" in done.stderr) == (2, True)
