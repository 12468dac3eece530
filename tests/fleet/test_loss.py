"""Loss of a host under Docker Swarm: what stays, what is started elsewhere, and that nothing ever runs twice."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.loop.fleet.placements import LOSS_SECONDS
from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import reason, sandbox
from tests.fleet.test_swarm_hosts import host_of, is_fit, ready
from tests.lab.fleet import NAMES, Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]
_OTHERS = {"one": "two", "two": "one"}


@pytest.fixture(scope="module")
def daemons(hosts: Fleet) -> Iterator[dict[str, RunningDaemon]]:
    created = {name: hosts[name].daemon(PADDOCK_SCHEDULER="swarm") for name in NAMES}
    wait_for("all may be chosen", lambda: all(is_fit(hosts, host) for host in hosts))
    yield created
    for daemon in created.values():
        daemon.stop()


def states(hosts: Fleet, uid: str) -> dict[str, str]:
    """Return the state of a sandbox's container on each host that has one, as the engines say."""
    document = {}
    for host in hosts:
        transport = httpx.HTTPTransport(uds=host.engine.base_url.removeprefix("unix://"))
        with (
            suppress(httpx.HTTPError),
            httpx.Client(transport=transport, base_url="http://engine", timeout=5) as client,
        ):
            filters = json.dumps({"label": [f"paddock.uid={uid}"]})
            for first in client.get("/containers/json", params={"all": "1", "filters": filters}).json():
                document[host.name] = str(first["State"])
    return document


@contextmanager
def sampled(hosts: Fleet, uid: str) -> Iterator[list[int]]:
    """Look every 50 ms how many copies of a sandbox run unfrozen; yield the most, and the number of looks."""
    most, stopping = [0, 0], threading.Event()

    def look() -> None:
        while not stopping.wait(0.05):
            most[0] = max(most[0], sum(state == "running" for state in states(hosts, uid).values()))
            most[1] += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        stopping.set()
        thread.join()


def placed_on_three(daemon: RunningDaemon, name: str, more: str = "") -> str:
    """Apply a sandbox that the swarm places on `three`, and return its uid."""
    for entry in ("one", "two"):
        daemon.paddock("host", "cordon", entry)
    daemon.apply(sandbox(name) + more)
    assert ready(daemon, name) == "three"
    for single in ("one", "two"):
        daemon.paddock("host", "uncordon", single)
    return str(daemon.get(name)["metadata"]["uid"])


_RECREATE = "  onHostLoss: Recreate\n"


@pytest.mark.parametrize("daemon_dies", [False, True])
def test_one_that_may_is_started_elsewhere_and_never_runs_twice(
    hosts: Fleet, daemons: dict[str, RunningDaemon], daemon_dies: bool
) -> None:
    """The host is cut off, and lives; its daemon is killed before, or not: then the sentinel freezes the copy alone."""
    daemon, name = daemons["one"], f"moves-{'dead' if daemon_dies else 'cut'}"
    uid = placed_on_three(daemon, name, _RECREATE)
    stays = placed_on_three(daemon, f"stays-{name}")
    wait_for("it is held", lambda: _is_held(daemons["three"], daemon.get(name)))
    with sampled(hosts, uid) as most:
        if daemon_dies:
            daemons["three"].kill()
        hosts["three"].cut()
        start = time.monotonic()
        try:
            wait_for("it is frozen", lambda: states(hosts, uid).get("three") == "paused", seconds=30)
            print(f"frozen after {time.monotonic() - start:.1f} s")
            wait_for("it has another host", lambda: host_of(daemon, name) in _OTHERS, seconds=60)
            now = ready(daemon, name)
            print(f"Ready elsewhere after {time.monotonic() - start:.1f} s")
            assert states(hosts, stays) == {"three": "running"}, "it runs on where it is"
            wait_for("that is said", lambda: reason(daemon, f"stays-{name}") == "HostLost")
        finally:
            hosts["three"].mend()
        if daemon_dies:
            daemons["three"] = hosts["three"].daemon(PADDOCK_SCHEDULER="swarm")
        wait_for("the old copy is gone", lambda: states(hosts, uid) == {now: "running"}, seconds=60)
        wait_for("the other is back", lambda: reason(daemon, f"stays-{name}") == "True")
        wait_for("the swarm has its host again", lambda: _is_ready(hosts, "three"), seconds=60)
        assert host_of(daemon, name) == now
    assert most[0] == 1, f"of {most[1]} looks"
    assert states(hosts, stays) == {"three": "running"}
    for entry in (name, f"stays-{name}"):
        daemon.paddock("delete", "sandbox", entry)


def _is_ready(hosts: Fleet, name: str) -> bool:
    """Return True if the swarm says so; it may have no leader for a moment."""
    with suppress(AssertionError):
        return hosts.nodes(hosts["one"])[name] == "ready"
    return False


def _is_held(daemon: RunningDaemon, obj: Mapping[str, Any]) -> bool:
    """Return True if the sentinel there watches the sandbox's container; those of a former daemon may be there, too."""
    with suppress(OSError, ValueError):
        containers = json.loads((daemon.folder / "held.json").read_text())["containers"]
        return obj["status"]["instanceRef"]["containerID"] in containers
    return False


