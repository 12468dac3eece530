"""Usage of the sandboxes of all hosts, asked of one of them, also while another is cut off; and its doctor."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from paddock import Paddock
from tests.daemon import RunningDaemon, wait_for
from tests.fleet.test_hosts import sandbox
from tests.fleet_files import Authority
from tests.lab.fleet import NAMES, Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.docker, pytest.mark.timeout(600)]
_MOST_SECONDS = 4.0  # for an answer: two for the hosts, and this machine is busy


@pytest.fixture(scope="module")
def daemons(hosts: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningDaemon]]:
    """A daemon on each host, which reach each other."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    created = {name: hosts[name].daemon(**_settings(authority, name, hosts[name].address)) for name in NAMES}
    yield created
    for daemon in created.values():
        daemon.stop()


def _settings(authority: Authority, name: str, address: str) -> dict[str, str]:
    files = authority.files(name)
    return {
        "PADDOCK_FLEET_ADDRESS": f"{address}:9466",
        "PADDOCK_FLEET_CERT_FILE": str(files.cert),
        "PADDOCK_FLEET_KEY_FILE": str(files.key),
        "PADDOCK_FLEET_CA_FILE": str(files.authority),
    }


def used(daemon: RunningDaemon) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return the hosts of the sandboxes whose usage is listed, by their names, and the missing hosts."""
    start = time.monotonic()
    with Paddock(f"unix://{daemon.socket}") as paddock:
        metrics = paddock.sandboxes.metrics()
    assert time.monotonic() - start < _MOST_SECONDS
    return {metric.name: metric.host for metric in metrics.items}, metrics.missing


def findings(daemon: RunningDaemon, kind: str = "host/") -> dict[str, str]:
    """Return what the daemon's doctor finds about other hosts, or of another kind: the grade of each check."""
    transport = httpx.HTTPTransport(uds=str(daemon.socket))
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        report: dict[str, Any] = client.get("/apis/paddock/v1alpha1/doctor").json()
    return {entry["check"]: entry["grade"] for entry in report["items"] if entry["check"].startswith(kind)}


def test_usage_is_that_of_all_hosts_that_answer(hosts: Fleet, daemons: Mapping[str, RunningDaemon]) -> None:
    daemon = daemons["one"]
    for name in NAMES:
        daemon.apply(sandbox(f"on-{name}", name))
    everywhere = {f"on-{name}": name for name in NAMES}
    for name in NAMES:
        wait_for(f"{name} lists all", lambda name=name: used(daemons[name]) == (everywhere, {}))
    assert "on-three" in daemon.paddock("top").stdout
    assert {check: grade for check, grade in findings(daemon).items() if "conditions" not in check} == {
        "host/two": "ok",
        "host/three": "ok",
    }
    assert findings(daemon, "certificate") == {"certificate": "ok"}

    hosts["three"].cut()
    try:
        listed, missing = used(daemon)  # its lease holds still: it is asked, and given up
        assert (listed, set(missing)) == ({"on-one": "one", "on-two": "two"}, {"three"})
        assert "host/three/reach" in findings(daemon)
        wait_for("its daemon is away", lambda: "away" in used(daemon)[1].get("three", ""))
        assert findings(daemon)["host/three"] == "warning"
        assert "missing hosts: three" in daemon.paddock("top").stderr
    finally:
        hosts["three"].mend()
    wait_for("all are listed again", lambda: used(daemon) == (everywhere, {}))
    daemon.paddock("delete", "sandbox", *everywhere)
    wait_for("all are gone", lambda: not any(daemon.get(name) for name in everywhere))
