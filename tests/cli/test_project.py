"""`paddock project`: words for a project that does not exist yet."""

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("words", [("config", "sandbox", "--memory", "1G", "--project", "my-app"), ("close", "my-app")])
def test_a_missing_project_names_the_way_to_open_it(paddock: Run, words: tuple[str, ...]) -> None:
    done = paddock("project", *words)
    assert (done.exit_code, done.stderr) == (
        1,
        "error: project my-app: does not exist; open it first with `paddock project open my-app`\n",
    )
    assert "`paddock project open my-app -n team`" in paddock("project", *words, "-n", "team").stderr


def test_setting_nothing_of_a_missing_project_names_it(paddock: Run) -> None:
    done = paddock("project", "config", "sandbox", "--project", "my-app", "--network", "bridge")
    assert "project open my-app" in done.stderr
