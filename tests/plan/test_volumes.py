"""Volumes: kept or taken away with the last sandbox that names them, and grown where they stand."""

from controller.kinds.planning.outcome import Transient
from controller.kinds.runtime.mount import BindMounts, RemoveVolumes
from tests.plan.history import History

KEY = ("default", "data")


def apply(history: History, name: str, policy: str = "Delete", size: str = "8Mi", **spec: object) -> None:
    volume = {"name": "data", "mountPath": "/data", "size": size, "reclaimPolicy": policy}
    history.apply(name, template={"volumes": [volume]}, **spec)
    history.settle()


def gone(history: History, name: str) -> None:
    history.delete(name)
    history.settle()
    assert name not in history.names()


def removals(history: History) -> list[RemoveVolumes]:
    return [entry for entry in history.engine.calls if isinstance(entry, RemoveVolumes)]


def quota(history: History, disk: str) -> None:
    history.put("Quota", "q", hard={"disk": disk})
    history.settle()


def used(history: History) -> str:
    return str(history.object("Quota", "q").status["used"]["disk"])


def test_one_that_is_to_go_goes_with_the_last_that_names_it_and_after_its_container(history: History) -> None:
    apply(history, "a")
    apply(history, "b")
    gone(history, "a")
    assert history.engine.volumes == {KEY: 8 << 20}
    assert removals(history) == []
    gone(history, "b")
    assert history.engine.volumes == {}
    (removed,) = removals(history)
    assert (removed.namespace, removed.volumes) == ("default", ("data",))
    assert str(history.engine.calls[history.engine.calls.index(removed) - 1]).startswith("remove pdk-b")


def test_one_that_is_to_stay_stays(history: History) -> None:
    apply(history, "a", "Retain")
    gone(history, "a")
    assert history.engine.volumes == {KEY: 8 << 20}


def test_one_that_a_stopped_sandbox_names_stays_for_it(history: History) -> None:
    apply(history, "kept", "Retain", runState="Suspended")
    apply(history, "a")
    gone(history, "a")
    assert history.engine.volumes == {KEY: 8 << 20}


def test_of_two_that_go_at_a_time_neither_keeps_it(history: History) -> None:
    apply(history, "a")
    apply(history, "b")
    history.delete("a")
    history.delete("b")
    history.settle()
    assert history.engine.volumes == {}


def test_a_removal_that_fails_holds_up_the_end_and_is_tried_again(history: History) -> None:
    apply(history, "a")
    history.engine.fail_next(RemoveVolumes, Transient("VolumeStays", "the disk is away"))
    history.delete("a")
    history.run_pass()
    history.settle()
    assert history.engine.volumes == {}
    assert "a" not in history.names()
    assert len(removals(history)) == 2


def test_a_larger_one_is_grown_while_the_sandbox_runs_and_nothing_is_made_anew(history: History) -> None:
    apply(history, "a")
    before = history.engine.container(history.container_name("a"))
    apply(history, "a", size="16Mi")
    assert history.engine.volumes == {KEY: 16 << 20}
    now = history.engine.container(history.container_name("a"))
    assert (now.id, now.started_at) == (before.id, before.started_at)
    assert history.condition("a", "Ready") == "True Running"
    grown = [entry for entry in history.engine.calls if isinstance(entry, BindMounts)][-1]
    assert grown.container_id == before.id


def test_a_smaller_one_is_refused_in_words_and_the_sandbox_runs_on(history: History) -> None:
    apply(history, "a")
    before = history.engine.container(history.container_name("a")).id
    volume = {"name": "data", "mountPath": "/data", "size": "4Mi", "reclaimPolicy": "Delete"}
    history.apply("a", template={"volumes": [volume]})
    for _ in range(4):
        history.run_pass()
    assert history.condition("a", "Ready") == "True Running"
    assert history.condition("a", "Degraded") == "True MountRefused"
    assert history.engine.container(history.container_name("a")).id == before
    assert history.engine.volumes == {KEY: 8 << 20}


def test_its_size_is_counted_as_disk_from_admission_until_the_sandbox_is_gone(history: History) -> None:
    quota(history, "32Mi")
    apply(history, "a", resources={"limits": {"disk": "4Mi"}})
    assert used(history) == "12Mi"
    apply(history, "a", resources={"limits": {"disk": "4Mi"}}, runState="Suspended")
    assert used(history) == "12Mi"
    apply(history, "b", size="24Mi")
    assert history.condition("b", "Scheduled") == "False QuotaExceeded"
    assert history.engine.volumes == {KEY: 8 << 20}
    gone(history, "a")
    history.settle()
    assert history.condition("b", "Ready") == "True Running"
    assert used(history) == "24Mi"


def test_one_that_has_no_room_to_grow_stays_as_it_is_and_its_sandbox_runs_on(history: History) -> None:
    quota(history, "32Mi")
    apply(history, "a")
    history.apply("other", resources={"limits": {"disk": "20Mi"}})
    history.settle()
    apply(history, "a", size="16Mi")
    assert history.engine.volumes == {KEY: 8 << 20}
    assert history.condition("a", "Ready") == "True Running"
    assert history.condition("a", "Scheduled") == "True Assigned"
    gone(history, "other")
    history.settle()
    assert history.engine.volumes == {KEY: 16 << 20}
    assert used(history) == "16Mi"
