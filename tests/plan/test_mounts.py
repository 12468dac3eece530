"""Workspaces of sandboxes: bound before a start and while it runs, moved, missing, and never another's."""

import pytest

from controller.kinds.planning.action import CreateContainer
from controller.kinds.runtime.mount import BindMounts, HostRoot
from controller.policy.levels.levels import Policy
from tests.plan.history import History

FOLDER = {"hostPath": "/srv/projects/a", "readOnly": True}


@pytest.fixture
def history() -> History:
    return History(Policy(host_roots=(HostRoot(path="/srv/projects"),)))


def bound(history: History, name: str) -> list[str]:
    return [
        bound_mount.mount
        for bound_mount in history.engine.container(history.container_name(name)).seen(readable=True).bound
    ]


def test_another_folder_is_another_container_and_the_same_one_is_not(history: History) -> None:
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle()
    before = history.engine.container(history.container_name("a")).id
    history.apply("a", template={"workspace": {}}, workspace=FOLDER, priority=1)
    history.settle()
    assert history.engine.container(history.container_name("a")).id == before
    history.apply("a", template={"workspace": {}}, workspace={**FOLDER, "hostPath": "/srv/projects/b"})
    history.settle()
    assert history.engine.container(history.container_name("a")).id != before
    assert bound(history, "a") == ["/workspace from host folder /srv/projects/b read-only"]


def test_a_workspace_that_comes_later_makes_a_new_container(history: History) -> None:
    history.apply("a")
    history.settle()
    before = history.engine.container(history.container_name("a")).id
    history.apply("a", workspace=FOLDER)
    history.settle()
    assert history.engine.container(history.container_name("a")).id != before
    assert bound(history, "a") == ["/workspace from host folder /srv/projects/a read-only"]


def test_what_is_unmounted_by_hand_is_bound_again(history: History) -> None:
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle()
    history.engine.unmount(history.container_name("a"), "/workspace")
    plan = history.run_pass()
    (group,) = plan.groups
    assert sum(isinstance(action, BindMounts) for action in group.actions) == 1
    assert history.condition("a", "Ready") == "False MountsMissing"
    history.settle()
    assert history.condition("a", "Ready") == "True Running"


def test_what_is_mounted_over_it_by_hand_is_not_secured(history: History) -> None:
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle()
    sandbox = history.engine.container(history.container_name("a"))
    inside = sandbox.seen(readable=True).inside
    assert inside is not None
    sandbox.tampered["mounts"] = tuple(
        mount if mount.path != "/workspace" else type(mount)("/workspace", "ext4", writable=False, origin="8:1 /other")
        for mount in inside.mounts
    )
    history.engine.observe_now(full=True)
    history.settle(seconds=0)
    assert history.condition("a", "Secured") == "False NotSecured"


def test_a_folder_that_is_not_there_holds_up_the_start_in_words(history: History) -> None:
    history.engine.folders = set()
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle(seconds=0)
    assert history.condition("a", "Ready") == "False MountRefused"
    assert history.containers() == {}, "nothing runs without what it asked for"
    history.engine.folders = None
    history.settle()
    assert history.condition("a", "Ready") == "True Running"


def test_all_is_bound_anew_before_each_start(history: History) -> None:
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle()
    name = history.container_name("a")
    history.engine.kill(name)
    history.engine.places.clear()  # as by a boot of the host
    history.settle()
    assert (history.condition("a", "Ready"), len(bound(history, "a"))) == ("True Running", 1)
    create_containers = [entry for entry in history.engine.calls if isinstance(entry, CreateContainer)]
    assert len(create_containers) == 1


def test_a_lost_record_kills_nothing(history: History) -> None:
    history.apply("a", template={"workspace": {}}, workspace=FOLDER)
    history.settle()
    sandbox = history.engine.container(history.container_name("a"))
    history.engine.lose_record(sandbox.name)
    history.engine.observe_now(full=True)
    history.settle()
    assert history.condition("a", "Secured") == "Unknown MountsUnrecorded"
    assert history.condition("a", "Ready") == "True Running"
    history.engine.kill(sandbox.name)
    history.settle()
    assert history.condition("a", "Secured") == "True Attested"
    assert history.engine.container(sandbox.name).id == sandbox.id, "its next start binds all anew"


@pytest.mark.parametrize("path", ["/tmp", "/workspace"])
def test_an_unmounted_folder_of_the_engines_comes_back_by_a_restart(history: History, path: str) -> None:
    history.apply("a")
    history.settle()
    sandbox = history.engine.container(history.container_name("a"))
    assert path in {mount.path for mount in sandbox.seen(readable=True).inside.mounts}  # type: ignore[union-attr]
    history.engine.unmount_inside(sandbox.name, path)
    history.engine.observe_now()
    history.run_pass()
    assert history.condition("a", "Secured") == "False MountsGone"
    history.settle()
    assert history.condition("a", "Secured") == "True Attested"
    assert (history.condition("a", "Ready"), history.engine.container(sandbox.name).id) == ("True Running", sandbox.id)
