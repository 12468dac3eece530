"""Projects: the sandbox that opening one creates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.service import errors
from controller.service.workflow.projects import ProjectDefaults
from tests.helpers_api import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    made.store.close()


def sources_of(world: World, project: str) -> str:
    """Open it, and return the name of the volume that holds its sources."""
    with pytest.raises(errors.Conflict):  # nothing makes it Ready here
        world.services.projects.open("default", project, "", 0, ProjectDefaults())
    [found] = [each for each in world.store.list("Sandbox")[0] if each.name == project]
    return str(found.spec["workspace"]["volume"]["name"])


def test_projects_with_alike_long_names_have_volumes_of_their_own(world: World) -> None:
    first, second = (f"{'a-project-of-a-team-with-a-very-long-name-indeed'.ljust(51, 'x')}{n}" for n in "12")
    assert sources_of(world, first) != sources_of(world, second)
    assert sources_of(world, "short") == "src-short"
