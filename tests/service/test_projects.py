"""Projects: the sandbox that opening one creates."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.runtime.agent import IMAGE
from controller.policy.network import egress
from controller.service import errors
from controller.service.workflow.projects import ProjectDefaults
from tests.helpers_api import World, make_world
from tests.snapshots import snapshot_with


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    created = make_world(tmp_path)
    yield created
    created.store.close()


def opened(world: World, project: str) -> dict[str, Any]:
    """Open it, and return the spec of its sandbox."""
    with pytest.raises(errors.Conflict):  # nothing makes it Ready here
        world.services.projects.open("default", project, "", 0, ProjectDefaults())
    [stored] = [entry for entry in world.store.list("Sandbox")[0] if entry.name == project]
    return dict(stored.spec)


def bring_image(world: World, image: str = IMAGE) -> None:
    """Put an image on the host: the agent's."""
    world.images.remote[image] = "sha256:" + "a" * 64
    for _ in world.images.pull(image, seconds=1.0):
        pass


def sources_of(world: World, project: str) -> str:
    """Open it, and return the name of the volume that holds its sources."""
    return str(opened(world, project)["workspace"]["volume"]["name"])


def test_projects_with_alike_long_names_have_volumes_of_their_own(world: World) -> None:
    first, second = (f"{'a-project-of-a-team-with-a-very-long-name-indeed'.ljust(51, 'x')}{n}" for n in "12")
    assert sources_of(world, first) != sources_of(world, second)
    assert sources_of(world, "short") == "src-short"


def test_a_project_has_an_agent_of_its_name(world: World) -> None:
    assert opened(world, "plain")["template"].get("agent") is None  # its image is not on this host
    bring_image(world)
    template = opened(world, "shop")["template"]
    assert template["securityLevel"] == "full-isolation"  # nothing was observed yet
    assert (template["agent"]["project"], template["agent"]["root"]) == ("shop", "/workspace/src")


def test_a_project_is_of_level_development_where_networks_are_guarded(world: World) -> None:
    bring_image(world, egress.IMAGE)
    world.snapshots.append(snapshot_with(0.0, "i", {}, replace(world.view.seen, unguarded="")))
    assert opened(world, "guarded")["template"]["securityLevel"] == "development"
    world.unguarded.append("`development` can't be enforced here now")
    assert opened(world, "lost-since")["template"]["securityLevel"] == "full-isolation"


def test_a_folder_needs_a_level_that_writes_it(world: World) -> None:
    world.unguarded.append("`development` can't be enforced here now")
    with pytest.raises(errors.Invalid, match="can't be enforced"):
        world.services.projects.open("default", "shop", "", 0, ProjectDefaults(folder="/srv/shop"))
