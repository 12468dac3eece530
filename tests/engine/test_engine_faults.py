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
from tests.contract.engine_hosts import CountingMeter, EngineHost, docker_host, ok, read_all
from tests.contract.engine_proxy import Proxy
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
def host(request: pytest.FixtureRequest, proxy: Proxy, meter: CountingMeter) -> Iterator[EngineHost]:
    patience = 4.0 if "hang" in request.node.name else 30.0  # which real calls need on a loaded machine
    with docker_host(proxy.base_url, meter=meter, pauses_seconds=(0.05, 0.2), call_timeout_seconds=patience) as created:
        yield created


def test_a_missing_engine_is_reported_and_recovers(host: EngineHost, proxy: Proxy) -> None:
    uid = host.new_uid()
    host.until(lambda: "systemctl start docker" in host.engine.observe().blind)
    assert "no such file" in host.engine.ping()
    outcome = host.engine.act(host.create(uid))
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "EngineUnreachable"
    assert proxy.path in outcome.message
    with pytest.raises(StreamError, match="no Docker Engine"):
        host.streams.logs("0" * 64)
    proxy.up()
    host.until(lambda: not host.engine.observe().blind)
    host.until(lambda: host.engine.observe().facts.engine_version)
    assert host.engine.ping() == ""
    ok(host.engine.act(host.create(uid)))