def test_one_cut_off_the_store_alone_is_frozen_and_not_moved(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    """The swarm sees its host: without the word of both, the store's lease and the swarm's, nothing moves."""
    daemon = daemons["one"]
    uid = placed_on_three(daemon, "half", _RECREATE)
    wait_for("it is held", lambda: _is_held(daemons["three"], daemon.get("half")))
    with sampled(hosts, uid) as most:
        with hosts["three"].without_ports(5432):
            wait_for("it is frozen", lambda: states(hosts, uid) == {"three": "paused"}, seconds=30)
            wait_for("nobody can tell", lambda: reason(daemon, "half") == "HostLost")
            start = time.monotonic()
            wait_for("a move would be due", lambda: time.monotonic() > start + 2 * LOSS_SECONDS, seconds=60)
            assert states(hosts, uid) == {"three": "paused"}
            assert host_of(daemon, "half") == "three"
        wait_for("it runs again", lambda: states(hosts, uid) == {"three": "running"}, seconds=60)
        wait_for("it is Ready", lambda: reason(daemon, "half") == "True", seconds=60)
    assert most[0] == 1, f"of {most[1]} looks"
    daemon.paddock("delete", "sandbox", "half")


def test_a_stopped_daemon_s_sentinel_freezes_and_ends(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    daemon, stopped = daemons["one"], daemons["three"]
    uid = placed_on_three(daemon, "kept", _RECREATE)
    wait_for("it is held", lambda: _is_held(stopped, daemon.get("kept")))

    def sentinels() -> list[Path]:
        lines = [(path, read_line(path)) for path in Path("/proc").glob("[0-9]*/cmdline")]
        return [file for file, line in lines if "kernel.sentinel" in line and str(stopped.folder) in line]

    wait_for("it is watched", sentinels)
    assert stopped.stop() == 0
    wait_for("it ends", lambda: not sentinels())
    assert states(hosts, uid) == {"three": "paused"}
    daemons["three"] = hosts["three"].daemon(PADDOCK_SCHEDULER="swarm")
    wait_for("it is watched again", sentinels)
    wait_for("it runs again", lambda: states(hosts, uid) == {"three": "running"})
    daemon.paddock("delete", "sandbox", "kept")


def read_line(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def test_one_cut_off_the_swarm_alone_runs_on(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    """The swarm says that its host is down; its daemon renews the lease, so it is not lost."""
    daemon = daemons["one"]
    uid = placed_on_three(daemon, "seen", _RECREATE)
    with sampled(hosts, uid) as most, hosts["three"].without_ports(2377, 7946):
        wait_for("it is missed", lambda: hosts.nodes(hosts["one"])["three"] == "down", seconds=60)
        start = time.monotonic()
        wait_for("a move would be due", lambda: time.monotonic() > start + 2 * LOSS_SECONDS, seconds=60)
        assert states(hosts, uid) == {"three": "running"}
        assert daemons["three"].paddock("exec", "seen", "--", "echo", "on").stdout == "on\n"
        assert reason(daemon, "seen") == "True"
    assert most[0] == 1, f"of {most[1]} looks"
    wait_for("it is back", lambda: hosts.nodes(hosts["one"])["three"] == "ready", seconds=60)
    daemon.paddock("delete", "sandbox", "seen")


_RUN = """
apiVersion: paddock/v1alpha1
kind: WorkflowRun
metadata: {name: moves}
spec:
  workflow:
    sandbox:
      onHostLoss: Recreate
      template: {image: "paddock/test-tiny:1"}
      resources: {limits: {cpu: 100m, memory: 16Mi, pids: 16}}
    stages: [{name: work, exec: {commands: ["sleep 1000000"]}}]
"""


def test_a_run_whose_sandbox_begins_anew_elsewhere_fails(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    daemon = daemons["one"]

    def status() -> dict[str, Any]:
        document: dict[str, Any] = json.loads(daemon.paddock("get", "workflowrun", "moves", "-o", "json").stdout)
        return dict(document["status"])

    for name in _OTHERS:
        daemon.paddock("host", "cordon", name)
    daemon.apply(_RUN)
    wait_for("its stage runs", lambda: status()["stages"][0]["state"] == "Running", seconds=60)
    for entry in _OTHERS:
        daemon.paddock("host", "uncordon", entry)
    hosts["three"].power_off()
    start = time.monotonic()
    wait_for("it is lost", lambda: status()["conditions"][0]["reason"] == "HostLost")
    wait_for("its end", lambda: "completionTime" in status(), seconds=60)
    print(f"failed {time.monotonic() - start:.1f} s after its host was gone")
    assert (status()["phase"], status()["host"]) == ("Failed", "three")
    assert "left host three, which was lost" in status()["message"]
    hosts["three"].engine.start()
    daemons["three"] = hosts["three"].daemon(PADDOCK_SCHEDULER="swarm")
    wait_for(
        "its sandbox is gone",
        lambda: not any("moves" in entry["metadata"]["name"] for entry in daemon.objects("sandboxes")),
    )


def test_one_that_stays_is_released_by_a_person(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    uid = placed_on_three(daemon, "patient")
    hosts["three"].power_off()
    wait_for("it is lost", lambda: reason(daemon, "patient") == "HostLost")
    daemon.paddock("host", "release", "three")
    start = time.monotonic()
    wait_for("it has another host", lambda: host_of(daemon, "patient") in _OTHERS)
    ready(daemon, "patient")
    print(f"released, and Ready elsewhere after {time.monotonic() - start:.1f} s")
    hosts["three"].engine.start()
    again = hosts["three"].daemon(PADDOCK_SCHEDULER="swarm")
    wait_for("the old copy is gone", lambda: set(states(hosts, uid)) == {host_of(daemon, "patient")}, seconds=60)
    again.stop()
