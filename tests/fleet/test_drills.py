"""Faults of a fleet placed by Docker Swarm: what runs goes on, nothing is doubled, and all goes on afterwards.

Each prints its times: they are in tests/README.md.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import containers, leading, reason, sandbox
from tests.fleet.test_swarm_hosts import daemons, ready
from tests.lab.copies import never_two
from tests.lab.fleet import NAMES, Fleet, FleetHost

__all__ = ["daemons"]
pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]
_LONG_SECONDS = 120.0


@pytest.fixture(autouse=True)
def single(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> Iterator[None]:
    """One sandbox on each host, named `on-HOST`, none of which ever runs twice."""
    with never_two(hosts):
        for name in NAMES:
            daemons["one"].apply(sandbox(f"on-{name}", name))
        for name in NAMES:
            ready(daemons["one"], f"on-{name}")
        yield


def running(host: FleetHost) -> set[str]:
    """Return the running containers of a host's sandbox `on-HOST`."""
    return set(host.docker("ps", "-q", "--no-trunc", "--filter", f"label=paddock.name=on-{host.name}").split())


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def placed(daemon: RunningDaemon, name: str) -> None:
    """Wait until a sandbox that names no host is Ready, and delete it."""
    wait_for(f"{name} is placed and Ready", lambda: reason(daemon, name) == "True", _LONG_SECONDS)
    daemon.paddock("delete", "sandbox", name)
    wait_for("it is gone", lambda: not daemon.get(name))


