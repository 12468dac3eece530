"""Tables of what users of Docker, Compose and kubectl type: each line runs, or is answered with what to write here."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.cli.commands import COMMANDS
from controller.cli.habits.hints import COMPOSE, ELSEWHERE, SUBCOMMANDS
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

TABLES = Path(__file__).parent / "habits"
SANDBOXES = ("web", "old", "older", "oldest")
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}\n"
AGENT = "apiVersion: agents.x-k8s.io/v1alpha1\nkind: Sandbox\nmetadata: {name: p}\nspec: {}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: p}\nspec: {replicas: 3}\n"


def rows(table: str) -> Iterator[tuple[str, str]]:
    for line in (TABLES / f"{table}.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            command, _, outcome = line.partition(" => ")
            yield command, outcome


@pytest.fixture
def spoken(
    paddock: Run, served: ApiStack, spec: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], str]:
    """Run a line of a table; return what is wrong with its outcome, or nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    served.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: {name}") for name in SANDBOXES))
    for name in SANDBOXES:
        served.view.show(served.sandbox(name))
    places = {
        "FILE": spec(QUICKSTART.replace("name: quickstart", "name: web")),
        "POD": spec(POD, "pod.yaml"),
        "AGENT": spec(AGENT, "agent.yaml"),
        "DEPLOYMENT": spec(DEPLOYMENT, "deployment.yaml"),
        "TMP": str(tmp_path),
    }

    def run(line: str, outcome: str) -> str:
        words = [places.get(word, word.replace("TMP/", f"{tmp_path}/")) for word in line.split()]
        done = paddock(*words)
        verb, _, text = outcome.partition(": ")
        is_right = done.exit_code == 0 if verb == "runs" else done.exit_code in (1, 2) and text in done.stderr
        return "" if is_right else f"{line}: expected {outcome}; exit code {done.exit_code}: {done.output[-300:]}"

    return run


@pytest.mark.parametrize(("table", "least"), [("docker", 95), ("kubectl", 103)])
def test_habits_run_or_say_what_to_write(spoken: Callable[[str, str], str], table: str, least: int) -> None:
    table_rows = list(rows(table))
    assert len(table_rows) >= least
    assert [fault for line, outcome in table_rows if (fault := spoken(line, outcome))] == []


def test_hints_name_commands_that_exist() -> None:
    for advice in (*ELSEWHERE.values(), *COMPOSE.values(), *SUBCOMMANDS["compose"].values()):
        for line in advice.split("`")[1::2]:
            tool, *words = shlex.split(line)
            fields = ("ttlSecondsAfterFinished", "maxReplicas")
            assert tool in ("paddock", "docker", "kubectl", "make", *fields) or tool.endswith(":")
            assert tool != "paddock" or words[0] in COMMANDS, line


def test_no_hint_hides_a_command() -> None:
    assert not set(ELSEWHERE) & set(COMMANDS)
