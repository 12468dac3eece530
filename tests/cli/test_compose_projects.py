"""Twenty public projects' Compose files: each becomes sandboxes, with what differs in words, or is refused in words.

To accept new wording, run with PADDOCK_ACCEPT=1 and read the difference before it is committed.
"""

import os

import pytest

from tests.cli.conftest import Run
from tests.compose.projects import FOLDER, PROJECTS, REFUSED, files_of


def outcome_of(paddock: Run, project: str) -> tuple[int, str]:
    files = [word for file in files_of(project) for word in ("-f", file)]
    done = paddock("compose", *files, "config")
    return done.exit_code, (done.stderr + done.stdout).replace(f"{FOLDER}/{project}/", "").replace(f"{FOLDER}/", "")


@pytest.mark.parametrize("project", PROJECTS)
def test_a_public_project_becomes_this(paddock: Run, project: str) -> None:
    exit_code, outcome = outcome_of(paddock, project)
    expected = FOLDER / f"{project}.txt"
    if os.environ.get("PADDOCK_ACCEPT"):
        expected.write_text(outcome)
    assert outcome == expected.read_text()
    assert exit_code == (1 if project in REFUSED else 0)


def test_twenty_projects_are_accepted() -> None:
    assert len(PROJECTS) - len(REFUSED) == 20
