"""Files in memory across stops: kept by every suspension, discarded if asked."""

from typing import Any

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import RemoveContainer, SignalContainer, StartContainer
from controller.kinds.planning.outcome import FILES_NOT_SAVED, Transient
from controller.kinds.runtime.mount import BindMounts, CheckFiles, RemoveFiles, SaveFiles
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import IMAGE
from tests.plan.history import History

IDLE: dict[str, Any] = {"idleTimeoutSeconds": 60, "shutdownGracePeriodSeconds": 5}
TMP = "/tmp"


@pytest.fixture
def history() -> History:
    created = History(Policy(holds_memory=True))
    created.engine.at_rest = True
    return created


def uid(history: History) -> str:
    return history.object("Sandbox", "web").uid


def running(history: History, **spec: Any) -> None:
    """Run a sandbox with a file in memory."""
    history.apply("web", **spec)
    history.settle(seconds=0)
    assert history.condition("web", "Ready") == "True Running"
    history.engine.in_memory[uid(history)][TMP] = "kept"


def memory(history: History) -> dict[str, str]:
    return history.engine.in_memory.get(uid(history), {})


def saved(history: History) -> dict[str, str]:
    return history.engine.saved_files.get(uid(history), {})


def kinds(history: History, *of: type) -> list[str]:
    return [type(entry).__name__ for entry in history.engine.calls if isinstance(entry, of)]


def test_new_sandbox_has_its_folders_from_this_host(history: History) -> None:
    running(history)
    (container,) = history.engine.observe().containers[uid(history)]
    assert set(container.slots) == {TMP, "/workspace"}
    assert {(bound_mount.path, bound_mount.keeps_files) for bound_mount in container.bound} == {
        (TMP, True),
        ("/workspace", True),
    }
    assert history.condition("web", "Secured") == "True Attested"
    assert history.condition("web", "FilesKept") == "True InMemory"


WRITABLE = {"securityLevel": "development", "template": {"tmpfs": [{"mountPath": TMP, "size": "8Mi"}]}}
VOLUME = {"name": "data", "mountPath": "/data", "size": "8Mi"}


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({}, "files in memory stay"),
        ({"lifecycle": {"onSuspend": "Discard"}}, "files in memory are lost"),
        ({"template": {"volumes": [VOLUME]}}, "its volumes and files in memory stay"),
        (WRITABLE, "its root file system begins from its image again"),
        ({**WRITABLE, "restoreFrom": {"snapshotRef": {"name": "s"}}}, "begins from snapshot `s` again"),
    ],
)
def test_a_new_container_says_what_stays_and_goes(history: History, spec: dict[str, Any], outcome: str) -> None:
    history.engine.add_image(IMAGE)
    running(history, **spec)
    template = {**spec.get("template", {}), "env": [{"name": "NEW", "value": "1"}]}
    for change, ending in (({}, outcome), ({"restoreFrom": {"snapshotRef": {"name": "t"}}}, "of snapshot `t` then")):
        history.apply("web", **{**spec, **change, "template": template})
        history.settle()
        *_, event = (event for event in history.events_of("web") if event.reason == "Recreating")
        assert event.message.endswith(ending)


def test_suspension_saves_after_the_stop_and_start_puts_back(history: History) -> None:
    running(history)
    history.engine.calls.clear()
    history.apply("web", runState="Suspended")
    history.settle()
    assert kinds(history, CheckFiles, SignalContainer, SaveFiles) == ["CheckFiles", "SignalContainer", "SaveFiles"]
    assert (memory(history), saved(history)) == ({}, {TMP: "kept"})
    assert history.condition("web", "FilesKept") == "True Saved"
    history.settle()
    assert kinds(history, SaveFiles) == ["SaveFiles"], "saved once"
    history.engine.calls.clear()
    history.apply("web", runState="Running")
    history.settle(seconds=0)
    assert kinds(history, BindMounts, StartContainer) == ["BindMounts", "StartContainer"]
    assert (memory(history), saved(history)) == ({TMP: "kept"}, {})
    assert history.condition("web", "FilesKept") == "True InMemory"


