"""Contract of every ports.Engine (with its Streams and usage): one suite on the fake and on a real Docker Engine."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.common.labels import INSTANCE, UID
from controller.kinds.common.log_tail import Tail
from controller.kinds.observed.observed import OutOfBandSettings, State
from controller.kinds.planning.action import (
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
)
from controller.kinds.planning.outcome import Ok, Terminal, Transient, Waiting
from controller.kinds.runtime.container import Limits
from controller.policy.images import remedy
from controller.ports import StreamError
from tests.contract.engine_hosts import SMALL, TINY, EngineHost, docker_host, fake_host, ok, read_all
from tests.daemon import wait_for


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


@pytest.fixture
def uid(host: EngineHost) -> str:
    return host.new_uid()


def start(host: EngineHost, uid: str, container_id: str = "") -> object:
    return host.engine.act(StartContainer(uid, host.create(uid).config.name, "a test", container_id))


# Seeing what was done


def test_a_fresh_engine_sees_nothing_and_says_what_it_is(host: EngineHost) -> None:
    snapshot = host.engine.observe()
    assert not snapshot.blind
    assert dict(snapshot.containers) == {}
    host.until(lambda: host.engine.observe().facts.engine_version)
    facts = host.engine.observe().facts
    assert facts.cpus > 0
    assert facts.memory_bytes > 0
    assert facts.cgroup_version in ("1", "2")
    assert host.engine.ping() == ""


def test_a_created_container_is_in_the_view_at_once(host: EngineHost, uid: str) -> None:
    action = host.create(uid)
    name = ok(host.engine.act(action))
    container = host.only(uid)
    assert container.id == name
    assert container.state is State.CREATED
    assert container.name == action.config.name
    assert container.image == TINY
    assert container.image_id.startswith("sha256:")
    assert container.limits == SMALL
    assert container.runtime == host.engine.observe().facts.default_runtime
    assert container.pid == 0
    assert (container.created_at > 0, container.started_at, container.finished_at) == (True, 0, 0)


def test_labels_are_read_back(host: EngineHost, uid: str) -> None:
    action = host.create(uid)
    ok(host.engine.act(action))
    container = host.only(uid)
    assert (container.uid, container.role, container.generation) == (uid, "sandbox", 3)
    assert (container.config_hash, container.template_hash) == (action.config.hash(), "feedbeef")


def test_start_without_an_id_starts_the_one_just_created(host: EngineHost, uid: str) -> None:
    container = host.made(uid)
    assert start(host, uid) == Ok(container.id)
    observed = host.only(uid)
    assert observed.state is State.RUNNING
    assert observed.pid > 0
    assert observed.started_at > 0
    assert observed.networks == ("none",)
    assert observed.limits == SMALL


def test_a_pinned_image_is_used_by_its_id(host: EngineHost, uid: str) -> None:
    image_id = host.made(host.new_uid()).image_id
    ok(host.engine.act(replace(host.create(uid, image="moved/away:1"), image_id=image_id)))
    assert host.only(uid).image_id == image_id


def test_containers_of_one_object_are_together_oldest_first(host: EngineHost, uid: str) -> None:
    first = host.made(uid)
    second = ok(host.engine.act(host.create(uid, name=first.name + "-b")))
    together = host.view(uid)
    assert {container.id for container in together} == {first.id, second}
    assert list(together) == sorted(together, key=lambda each: (each.created_at, each.id))


def test_every_change_moves_the_revision_and_wakes(host: EngineHost, uid: str) -> None:
    revision, wakes = host.engine.observe().revision, host.wakes
    host.made(uid)
    assert host.engine.observe().revision > revision
    assert host.wakes > wakes


# Names


def test_creating_twice_gives_the_same_container(host: EngineHost, uid: str) -> None:
    action = host.create(uid)
    assert host.engine.act(action) == host.engine.act(action)
    assert len(host.view(uid)) == 1


def test_a_name_held_by_a_foreign_container_is_a_conflict(host: EngineHost, uid: str) -> None:
    action = host.create(uid)
    host.hand.add_foreign(action.config.name)
    outcome = host.engine.act(action)
    assert isinstance(outcome, Transient)
    assert outcome.reason == "NameConflict"
    assert action.config.name in outcome.message
    assert host.view(uid) == ()


def test_a_name_held_for_another_object_is_a_conflict(host: EngineHost, uid: str) -> None:
    second = host.new_uid()
    container = host.made(second)
    outcome = host.engine.act(host.create(uid, name=container.name))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "NameConflict"
    assert host.only(second).id == container.id


def test_renaming(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    action = RenameContainer(uid, sandbox.name + "-new", sandbox.id, sandbox.name, "a test")
    assert host.engine.act(action) == Ok(sandbox.id)
    assert host.only(uid).name == sandbox.name + "-new"
    assert host.engine.act(action) == Ok(sandbox.id)


def test_renaming_to_a_taken_name(host: EngineHost, uid: str) -> None:
    sandbox, container = host.made(uid), host.made(host.new_uid())
    outcome = host.engine.act(RenameContainer(uid, container.name, sandbox.id, sandbox.name, "a test"))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "NameConflict"
    assert host.only(uid).name == sandbox.name


# What can't be made


def test_a_missing_image_says_so_and_what_to_do(host: EngineHost, uid: str) -> None:
    outcome = host.engine.act(host.create(uid, image="paddock/nowhere:1"))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "ImageMissing"
    assert outcome.message == f"paddock/nowhere:1 is not on this host; {remedy('paddock/nowhere:1')}"
    assert "choose one that is here (`paddock image list`)" in outcome.message
    assert "no such image" not in outcome.message.lower()


def test_a_pinned_image_that_is_gone_says_what_to_do(host: EngineHost, uid: str) -> None:
    outcome = host.engine.act(replace(host.create(uid), image_id=f"sha256:{'0' * 64}"))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "ImageMissing"
    assert "change spec.template" in outcome.message


def test_pulling_an_image_that_is_here_does_nothing(host: EngineHost) -> None:
    assert host.engine.act(PullImage(TINY, "a test")) == Ok()


@pytest.mark.parametrize("limits", [replace(SMALL, memory_bytes=4096), replace(SMALL, cpu_millicores=10_000_000)])
def test_what_the_engine_refuses_waits_for_a_new_generation(host: EngineHost, uid: str, limits: Limits) -> None:
    outcome = host.engine.act(host.create(uid, limits=limits))
    assert isinstance(outcome, Terminal)
    assert outcome.reason == "InvalidConfig"
    assert outcome.message


def test_gpus_without_a_driver_for_them_are_refused_in_words(host: EngineHost, uid: str) -> None:
    """As on any machine without them: never started with less than was asked for."""
    sandbox = host.made(uid, gpus=1)
    outcome = host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id))
    assert isinstance(outcome, Terminal)
    assert outcome.reason == "NoDeviceDriver"
    assert "no driver for them" in outcome.message
    assert host.only(uid).state is not State.RUNNING


def test_labels_of_another_store_are_refused(host: EngineHost, uid: str) -> None:
    outcome = host.engine.act(host.create(uid, labels={INSTANCE: "another"}))
    assert isinstance(outcome, Terminal)
    assert not host.hand.exists(host.create(uid).config.name)


# Doing twice, and doing to what has gone


def test_starting_what_is_paused_fails(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    ok(host.engine.act(PauseContainer(uid, sandbox.name, sandbox.id, "a test")))
    outcome = start(host, uid, sandbox.id)
    assert isinstance(outcome, Transient)
    assert outcome.reason == "StartFailed"


def test_pausing_and_unpausing_each_twice(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    for _ in range(2):
        assert host.engine.act(PauseContainer(uid, sandbox.name, sandbox.id, "a test")) == Ok(sandbox.id)
        assert host.only(uid).state is State.PAUSED
        assert host.only(uid).limits == SMALL
    for _ in range(2):
        assert host.engine.act(UnpauseContainer(uid, sandbox.name, sandbox.id, "a test")) == Ok(sandbox.id)
        assert host.only(uid).state is State.RUNNING


def test_pausing_what_does_not_run_fails(host: EngineHost, uid: str) -> None:
    sandbox = host.made(uid)
    assert isinstance(host.engine.act(PauseContainer(uid, sandbox.name, sandbox.id, "a test")), Transient)


def test_removing_twice(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    action = RemoveContainer(uid, sandbox.name, sandbox.id, "a test")
    assert host.engine.act(action) == Ok(sandbox.id)
    assert host.view(uid) == ()
    assert host.engine.act(action) == Ok(sandbox.id)
    assert not host.hand.exists(sandbox.name)


def test_signalling_or_removing_what_has_gone_is_done(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    assert host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")) == Ok(sandbox.id)
    assert host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test")) == Ok(sandbox.id)
    assert host.view(uid) == ()


def test_anything_else_done_to_what_has_gone_waits_for_the_next_look(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    for action in (
        StartContainer(uid, sandbox.name, "a test", sandbox.id),
        StartContainer(uid, sandbox.name, "a test"),
        PauseContainer(uid, sandbox.name, sandbox.id, "a test"),
        UnpauseContainer(uid, sandbox.name, sandbox.id, "a test"),
        UpdateLimits(uid, sandbox.name, sandbox.id, SMALL, "a test"),
        RenameContainer(uid, "pdk-else", sandbox.id, sandbox.name, "a test"),
    ):
        outcome = host.engine.act(action)
        assert isinstance(outcome, Waiting), action
        assert outcome.reason == "ContainerGone"


def test_a_container_out_of_its_cgroups_has_no_limits_until_its_restart(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.lose_cgroups(sandbox.name)
    host.engine.observe_now()
    lost = host.only(uid)
    assert (lost.state, lost.limits, lost.cgroups_lost) == (State.RUNNING, None, True)
    host.next_daemon()
    assert (host.only(uid).limits, host.only(uid).cgroups_lost) == (None, True)
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    ok(host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id)))
    now = host.only(uid)
    assert (now.limits, now.cgroups_lost) == (sandbox.limits, False)


# Ends


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("KILL", 137)])
def test_a_signal_ends_it_with_its_exit_code(host: EngineHost, uid: str, signal: str, code: int) -> None:
    sandbox = host.running(uid)
    action = SignalContainer(uid, sandbox.name, sandbox.id, signal, "a test")
    assert host.engine.act(action) == Ok(sandbox.id)
    host.until(lambda: host.state(uid) == "exited")
    container = host.only(uid)
    assert (container.exit_code, container.pid, container.oom_killed) == (code, 0, False)
    assert container.finished_at >= container.started_at > 0
    assert host.engine.act(action) == Ok(sandbox.id)


def test_an_image_ends_by_its_own_stop_signal(host: EngineHost, uid: str) -> None:
    image = f"paddock/test-{uuid.uuid4().hex[:12]}:1"
    host.hand.build_with_stop_signal(image, "SIGINT")
    sandbox = host.running(uid, image=image, command=("sh", "-c", "trap 'exit 7' INT; echo up; sleep 1000 & wait"))
    wait_for("it traps the signal", lambda: read_all(host.streams.logs(sandbox.id))[0])
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, sandbox.stop_signal, "a test")))
    host.until(lambda: host.state(uid) == "exited")
    assert (sandbox.stop_signal, host.only(uid).exit_code) == ("INT", 7)


def test_kill_is_seen_when_act_returns(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    assert host.state(uid) == "exited"


def test_a_signal_ends_what_is_paused(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    ok(host.engine.act(PauseContainer(uid, sandbox.name, sandbox.id, "a test")))
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    assert host.state(uid) == "exited"


def test_the_exit_code_of_the_command(host: EngineHost, uid: str) -> None:
    host.running(uid, command=("sh", "-c", "exit 7"))
    host.until(lambda: host.state(uid) == "exited")
    assert host.only(uid).exit_code == 7


def test_args_replace_the_images_own(host: EngineHost, uid: str) -> None:
    host.running(uid, command=None, args=("sh", "-c", "exit 8"))
    host.until(lambda: host.state(uid) == "exited")
    assert host.only(uid).exit_code == 8


def test_started_again_after_its_end(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    assert start(host, uid, sandbox.id) == Ok(sandbox.id)
    container = host.only(uid)
    assert container.state is State.RUNNING
    assert container.exit_code == 0
    assert container.pid not in (0, sandbox.pid)
    assert container.limits == SMALL


# What somebody did by hand


def test_a_kill_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.kill(sandbox.name)
    host.until(lambda: host.state(uid) == "exited")
    assert host.only(uid).exit_code == 137


def test_a_removal_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    host.until(lambda: host.view(uid) == ())


def test_a_rename_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.rename(sandbox.name, sandbox.name + "-x")
    host.until(lambda: host.only(uid).name == sandbox.name + "-x")


def test_a_pause_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.pause(sandbox.name)
    host.until(lambda: host.state(uid) == "paused")
    host.hand.unpause(sandbox.name)
    host.until(lambda: host.state(uid) == "running")


def test_a_start_by_hand_is_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.made(uid)
    host.hand.start(sandbox.name)
    host.until(lambda: host.state(uid) == "running")


def test_limits_changed_by_hand_are_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    changed = Limits(cpu_millicores=250, memory_bytes=64 << 20, pids=16)
    host.hand.update_limits(sandbox.name, changed)
    host.until(lambda: host.only(uid).limits == changed)


# Limits


def test_limits_change_in_place(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    limits = Limits(cpu_millicores=750, memory_bytes=48 << 20, pids=64, cpu_shares=512)
    action = UpdateLimits(uid, sandbox.name, sandbox.id, limits, "a test")
    assert host.engine.act(action) == Ok(sandbox.id)
    container = host.only(uid)
    assert container.limits == limits
    assert (container.pid, container.started_at) == (sandbox.pid, sandbox.started_at)
    assert host.engine.act(action) == Ok(sandbox.id)


def test_shares_of_zero_are_left_as_they_are(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, limits=replace(SMALL, cpu_shares=256))
    ok(host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, replace(SMALL, pids=40), "a test")))
    assert host.only(uid).limits == replace(SMALL, pids=40, cpu_shares=256)


def test_memory_that_is_no_whole_page_is_no_drift(host: EngineHost, uid: str) -> None:
    odd = replace(SMALL, memory_bytes=(32 << 20) + 5)
    sandbox = host.running(uid, limits=odd)
    assert sandbox.limits == odd
    odder = replace(SMALL, memory_bytes=(40 << 20) + 7)
    ok(host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, odder, "a test")))
    host.engine.observe_now()
    assert host.only(uid).limits == odder


def test_limits_of_a_stopped_container_change_for_its_next_start(host: EngineHost, uid: str) -> None:
    sandbox = host.made(uid)
    small = replace(SMALL, memory_bytes=64 << 20)
    assert host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, small, "a test")) == Ok(sandbox.id)
    assert host.only(uid).limits == small
    ok(start(host, uid, sandbox.id))  # type: ignore[arg-type]
    assert host.only(uid).limits == small


# Foreign containers


def test_foreign_containers_are_invisible(host: EngineHost, uid: str) -> None:
    host.hand.add_foreign(f"paddock-{uid[:8]}")
    host.hand.add_foreign(f"pdk-{uid[:8]}", {INSTANCE: "another-store", UID: uid})
    host.engine.observe_now(full=True)
    assert dict(host.engine.observe().containers) == {}


def test_foreign_containers_are_never_touched(host: EngineHost, uid: str) -> None:
    name = f"pdk-{uid[:8]}"
    foreign = host.hand.add_foreign(name, {INSTANCE: "another-store", UID: uid})
    for action in (
        StartContainer(uid, name, "a test"),
        StartContainer(uid, name, "a test", foreign),
        SignalContainer(uid, name, foreign, "KILL", "a test"),
        PauseContainer(uid, name, foreign, "a test"),
        UpdateLimits(uid, name, foreign, SMALL, "a test"),
        RenameContainer(uid, name + "-mine", foreign, name, "a test"),
        RemoveContainer(uid, name, foreign, "a test"),
    ):
        outcome = host.engine.act(action)
        assert isinstance(outcome, Transient), action
        assert outcome.reason == "ForeignContainer"
    assert host.hand.exists(name)
    with pytest.raises(StreamError):
        host.streams.exec(foreign, ["true"])
    with pytest.raises(StreamError):
        host.streams.logs(foreign)


# Streams


def test_exec_in_what_does_not_run_says_so(host: EngineHost, uid: str) -> None:
    sandbox = host.made(uid)
    with pytest.raises(StreamError, match="not running"):
        host.streams.exec(sandbox.id, ["true"])


def test_exec_in_what_has_gone_says_so(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    with pytest.raises(StreamError, match="gone"):
        host.streams.exec(sandbox.id, ["true"])


def test_logs_hold_both_streams(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo out; echo err >&2; exit 0"))
    host.until(lambda: host.state(uid) == "exited")
    # A busy engine may write the last output after it has told of the end (seen: 26.1).
    wait_for("its output", lambda: read_all(host.streams.logs(sandbox.id)) == (b"out\n", b"err\n", b""))


def test_logs_give_the_last_lines(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo one; echo two; echo three; exit 0"))
    host.until(lambda: host.state(uid) == "exited")
    assert read_all(host.streams.logs(sandbox.id, tail=2))[0] == b"two\nthree\n"
    assert read_all(host.streams.logs(sandbox.id, since=sandbox.started_at + 3600))[0] == b""
    assert b"one" in read_all(host.streams.logs(sandbox.id, timestamps=True))[0]


def test_a_container_is_told_of_in_the_engines_own_words(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    inspect = host.streams.inspect(sandbox.id)
    assert (inspect["Id"], inspect["Name"], inspect["State"]["Running"]) == (sandbox.id, f"/{sandbox.name}", True)
    assert inspect["State"]["Pid"] == sandbox.pid
    assert isinstance(inspect["Config"]["Env"], list)
    host.hand.remove(sandbox.name)
    with pytest.raises(StreamError, match="gone"):
        host.streams.inspect(sandbox.id)


def test_logs_end_where_they_are_cut(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo one; exit 0"))
    host.until(lambda: host.state(uid) == "exited")
    assert read_all(host.streams.logs(sandbox.id, until=host.only(uid).finished_at + 3600))[0] == b"one\n"
    assert read_all(host.streams.logs(sandbox.id, until=sandbox.created_at - 1))[0] == b""


def test_a_closed_stream_has_ended(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo begun; sleep 1000"))
    stream = host.streams.logs(sandbox.id, follow=True)
    assert next(stream).data == b"begun\n"
    stream.close()
    stream.close()
    assert list(stream) == []


# Last words


def tail(host: EngineHost, uid: str, since: float = 0.0) -> Tail:
    sandbox = host.only(uid)
    outcome = host.engine.act(ReadTail(uid, sandbox.name, sandbox.id, sandbox.finished_at, "a test", since))
    assert isinstance(outcome, Ok)
    assert outcome.tail is not None
    return outcome.tail


def test_the_last_words_of_what_has_ended(host: EngineHost, uid: str) -> None:
    host.running(uid, command=("sh", "-c", "echo one; echo two >&2; exit 1"))
    host.until(lambda: host.state(uid) == "exited")
    assert sorted(tail(host, uid).lines) == ["one", "two"]
    assert tail(host, uid, host.only(uid).finished_at + 3600) == Tail()


def test_the_last_words_of_what_has_gone(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    host.until(lambda: host.view(uid) == ())
    outcome = host.engine.act(ReadTail(uid, sandbox.name, sandbox.id, 0, "a test"))
    assert isinstance(outcome, Ok)
    assert outcome.tail is not None
    assert "removed" in outcome.tail.note


def test_the_end_of_a_container_that_is_removed_by_force_is_known(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.remove(sandbox.name)
    host.until(lambda: sandbox.id in host.engine.observe().ends)
    assert host.engine.observe().ends[sandbox.id].exit_code == 137


# What `docker update` sets and no spec asks for


def test_a_container_bears_nothing_set_by_hand(host: EngineHost, uid: str) -> None:
    assert host.running(uid).out_of_band == OutOfBandSettings()
    assert host.made(host.new_uid()).out_of_band == OutOfBandSettings()


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize(
    "changes",
    [{"swap_bytes": 64 << 20}, {"swap_bytes": -1}, {"restart_policy": "always"}],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else "",
)
def test_what_is_set_by_hand_is_seen_and_taken_back(
    host: EngineHost, uid: str, changes: dict[str, Any], running: bool
) -> None:
    host.until(lambda: host.engine.observe().facts.engine_version)
    if "swap_bytes" in changes and not host.engine.observe().facts.swap_limit:
        pytest.skip("this kernel limits no swap")
    sandbox = host.running(uid) if running else host.made(uid)
    host.hand.update(sandbox.name, **changes)
    host.until(lambda: host.only(uid).out_of_band == replace(OutOfBandSettings(), **changes))
    assert host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, SMALL, "a test")) == Ok(sandbox.id)
    assert (host.only(uid).out_of_band, host.only(uid).limits) == (OutOfBandSettings(), SMALL)


def test_cpus_set_by_hand_are_seen(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.update(sandbox.name, cpus="0")
    host.until(lambda: host.only(uid).out_of_band.cpus == "0")
    assert host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, SMALL, "a test")) == Ok(sandbox.id)


def test_shares_set_by_hand_are_seen_and_can_be_set_back(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.hand.update(sandbox.name, cpu_shares=2048)
    host.until(lambda: host.only(uid).limits == replace(SMALL, cpu_shares=2048))
    default = replace(SMALL, cpu_shares=1024)
    assert host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, default, "a test")) == Ok(sandbox.id)
    assert host.only(uid).limits == default
