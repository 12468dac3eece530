"""Any order of wishes, meddling and crashes on a real engine: when it is quiet, every object is as asked.

The same as tests/loop/test_machine.py does on the fake one, with a daemon that is a process and an engine that may be
restarted. Short by default; PADDOCK_MACHINE_EXAMPLES and PADDOCK_MACHINE_STEPS make it long.
"""

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.daemon import wait_for
from tests.drills.site import Site
from tests.lab.engine import PrivateEngine, private_engine

pytestmark = [pytest.mark.drill, pytest.mark.docker, pytest.mark.timeout(24 * 3600)]
_NAMES = st.sampled_from(["a", "b", "c"])
_STATES = {"Running": "running", "Suspended": "exited", "Paused": "paused"}
_QUIET_SECONDS = 120.0
# The second end in a row is backed off from for 10 s; more of them would only be waited for.
_MOST_KILLS = 2
_MOST_CRASHES = 2


def _document(name: str, memory: int, env: str, state: str) -> str:
    spec = {
        "template": {
            "image": "paddock/test-tiny:1",
            "command": ["sleep", "1000000"],
            "env": [{"name": "WORD", "value": env}],
        },
        "resources": {"limits": {"cpu": "100m", "memory": f"{memory}Mi", "pids": 16}},
        "runState": state,
        "lifecycle": {"shutdownGracePeriodSeconds": 0},
    }
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec})


