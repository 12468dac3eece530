"""Roles over a swarm with one manager: workers never lead, and a daemon without a host answers for all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import containers, leading, reason, sandbox
from tests.fleet.test_swarm_hosts import is_fit, ready
from tests.fleet_files import Authority
from tests.lab.fleet import NAMES, Fleet, fleet, impossible

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]
_ROLES = {"one": '["host", "fleet"]', "two": '["host"]', "three": '["api", "host"]', "front": '["api"]'}


@dataclass(frozen=True)
class Lab:
    """The hosts, of which `one` is the swarm's only manager, and the daemons by name; `front` has no host."""

    hosts: Fleet
    daemons: Mapping[str, RunningDaemon]

    @property
    def front(self) -> RunningDaemon:
        return self.daemons["front"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    assert not impossible(), impossible()
    with fleet() as hosts:
        hosts.form_swarm(managers=1)
        authority = Authority(hosts.folder / "authority")

        def start(name: str, at: str, **more: str) -> RunningDaemon:
            files = authority.files(name)
            return hosts[at].daemon(
                folder=hosts.folder / f"paddock-{name}",
                PADDOCK_SCHEDULER="swarm",
                PADDOCK_HOST_NAME=name,
                PADDOCK_ROLES=_ROLES[name],
                PADDOCK_FLEET_CERT_FILE=str(files.cert),
                PADDOCK_FLEET_KEY_FILE=str(files.key),
                PADDOCK_FLEET_CA_FILE=str(files.authority),
                **more,
            )

        starteds = {name: start(name, name, PADDOCK_FLEET_ADDRESS=f"{hosts[name].address}:9466") for name in NAMES}
        starteds["front"] = start("front", "two", PADDOCK_DOCKER_HOST="unix:///nowhere.sock")
        wait_for("all may be chosen", lambda: all(is_fit(hosts, host) for host in hosts))
        yield Lab(hosts, starteds)
        for started in starteds.values():
            started.stop()


def test_sandboxes_run_on_workers_through_any_daemon(lab: Lab) -> None:
    names = ("a", "b", "c")
    for name in names:
        lab.front.apply(sandbox(name))
    readies = {entry: ready(lab.front, entry) for entry in names}
    assert set(readies.values()) == set(NAMES), "the swarm spreads them"
    for text in names:
        assert lab.front.paddock("exec", text, "--", "echo", text).stdout == f"{text}\n"
        assert lab.daemons["three"].paddock("exec", text, "--", "echo", text).stdout == f"{text}\n"
    lab.front.paddock("delete", "sandbox", *names)


def test_no_worker_takes_the_lead(lab: Lab) -> None:
    """Without its only manager nothing is placed, what runs is used on, and no worker tries to lead."""
    lab.front.apply(sandbox("on-two", "two"))
    ready(lab.front, "on-two")
    lab.daemons["one"].kill()
    lab.front.apply(sandbox("waits"))
    wait_for("the host is missed", lambda: "away" in lab.front.paddock("get", "host", "one").stdout)
    assert lab.front.paddock("exec", "on-two", "--", "echo", "on").stdout == "on\n"
    assert leading({name: daemon for name, daemon in lab.daemons.items() if name != "one"}) is None
    started = lab.hosts["one"].daemon(
        folder=lab.daemons["one"].folder,
        **{k: v for k, v in lab.daemons["one"].environment.items() if k[:7] == "PADDOCK"},
    )
    wait_for("it is placed", lambda: reason(lab.front, "waits") == "True")
    assert sum(containers(lab.hosts, "waits").values()) == 1
    lab.front.paddock("delete", "sandbox", "on-two", "waits")
    started.stop()
