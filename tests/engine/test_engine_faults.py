"""Faults of the engine: missing, disconnecting, hanging or malformed; reported, and recovered from."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.kinds.observed.observed import State
from controller.kinds.planning.action import PauseContainer, RemoveContainer, StartContainer
from controller.kinds.planning.outcome import Transient, Waiting
from controller.ports import StreamError
from tests.contract.engine_proxy import Proxy
from tests.contract.engine_worlds import CountingMeter, World, docker_world, ok, read_all
from tests.daemon import wait_for

pytestmark = pytest.mark.docker


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    created = Proxy(tmp_path)
    yield created
    created.end()


@pytest.fixture
def meter() -> CountingMeter:
    return CountingMeter()


@pytest.fixture
def world(request: pytest.FixtureRequest, proxy: Proxy, meter: CountingMeter) -> Iterator[World]:
    patience = 4.0 if "hang" in request.node.name else 30.0  # which real calls need on a loaded machine
    with docker_world(
        proxy.base_url, meter=meter, pauses_seconds=(0.05, 0.2), call_timeout_seconds=patience
    ) as created:
        yield created


def test_a_missing_engine_is_reported_and_recovers(world: World, proxy: Proxy) -> None:
    uid = world.new_uid()
    world.until(lambda: "systemctl start docker" in world.engine.observe().blind)
    assert "no such file" in world.engine.ping()
    outcome = world.engine.act(world.create(uid))
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "EngineUnreachable"
    assert proxy.path in outcome.message
    with pytest.raises(StreamError, match="no Docker Engine"):
        world.streams.logs("0" * 64)
    proxy.up()
    world.until(lambda: not world.engine.observe().blind)
    world.until(lambda: world.engine.observe().facts.engine_version)
    assert world.engine.ping() == ""
    ok(world.engine.act(world.create(uid)))


def test_changes_during_a_downtime_are_observed_afterwards(world: World, proxy: Proxy) -> None:
    proxy.up()
    world.settled()
    killed, removed = world.running(world.new_uid()), world.running(world.new_uid())
    proxy.cut()
    world.until(lambda: world.engine.observe().blind)
    assert world.only(removed.uid) == removed, "what was seen last is kept while blind"
    world.hand.kill(killed.name)
    world.hand.remove(removed.name)
    proxy.up()
    world.until(lambda: world.state(killed.uid) == "exited" and world.view(removed.uid) == ())
    assert not world.engine.observe().blind


def test_a_broken_event_stream_causes_a_full_resync(world: World, proxy: Proxy, meter: CountingMeter) -> None:
    proxy.up()
    world.settled()
    sandboxes = [world.running(world.new_uid()) for _ in range(3)]
    before = meter.calls()
    proxy.break_connections()
    # Nothing changed, so nobody is woken: it is asked for.
    wait_for("all are inspected", lambda: meter.calls_since(before).get("containers.inspect", 0) >= len(sandboxes))
    assert meter.counts["paddock_docker_event_stream_reconnects_total",] >= 1
    world.hand.kill(sandboxes[0].name)
    world.until(lambda: world.state(sandboxes[0].uid) == "exited")
    assert meter.gauges["paddock_docker_event_stream_connected"] == 1


def test_a_failed_list_blinds_and_keeps_the_view(world: World, proxy: Proxy) -> None:
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    proxy.answer("GET .*/containers/json", 500)
    now = world.engine.observe_now()
    assert "out of order" in now.blind
    assert now.containers[sandbox.uid] == (sandbox,)
    proxy.behave()
    world.until(lambda: not world.engine.observe().blind)
    assert world.only(sandbox.uid) == sandbox


def test_an_engine_that_hangs_is_not_waited_for(world: World, proxy: Proxy) -> None:
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    proxy.hang("GET .*/containers/json|POST .*/start")
    assert "in time" in world.engine.observe_now().blind
    outcome = world.engine.act(StartContainer(sandbox.uid, sandbox.name, "a test", sandbox.id))
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "EngineUnreachable"
    proxy.behave()
    world.until(lambda: not world.engine.observe().blind)


@pytest.mark.parametrize("how", ["500", "hang"])
def test_an_uninspectable_container_is_unknown(world: World, proxy: Proxy, how: str) -> None:
    proxy.up()
    sandbox, running = world.settled().running(world.new_uid()), world.running(world.new_uid())
    pattern = f"GET .*/containers/{sandbox.id}/json"
    proxy.answer(pattern, 500) if how == "500" else proxy.hang(pattern)
    world.hand.kill(sandbox.name)
    world.until(lambda: world.state(sandbox.uid) == "unknown")
    now = world.engine.observe_now(full=True)
    assert not now.blind
    assert now.containers[sandbox.uid][0].state is State.UNKNOWN
    assert now.containers[running.uid] == (running,)
    proxy.behave()
    world.until(lambda: world.state(sandbox.uid) == "exited")


def test_a_new_unreadable_container_is_unknown(world: World, proxy: Proxy) -> None:
    proxy.up()
    uid = world.settled().new_uid()
    proxy.answer("GET .*/containers/[0-9a-f]{64}/json", 500)
    outcome = world.engine.act(world.create(uid))
    assert isinstance(outcome, Transient)
    now = world.engine.observe_now()
    (container,) = now.containers[uid]
    assert (container.state, container.uid, container.limits) == (State.UNKNOWN, uid, None)
    proxy.behave()
    world.until(lambda: world.state(uid) == "created")


def test_an_error_of_the_engine_is_never_absence(world: World, proxy: Proxy) -> None:
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    proxy.answer("DELETE ", 500)
    outcome = world.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert isinstance(outcome, Transient)
    assert "out of order" in outcome.message
    assert world.only(sandbox.uid) == sandbox
    proxy.behave()
    ok(world.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))


def test_an_engine_too_old_is_refused_in_words(world: World, proxy: Proxy) -> None:
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.39", "Version": "18.09.1"}')
    proxy.up()
    world.until(lambda: "18.09.1 is too old" in world.engine.observe().blind)


@pytest.mark.parametrize(
    ("newest", "lowest", "spoken"),
    [("1.52", "1.44", "1.51"), ("1.51", "1.51", "1.51"), ("1.46", "1.24", "1.46"), ("1.60", "1.53", "1.53")],
)
def test_an_engine_gets_an_api_version_it_has(
    world: World, proxy: Proxy, newest: str, lowest: str, spoken: str
) -> None:
    document = {"ApiVersion": newest, "MinAPIVersion": lowest, "Version": "29.0.0"}
    proxy.answer("GET /version", 200, json.dumps(document))
    proxy.answer("GET /v", 500)
    proxy.up()
    world.until(lambda: any(f"/v{spoken}/" in request for request in proxy.requests) and world.engine.observe().blind)
    assert {request.split("/")[1] for request in proxy.requests} <= {f"v{spoken}", "version HTTP", "_ping HTTP"}


def test_a_replaced_engine_is_asked_anew(world: World, proxy: Proxy) -> None:
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.41", "Version": "20.10.24"}')
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    proxy.behave()
    advice = "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client"
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.51", "MinAPIVersion": "1.51", "Version": "29.1.2"}')
    proxy.answer(r"POST /v(?!1\.51)", 400, json.dumps({"message": advice}))
    outcome = world.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert isinstance(outcome, Waiting)
    assert "29.1.2 has taken its place" in outcome.message
    assert "upgrade your client" not in outcome.message
    world.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert any("/v1.51/" in request for request in proxy.requests if "pause" in request)


def test_what_answers_but_is_no_engine(world: World, proxy: Proxy) -> None:
    proxy.answer("GET", 200, "<html>hello</html>")
    proxy.up()
    world.until(lambda: "not a Docker Engine" in world.engine.observe().blind)


def test_streams_that_break_say_so(world: World, proxy: Proxy) -> None:
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    stream = world.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"])
    assert next(stream).data == b"begun\n"
    proxy.cut()
    with pytest.raises(StreamError):
        next(stream)


def test_closing_ends_every_thread_and_stream(proxy: Proxy) -> None:
    before = {thread.name for thread in threading.enumerate()}
    proxy.up()
    with docker_world(proxy.base_url) as world:
        sandbox = world.settled().running(world.new_uid())
        stream = world.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"])
        assert next(stream).data == b"begun\n"
        world.engine.close()
        with pytest.raises(StreamError, match="stopping"):
            next(stream)
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("engine-")} - before
    assert names <= {"engine-stream"}


def test_read_all_of_a_finished_exec(world: World, proxy: Proxy) -> None:
    proxy.up()
    sandbox = world.settled().running(world.new_uid())
    assert read_all(world.streams.exec(sandbox.id, ["cat"], stdin=[b"through a proxy"]))[0] == b"through a proxy"
