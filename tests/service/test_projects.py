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
from tests.helpers_api import ApiStack, make_api
from tests.snapshots import snapshot_with


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiStack]:
    created = make_api(tmp_path)
    yield created
    created.store.close()


def opened(api: ApiStack, project: str) -> dict[str, Any]:
    """Open it, and return the spec of its sandbox."""
    with pytest.raises(errors.Conflict):  # nothing makes it Ready here
        api.services.projects.open("default", project, "", 0, ProjectDefaults())
    [stored] = [entry for entry in api.store.list("Sandbox")[0] if entry.name == project]
    return dict(stored.spec)


def bring_image(api: ApiStack, image: str = IMAGE) -> None:
    """Put an image on the host: the agent's."""
    api.images.remote[image] = "sha256:" + "a" * 64
    for _ in api.images.pull(image, seconds=1.0):
        pass


def sources_of(api: ApiStack, project: str) -> str:
    """Open it, and return the name of the volume that holds its sources."""
    return str(opened(api, project)["workspace"]["volume"]["name"])


def test_projects_with_alike_long_names_have_volumes_of_their_own(api: ApiStack) -> None:
    first, second = (f"{'a-project-of-a-team-with-a-very-long-name-indeed'.ljust(51, 'x')}{n}" for n in "12")
    assert sources_of(api, first) != sources_of(api, second)
    assert sources_of(api, "short") == "src-short"


def test_a_project_has_an_agent_of_its_name(api: ApiStack) -> None:
    assert opened(api, "plain")["template"].get("agent") is None  # its image is not on this host
    bring_image(api)
    template = opened(api, "shop")["template"]
    assert template["securityLevel"] == "full-isolation"  # nothing was observed yet
    assert (template["agent"]["project"], template["agent"]["root"]) == ("shop", "/workspace/src")


def test_a_project_is_of_level_development_where_networks_are_guarded(api: ApiStack) -> None:
    bring_image(api, egress.IMAGE)
    api.snapshots.append(snapshot_with(0.0, "i", {}, replace(api.view.seen, unguarded="")))
    assert opened(api, "guarded")["template"]["securityLevel"] == "development"
    api.unguarded.append("`development` can't be enforced here now")
    assert opened(api, "lost-since")["template"]["securityLevel"] == "full-isolation"


def test_a_folder_needs_a_level_that_writes_it(api: ApiStack) -> None:
    api.unguarded.append("`development` can't be enforced here now")
    with pytest.raises(errors.Invalid, match="can't be enforced"):
        api.services.projects.open("default", "shop", "", 0, ProjectDefaults(folder="/srv/shop"))