def test_discard_loses_them_as_before(history: History) -> None:
    running(history, lifecycle={"onSuspend": "Discard"})
    history.apply("web", lifecycle={"onSuspend": "Discard"}, runState="Suspended")
    history.settle()
    assert kinds(history, CheckFiles, SaveFiles) == []
    assert history.condition("web", "FilesKept") == "False Discarded"
    history.apply("web", lifecycle={"onSuspend": "Discard"})
    history.settle(seconds=0)
    assert (memory(history), saved(history)) == ({}, {})


def test_too_large_is_said_before_anything_stops(history: History) -> None:
    running(history)
    history.engine.too_large.add(uid(history))
    history.engine.calls.clear()
    history.apply("web", runState="Suspended")
    history.settle(seconds=0)
    assert kinds(history, CheckFiles, SignalContainer) == ["CheckFiles"]
    assert history.condition("web", "FilesKept") == "False TooLarge"
    assert history.engine.container(history.container_name("web")).state is State.RUNNING
    history.engine.too_large.clear()
    history.settle(seconds=400)
    assert saved(history) == {TMP: "kept"}


def test_failed_save_loses_nothing_and_blocks_no_start(history: History) -> None:
    running(history)
    history.engine.fail_next(SaveFiles, Transient(FILES_NOT_SAVED, "the disk is full"))
    history.apply("web", runState="Suspended")
    history.settle(seconds=0)
    assert (history.condition("web", "FilesKept"), memory(history)) == ("False NotSaved", {TMP: "kept"})
    history.apply("web", runState="Running")
    history.settle(seconds=0)
    assert (history.condition("web", "Ready"), memory(history)) == ("True Running", {TMP: "kept"})


@pytest.mark.parametrize("change", ["crash", "recreate"])
def test_restart_and_recreate_keep_them(history: History, change: str) -> None:
    running(history)
    if change == "crash":
        history.engine.kill(history.container_name("web"))
    else:
        history.apply("web", template={"env": [{"name": "A", "value": "1"}]})
    history.settle(seconds=20)
    assert history.condition("web", "Ready") == "True Running"
    assert memory(history) == {TMP: "kept"}
    assert (RemoveContainer in map(type, history.engine.calls)) is (change == "recreate")


def test_switch_of_running_one_takes_effect_in_place(history: History) -> None:
    running(history, lifecycle={"onSuspend": "Discard"})
    history.engine.calls.clear()
    history.apply("web", lifecycle={"onSuspend": "KeepFiles"})
    history.settle(seconds=0)
    assert kinds(history, RemoveContainer, BindMounts, StartContainer) == ["BindMounts"]
    history.apply("web", lifecycle={"onSuspend": "KeepFiles"}, runState="Suspended")
    history.settle()
    assert saved(history) == {TMP: "kept"}


def test_container_of_before_is_renewed_at_its_next_start(history: History) -> None:
    history.policy = Policy()
    history.daemon()
    history.apply("web")
    history.settle(seconds=0)
    history.policy = Policy(holds_memory=True)
    history.daemon()
    history.engine.calls.clear()
    history.settle(seconds=20)
    assert history.condition("web", "Outdated") == "False UpToDate"
    assert history.condition("web", "FilesKept") == "False NextStart"
    assert history.engine.calls == []
    history.engine.kill(history.container_name("web"))
    history.settle(seconds=20)
    assert history.condition("web", "FilesKept") == "True InMemory"
    assert kinds(history, RemoveContainer) == ["RemoveContainer"]


def test_delete_removes_saved_files_without_container_too(history: History) -> None:
    running(history)
    history.apply("web", runState="Suspended")
    history.settle()
    ours = uid(history)
    history.engine.remove(history.container_name("web"))
    assert history.engine.saved_files[ours]
    history.delete("web")
    history.settle()
    assert (history.names(), history.engine.saved_files, kinds(history, RemoveFiles)) == ([], {}, ["RemoveFiles"])


def test_idle_sandbox_keeps_its_files(history: History) -> None:
    running(history, lifecycle=IDLE)
    history.settle(seconds=200)
    assert history.condition("web", "Suspended") == "True IdleReaped"
    assert saved(history) == {TMP: "kept"}


def test_idle_one_that_does_not_fit_stays_running(history: History) -> None:
    running(history, lifecycle=IDLE)
    history.engine.too_large.add(uid(history))
    history.settle(seconds=1000)
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("web", "FilesKept") == "False TooLarge"
    assert kinds(history, SignalContainer) == []
    assert len(kinds(history, CheckFiles)) < 20, "with a back-off"