class Life(RuleBasedStateMachine):
    """Deeds of users, operators and bad luck against one daemon and its engine."""

    def __init__(self, engine: PrivateEngine) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = Site(Path(self.folder.name), engine)
        self.engine = engine
        self.wanted: dict[str, tuple[int, str, str]] = {}
        self.kills: dict[str, int] = {}
        self.crashes = self.restarts = 0
        texts = ("--label", "paddock.instance=somebody-elses", "--label", "paddock.uid=1")
        self.foreign = [self._foreign(), self._foreign(*texts)]

    def _foreign(self, *options: str) -> str:
        return self.engine.docker("run", "-d", "--network=none", *options, "paddock/test-tiny:1", "sleep", "1000000")

    def teardown(self) -> None:
        try:
            self.quiet()
            for name in sorted(self.wanted):
                self.delete(name)
            self.quiet()
        finally:
            self.place.close()
            self.engine.docker("rm", "-f", *self.engine.docker("ps", "-aq").split(), check=False)
            self.folder.cleanup()

    @rule(
        name=_NAMES, memory=st.sampled_from([16, 32]), env=st.sampled_from("xy"), state=st.sampled_from(sorted(_STATES))
    )
    def apply(self, name: str, memory: int, env: str, state: str) -> None:
        self._gone(name)
        self.place.daemon.apply(_document(name, memory, env, state))
        self.wanted[name] = (memory, env, state)

    @rule(name=_NAMES)
    @precondition(lambda self: self.wanted)
    def delete(self, name: str) -> None:
        if self.wanted.pop(name, None):
            self.place.daemon.paddock("delete", "sandbox", name, "--wait=false")
            self.kills.pop(name, None)

    @rule(
        name=_NAMES,
        what=st.sampled_from([("rm", "-f"), ("kill",), ("pause",), ("stop", "-t", "0"), ("update", "--pids-limit=7")]),
    )
    @precondition(lambda self: self.wanted)
    def meddle(self, name: str, what: tuple[str, ...]) -> None:
        ours = self._ours().get(name)
        ends = what[0] in ("kill", "stop")
        if ours is None or (ends and self.kills.get(name, 0) >= _MOST_KILLS):
            return
        self.kills[name] = self.kills.get(name, 0) + ends
        self.engine.docker(*what, ours["Id"], check=False)

    @rule(name=_NAMES)
    @precondition(lambda self: self.wanted)
    def rename(self, name: str) -> None:
        ours = self._ours().get(name)
        if ours is not None:
            self.engine.docker("rename", ours["Id"], f"moved-{ours['Id'][:6]}", check=False)

    @initialize(first=st.sampled_from(sorted(_STATES)))
    def move_in(self, first: str) -> None:
        self.apply("a", 16, "x", first)
        self.apply("b", 32, "y", "Running")

    @rule()
    @precondition(lambda self: self.crashes < _MOST_CRASHES)
    def daemon_crashes(self) -> None:
        self.crashes += 1
        self.place.daemon.kill()
        self.place.start_daemon()

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    @precondition(lambda self: self.restarts < _MOST_CRASHES)
    def engine_restarts(self, number: signal.Signals) -> None:
        self.restarts += 1
        self.engine.end(number)
        self.engine.start()
        self.engine.docker("start", *self.foreign)

    @rule()
    def quiet(self) -> None:
        """Left alone for long enough, everything is as asked, and nothing else is there."""
        try:
            wait_for("all is as asked", self._as_asked, _QUIET_SECONDS)
        except AssertionError as error:
            output = self.place.daemon.paddock("get", "sandboxes", check=False).stdout
            printed = {name: (our["Name"], our["State"]["Status"]) for name, our in self._ours().items()}
            raise AssertionError(f"wanted {self.wanted}, found {printed}\n{output}") from error

    @invariant()
    def at_most_one_container_each(self) -> None:
        self._ours()

    @invariant()
    def nothing_foreign_is_touched(self) -> None:
        running = self.engine.docker("ps", "-q", "--no-trunc").split()
        assert set(self.foreign) <= set(running)

    def _gone(self, name: str) -> None:
        if name not in self.wanted:
            wait_for(f"the one before of that name ({name}) is gone", lambda: not self.place.daemon.get(name), 60)

    def _ours(self) -> dict[str, dict[str, Any]]:
        """Our containers by their objects' names. One that goes while it is looked at is left out."""
        ids = self.engine.docker("ps", "-aq", "--no-trunc", "--filter", "label=paddock.uid").split()
        mine = [name for name in ids if name not in self.foreign]
        output = self.engine.docker("inspect", *mine, check=False) if mine else "[]"
        listed = json.loads(output or "[]")
        uids = [entry["Config"]["Labels"]["paddock.uid"] for entry in listed]
        assert len(uids) == len(set(uids)), f"two containers of one object: {[entry['Name'] for entry in listed]}"
        return {entry["Config"]["Labels"]["paddock.name"]: entry for entry in listed}

    def _as_asked(self) -> bool:
        if self.place.get("/readyz")[0] != 200 or set(self.place.ready_words()) != set(self.wanted):
            return False
        ours = self._ours()
        return set(ours) <= set(self.wanted) and all(
            self._is_as_asked(ours.get(name), *desired) for name, desired in self.wanted.items()
        )

    def _is_as_asked(self, found: dict[str, Any] | None, memory: int, env: str, state: str) -> bool:
        if state == "Suspended":
            return found is None or found["State"]["Status"] in ("exited", "created")
        return (
            found is not None
            and found["State"]["Status"] == _STATES[state]
            and found["HostConfig"]["Memory"] == memory << 20
            and found["HostConfig"]["PidsLimit"] == 16
            and f"WORD={env}" in found["Config"]["Env"]
            and found["Name"].startswith("/pdk-")
        )


def test_life_on_a_real_engine() -> None:
    bounds = settings(
        max_examples=int(os.environ.get("PADDOCK_MACHINE_EXAMPLES", "3")),
        stateful_step_count=int(os.environ.get("PADDOCK_MACHINE_STEPS", "12")),
        deadline=None,
        database=None,
        phases=[Phase.generate],  # an example takes minutes: it is told as it was found
        suppress_health_check=list(HealthCheck),
    )
    with private_engine() as engine:
        run_state_machine_as_test(lambda: Life(engine), settings=bounds)