def test_the_swarms_leader_is_killed(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    leader = hosts.leader()
    fleet_hosts = [host for host in hosts if host is not leader]
    before = {fleet_host.name: running(fleet_host) for fleet_host in fleet_hosts}
    leader.engine.end(signal.SIGKILL)
    try:
        start, daemon = time.monotonic(), daemons[fleet_hosts[0].name]
        daemon.apply(sandbox("next"))
        placed(daemon, "next")
        print(f"\nthe swarm's leader is killed: another sandbox is placed and Ready after {since(start)}")
        assert {fleet_host.name: running(fleet_host) for fleet_host in fleet_hosts} == before
    finally:
        leader.engine.start()
    started_at = time.monotonic()
    ready(daemons[leader.name], f"on-{leader.name}")
    wait_for("its sandbox runs", lambda: running(leader), _LONG_SECONDS)
    print(f"... its engine is started: its sandbox is Ready after {since(started_at)}")


def test_the_quorum_is_lost_and_found(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    host, *fleet_hosts = hosts
    before = running(host)
    for fleet_host in fleet_hosts:
        fleet_host.engine.end(signal.SIGKILL)
    try:
        start, daemon = time.monotonic(), daemons[host.name]
        daemon.apply(sandbox("next"))
        wait_for("it is shown", lambda: reason(daemon, "next", "Scheduled") == "NoQuorum", _LONG_SECONDS)
        print(f"\nthe quorum is lost: NoQuorum is shown after {since(start)}")
        assert running(host) == before
        assert daemon.paddock("exec", f"on-{host.name}", "--", "echo", "on").stdout == "on\n"
    finally:
        for entry in fleet_hosts:
            entry.engine.start()
    started_at = time.monotonic()
    wait_for("it is placed", lambda: reason(daemon, "next") == "True", _LONG_SECONDS)
    print(f"... both engines are started: what waited is Ready after {since(started_at)}")
    placed(daemon, "next")
    assert running(host) == before


def test_a_daemon_is_killed(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    leads = wait_for("one leads", lambda: leading(daemons))
    _kill_daemon(hosts, daemons, next(name for name in NAMES if name != leads), "a daemon")


def test_the_leading_daemon_is_killed(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    _kill_daemon(hosts, daemons, wait_for("one leads", lambda: leading(daemons)), "the daemon that leads the fleet")


def _kill_daemon(hosts: Fleet, daemons: dict[str, RunningDaemon], name: str, what: str) -> None:
    before, daemon = running(hosts[name]), daemons[next(entry for entry in NAMES if entry != name)]
    daemons[name].kill()
    start = time.monotonic()
    daemon.apply(sandbox("next"))
    placed(daemon, "next")
    print(f"\n{what} is killed (-9): another sandbox is placed and Ready after {since(start)}")
    wait_for("nobody can tell", lambda: reason(daemon, f"on-{name}") == "HostLost")
    print(f"... its host is Unknown after {since(start)}")
    assert running(hosts[name]) == before
    started_at = time.monotonic()
    daemons[name] = hosts[name].daemon(PADDOCK_SCHEDULER="swarm")
    ready(daemon, f"on-{name}")
    print(f"... it is started: its sandbox is Ready after {since(started_at)}")
    assert running(hosts[name]) == before, "it is the same container"
    assert sum(containers(hosts, f"on-{name}").values()) == 1


def test_a_host_is_partitioned(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    host, daemon = hosts["three"], daemons["one"]
    before = running(host)
    host.cut()
    try:
        start = time.monotonic()
        wait_for("nobody can tell", lambda: reason(daemon, "on-three") == "HostLost", _LONG_SECONDS)
        print(f"\na host is cut off: it is Unknown after {since(start)}")
        daemon.apply(sandbox("next"))
        placed(daemon, "next")
        print(f"... another sandbox is placed and Ready after {since(start)}")
        assert running(host) == before
    finally:
        host.mend()
    started_at = time.monotonic()
    wait_for("it is Ready again", lambda: reason(daemon, "on-three") == "True", _LONG_SECONDS)
    print(f"... it is mended: its sandbox is Ready after {since(started_at)}")
    assert running(host) == before, "it is the same container"


def test_postgresql_is_stopped(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    before, two = {host.name: running(host) for host in hosts}, daemons["two"]
    hosts.database.cut()
    try:
        output = two.paddock("apply", "-f", "-", stdin=sandbox("next"), check=False)
        assert output.returncode != 0
        assert {host.name: running(host) for host in hosts} == before
    finally:
        hosts.database.start()
    start = time.monotonic()

    def applied() -> bool:
        return two.paddock("apply", "-f", "-", stdin=sandbox("next"), check=False).returncode == 0

    wait_for("apply works", applied)
    placed(two, "next")
    print(
        f"\nPostgreSQL was stopped, and is started: another sandbox is applied, placed and Ready after {since(start)}"
    )
    assert {host.name: running(host) for host in hosts} == before


def test_two_machines_have_one_name(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    """The second one waits while the first has its daemon, then takes the lease, and leaves it at once."""
    daemon, before = daemons["one"], running(hosts["two"])
    folder = hosts["three"].folder / "named-two"
    settings = {"PADDOCK_SCHEDULER": "swarm", "PADDOCK_HOST_NAME": "two"}
    second = hosts["three"].daemon(ready=False, folder=folder, **settings)
    wait_for("it waits", lambda: any("waiting for the leader lease" in line for line in second.log))
    daemons["two"].kill()
    start = time.monotonic()
    assert second.process.wait(60) == 1
    assert any("its engine is" in line and "Set another host_name here" in line for line in second.log)
    print(f"\na second machine has the name of a host whose daemon dies: it ends after {since(start)}")
    assert "OtherEngine" in daemon.paddock("events", "host/two").stdout
    daemons["two"] = hosts["two"].daemon(PADDOCK_SCHEDULER="swarm")
    ready(daemon, "on-two")
    assert running(hosts["two"]) == before, "it is the same container"
    assert containers(hosts, "on-two") == {"one": 0, "two": 1, "three": 0}


def test_a_frozen_daemon_wakes(hosts: Fleet, daemons: dict[str, RunningDaemon]) -> None:
    """It was away for longer than its lease, which nobody took: it goes on; what runs was never touched."""
    daemon, before, frozen = daemons["one"], running(hosts["two"]), daemons["two"]
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        wait_for("nobody can tell", lambda: reason(daemon, "on-two") == "HostLost")
        output = daemon.paddock("exec", "on-two", "--", "true", check=False)
        assert output.returncode != 0
        assert running(hosts["two"]) == before
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    start = time.monotonic()
    ready(daemon, "on-two")
    print(f"\na daemon was frozen, and wakes: its sandbox is Ready after {since(start)}")
    assert running(hosts["two"]) == before, "it is the same container"