def test_changes_during_a_downtime_are_observed_afterwards(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    host.settled()
    killed, removed = host.running(host.new_uid()), host.running(host.new_uid())
    proxy.cut()
    host.until(lambda: host.engine.observe().blind)
    assert host.only(removed.uid) == removed, "what was seen last is kept while blind"
    host.hand.kill(killed.name)
    host.hand.remove(removed.name)
    proxy.up()
    host.until(lambda: host.state(killed.uid) == "exited" and host.view(removed.uid) == ())
    assert not host.engine.observe().blind


def test_a_broken_event_stream_causes_a_full_resync(host: EngineHost, proxy: Proxy, meter: CountingMeter) -> None:
    proxy.up()
    host.settled()
    sandboxes = [host.running(host.new_uid()) for _ in range(3)]
    before = meter.calls()
    proxy.break_connections()
    # Nothing changed, so nobody is woken: it is asked for.
    wait_for("all are inspected", lambda: meter.calls_since(before).get("containers.inspect", 0) >= len(sandboxes))
    assert meter.counts["paddock_docker_event_stream_reconnects_total",] >= 1
    host.hand.kill(sandboxes[0].name)
    host.until(lambda: host.state(sandboxes[0].uid) == "exited")
    assert meter.gauges["paddock_docker_event_stream_connected"] == 1


def test_a_failed_list_blinds_and_keeps_the_view(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    proxy.answer("GET .*/containers/json", 500)
    now = host.engine.observe_now()
    assert "out of order" in now.blind
    assert now.containers[sandbox.uid] == (sandbox,)
    proxy.behave()
    host.until(lambda: not host.engine.observe().blind)
    assert host.only(sandbox.uid) == sandbox


def test_an_engine_that_hangs_is_not_waited_for(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    proxy.hang("GET .*/containers/json|POST .*/start")
    assert "in time" in host.engine.observe_now().blind
    outcome = host.engine.act(StartContainer(sandbox.uid, sandbox.name, "a test", sandbox.id))
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "EngineUnreachable"
    proxy.behave()
    host.until(lambda: not host.engine.observe().blind)


@pytest.mark.parametrize("how", ["500", "hang"])
def test_an_uninspectable_container_is_unknown(host: EngineHost, proxy: Proxy, how: str) -> None:
    proxy.up()
    sandbox, running = host.settled().running(host.new_uid()), host.running(host.new_uid())
    pattern = f"GET .*/containers/{sandbox.id}/json"
    proxy.answer(pattern, 500) if how == "500" else proxy.hang(pattern)
    host.hand.kill(sandbox.name)
    host.until(lambda: host.state(sandbox.uid) == "unknown")
    now = host.engine.observe_now(full=True)
    assert not now.blind
    assert now.containers[sandbox.uid][0].state is State.UNKNOWN
    assert now.containers[running.uid] == (running,)
    proxy.behave()
    host.until(lambda: host.state(sandbox.uid) == "exited")


def test_a_new_unreadable_container_is_unknown(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    uid = host.settled().new_uid()
    proxy.answer("GET .*/containers/[0-9a-f]{64}/json", 500)
    outcome = host.engine.act(host.create(uid))
    assert isinstance(outcome, Transient)
    now = host.engine.observe_now()
    (container,) = now.containers[uid]
    assert (container.state, container.uid, container.limits) == (State.UNKNOWN, uid, None)
    proxy.behave()
    host.until(lambda: host.state(uid) == "created")


def test_an_error_of_the_engine_is_never_absence(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    proxy.answer("DELETE ", 500)
    outcome = host.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert isinstance(outcome, Transient)
    assert "out of order" in outcome.message
    assert host.only(sandbox.uid) == sandbox
    proxy.behave()
    ok(host.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))


def test_an_engine_too_old_is_refused_in_words(host: EngineHost, proxy: Proxy) -> None:
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.39", "Version": "18.09.1"}')
    proxy.up()
    host.until(lambda: "18.09.1 is too old" in host.engine.observe().blind)


@pytest.mark.parametrize(
    ("newest", "lowest", "spoken"),
    [("1.52", "1.44", "1.51"), ("1.51", "1.51", "1.51"), ("1.46", "1.24", "1.46"), ("1.60", "1.53", "1.53")],
)
def test_an_engine_gets_an_api_version_it_has(
    host: EngineHost, proxy: Proxy, newest: str, lowest: str, spoken: str
) -> None:
    document = {"ApiVersion": newest, "MinAPIVersion": lowest, "Version": "29.0.0"}
    proxy.answer("GET /version", 200, json.dumps(document))
    proxy.answer("GET /v", 500)
    proxy.up()
    host.until(lambda: any(f"/v{spoken}/" in request for request in proxy.requests) and host.engine.observe().blind)
    assert {request.split("/")[1] for request in proxy.requests} <= {f"v{spoken}", "version HTTP", "_ping HTTP"}


def test_a_replaced_engine_is_asked_anew(host: EngineHost, proxy: Proxy) -> None:
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.41", "Version": "20.10.24"}')
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    proxy.behave()
    advice = "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client"
    proxy.answer("GET /version", 200, '{"ApiVersion": "1.51", "MinAPIVersion": "1.51", "Version": "29.1.2"}')
    proxy.answer(r"POST /v(?!1\.51)", 400, json.dumps({"message": advice}))
    outcome = host.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert isinstance(outcome, Waiting)
    assert "29.1.2 has taken its place" in outcome.message
    assert "upgrade your client" not in outcome.message
    host.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test"))
    assert any("/v1.51/" in request for request in proxy.requests if "pause" in request)


def test_what_answers_but_is_no_engine(host: EngineHost, proxy: Proxy) -> None:
    proxy.answer("GET", 200, "<html>hello</html>")
    proxy.up()
    host.until(lambda: "not a Docker Engine" in host.engine.observe().blind)


def test_streams_that_break_say_so(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"])
    assert next(stream).data == b"begun\n"
    proxy.cut()
    with pytest.raises(StreamError):
        next(stream)


def test_closing_ends_every_thread_and_stream(proxy: Proxy) -> None:
    before = {thread.name for thread in threading.enumerate()}
    proxy.up()
    with docker_host(proxy.base_url) as host:
        sandbox = host.settled().running(host.new_uid())
        stream = host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"])
        assert next(stream).data == b"begun\n"
        host.engine.close()
        with pytest.raises(StreamError, match="stopping"):
            next(stream)
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("engine-")} - before
    assert names <= {"engine-stream"}


def test_read_all_of_a_finished_exec(host: EngineHost, proxy: Proxy) -> None:
    proxy.up()
    sandbox = host.settled().running(host.new_uid())
    assert read_all(host.streams.exec(sandbox.id, ["cat"], stdin=[b"through a proxy"]))[0] == b"through a proxy"
