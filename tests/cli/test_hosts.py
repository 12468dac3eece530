"""`paddock host` and the API of a store with many hosts. What the daemons write is in tests/loop/test_hosts.py."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.build import build_hash
from controller.cli.main import cli
from controller.kinds.meta import StoredObject
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.runtime.container import Limits
from controller.ports.fleet import ManyHosts
from controller.version import VERSION
from tests.cli.conftest import Run
from tests.fakes.engine import FACTS
from tests.helpers_api import ApiStack, make_api
from tests.instance_states import instance_state

AWAY = {
    "capacity": {"cpu": "8", "memory": "32Gi"},
    "engine": {"version": "26.1.5"},
    "paddock": {"version": VERSION, "build": "0123abcd", "instanceID": "i-1"},
    "address": "b.example:8443",
    "conditions": [{"type": "EngineReachable", "status": "True", "reason": "Answered", "message": ""}],
}


@pytest.fixture
def fleet(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    """The API of host a; host b's daemon is away."""
    created = make_api(tmp_path, place=ManyHosts("a"))
    created.view.seen = replace(created.view.seen, facts=FACTS, revision=1)
    with created.store.transaction() as transaction:
        transaction.put(StoredObject("Host", "", "b", "uid-b", {}, generation=0, status=AWAY))
    server = created.server()
    server.start()
    yield created
    server.stop()
    created.store.close()


@pytest.fixture
def paddock(fleet: ApiStack) -> Run:
    def run(*words: str, stdin: bytes | str | None = None):  # type: ignore[no-untyped-def]  # as Run says
        return CliRunner().invoke(cli, ["--server", f"unix://{fleet.socket}", *words], input=stdin)

    return run


def test_all_hosts_are_listed(paddock: Run) -> None:
    titles, own_text, away = paddock("host", "list").stdout.splitlines()
    assert titles.split("   ")[0] == "NAME"
    assert own_text.split() == [
        "a",
        "Ready",
        "0",
        "0/4",
        "0/16Gi",
        FACTS.engine_version,
        f"{VERSION}+{build_hash()}",
        "-",
        "0s",
    ]
    arguments = [
        "b",
        "Unknown",
        "(daemon",
        "away)",
        "0",
        "0/8",
        "0/32Gi",
        "26.1.5",
        f"{VERSION}+0123abcd",
        "b.example:8443",
        "-",
    ]
    assert away.split() == arguments
    assert "DaemonReachable" in paddock("describe", "host/b").stdout
    several = paddock("run", "--gpus", "all", "-c", "1")
    assert "there are several hosts" in several.stderr


def test_any_host_is_cordoned_and_labeled_from_anywhere(paddock: Run, fleet: ApiStack) -> None:
    for name, ready in (("a", "Ready"), ("b", "Unknown (daemon away)")):
        assert paddock("host", "cordon", name).stdout == f"host.paddock/{name} cordoned\n"
        assert paddock("label", f"host/{name}", "disk=fast").stdout == f"host.paddock/{name} labeled\n"
        assert f"{ready},SchedulingDisabled" in paddock("get", "host", name).stdout
    assert paddock("get", "hosts", "-l", "disk=fast", "-o", "name").stdout == "host.paddock/a\nhost.paddock/b\n"
    stored = fleet.store.get("Host", "", "b")
    assert stored is not None
    assert (stored.spec, stored.status) == ({"schedulable": False, "drained": False, "outOfService": False}, AWAY)
    assert paddock("host", "uncordon", "b").stdout == "host.paddock/b uncordoned\n"
    missing = paddock("host", "cordon", "c")
    assert (missing.exit_code, "hosts `c` not found" in missing.stderr) == (1, True)


def test_a_drain_says_what_is_left_and_waits(paddock: Run, fleet: ApiStack) -> None:
    assert paddock("host", "drain", "b").stdout == "host.paddock/b drained\n"
    assert paddock("host", "drain", "b", "--wait").stdout == "host.paddock/b drained (no change)\n"
    limits, memory = Limits(500, 512 << 20, 64), instance_state(restarts=0)
    instance = Instance("pdk-web", "uid-web", "Sandbox", "default", "web", "sandbox", limits, 0.0, memory, host="a")
    with fleet.store.transaction() as transaction:
        transaction.put(StoredObject("Sandbox", "default", "web", "uid-web", {"host": "a"}))
    fleet.store.record(Writes(instances=(instance,)))
    late = paddock("host", "drain", "a", "--wait", "--timeout", "1ms")
    assert (late.exit_code, late.stdout) == (1, "host.paddock/a draining; 1 sandbox left\n")
    assert "host a: draining; 1 sandbox left, after 0.001 s; stop or delete them" in late.stderr
    trial = paddock("host", "drain", "a", "--wait", "--dry-run", "server")
    assert (trial.exit_code, "leave --dry-run out" in trial.stderr) == (2, True)


def test_a_host_that_is_gone_is_removed(paddock: Run, fleet: ApiStack) -> None:
    own_outcome = paddock("host", "remove", "a")
    assert (own_outcome.exit_code, "host `a`: it is the host of the daemon that you ask" in own_outcome.stderr) == (
        1,
        True,
    )
    bound = StoredObject("Sandbox", "default", "web", "uid-web", {"host": "b"})
    with fleet.store.transaction() as transaction:
        transaction.put(bound)
    output = paddock("host", "remove", "b")
    assert (
        output.exit_code,
        "sandbox/default/web is bound to it; start its daemon again, or delete it first" in output.stderr,
    ) == (1, True)
    with fleet.store.transaction() as transaction:
        transaction.remove(bound)
    assert paddock("host", "remove", "b").stdout == "host.paddock/b removed\n"
    assert fleet.store.get("Host", "", "b") is None
    assert [entry.verb for entry in fleet.services.audit.entries() if entry.kind == "Host"] == ["delete"]
    assert "hosts `b` not found" in paddock("host", "remove", "b").stderr
