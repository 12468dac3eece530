"""A real daemon under random operations, drift, crashes and restarts always converges.

A hypothesis state machine, as that of tests/loop (which goes much farther on the fake engine): here the daemon is a
process that is killed, and the engine one that is stopped and killed. PADDOCK_TEST_LIVES: how many lives (2; in the
profile deep 80).
"""

import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

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

from controller.kinds.common.labels import INSTANCE, NAME, UID
from paddock._client.errors import ClientError
from tests.daemon import RunningDaemon, start_daemon, wait_for
from tests.examples import examples
from tests.lab.engine import PrivateEngine, private_engine
from tests.raw_client import Paddock

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
LIVES = int(os.environ.get("PADDOCK_TEST_LIVES", str(examples(4))))
QUIET_SECONDS = 180.0  # a loaded machine takes its time
MOST_KILLS = 1  # of one sandbox in a life: after each further one it waits, 10 s and then twice as long
NAMES = st.sampled_from(["a", "b", "c"])
MEDDLING = ("kill", "remove", "pause", "stop", "rename", "limits", "network")
WISHES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["old", "new"]),
        "memory": st.sampled_from(["16Mi", "32Mi"]),
        "runState": st.sampled_from(["Running", "Running", "Running", "Suspended", "Paused"]),
    }
)
MEMORY = {"16Mi": 16 << 20, "32Mi": 32 << 20}
SHOWN = {"Running": ("running",), "Paused": ("paused",), "Suspended": ("exited", "created")}
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: {name}}}
spec:
  template:
    image: paddock/test-tiny:1
    command: ["sleep", "1000000"]
    env: [{{name: MODE, value: "{mode}"}}]
  resources: {{limits: {{memory: {memory}, cpu: 100m, pids: 16}}}}
  runState: {runState}
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
"""


class Life(RuleBasedStateMachine):
    """Random operations and failures on one daemon, with a new store for each run."""

    engine: ClassVar[PrivateEngine]
    instance: str

    @initialize()
    def move_in(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pdl-"))
        self.asked: dict[str, dict[str, str]] = {}
        self.kills: Counter[str] = Counter()
        self.daemon: RunningDaemon | None = None
        self.foreign = self.engine.docker("create", "paddock/test-tiny:1", "sleep", "1000")
        self.daemon_comes()
        assert self.daemon is not None
        self.instance = self.daemon.instance_id()

    def daemon_comes(self) -> None:
        """Start one, unless one runs."""
        if self.daemon is None:
            self.daemon = start_daemon(
                self.folder,
                PADDOCK_DOCKER_HOST=self.engine.base_url,
                PADDOCK_RESYNC_SECONDS="5",
                PADDOCK_ENGINE_TIMEOUT_SECONDS="10",
            )
            self.client = Paddock(f"unix://{self.daemon.socket}")

    def daemon_goes(self) -> None:
        """By kill -9."""
        if self.daemon is not None:
            self.client.close()
            self.daemon.kill()
            self.daemon = None

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        try:
            self.quiet()
        finally:
            self.daemon_goes()
            parts = self.engine.docker("ps", "-aq", "--no-trunc", check=False).split()
            if parts:
                self.engine.docker("rm", "-f", *parts, check=False)
            shutil.rmtree(self.folder, ignore_errors=True)

    @rule(wishes=st.dictionaries(NAMES, WISHES, min_size=1))
    @precondition(lambda self: self.daemon is not None)
    def apply(self, wishes: dict[str, dict[str, str]]) -> None:
        with suppress(ClientError):  # one of the objects is just being deleted: then none is applied
            self.client.apply("---".join(SANDBOX.format(name=name, **wish) for name, wish in wishes.items()))
            self.asked |= wishes

    @rule(name=NAMES)
    @precondition(lambda self: self.daemon is not None)
    def delete(self, name: str) -> None:
        if self.asked.pop(name, None) is not None:
            self.client.delete("sandboxes", name)

    @rule(pick=st.integers(0, 5), what=st.sampled_from(MEDDLING))
    def meddle(self, pick: int, what: str) -> None:
        """Drift through the engine's socket; some calls fail, as the container may be gone."""
        sandboxes = self.sandboxes()
        if not sandboxes:
            return
        sandbox = sandboxes[pick % len(sandboxes)]
        if what in ("kill", "stop"):
            name = sandbox["Config"]["Labels"][NAME]
            if self.kills[name] == MOST_KILLS:
                return
            self.kills[name] += 1
        self._do(what, sandbox)

    def _do(self, what: str, sandbox: dict[str, Any]) -> None:
        engine, id_ = self.engine, sandbox["Id"]
        commands = {
            "kill": ("kill", id_),
            "stop": ("stop", "-t", "0", id_),
            "remove": ("rm", "-f", id_),
            "pause": ("pause", id_),
            "limits": ("update", "--memory", "24m", "--memory-swap", "48m", "--pids-limit", "9", id_),
            "network": ("network", "connect", "bridge", id_),
        }
        if what != "rename":
            engine.docker(*commands[what], check=False)
        elif self._remembered(sandbox):
            engine.docker("rename", id_, f"moved-{id_[:6]}", check=False)

    def _remembered(self, sandbox: dict[str, Any]) -> bool:
        """Tell if the store has this container; a new one is only known by its name."""
        if self.daemon is None:
            return False
        with suppress(ClientError):
            sandboxes = self.client.get("sandboxes", sandbox["Config"]["Labels"][NAME])
            return bool(sandboxes.get("status", {}).get("instanceRef", {}).get("containerID") == sandbox["Id"])
        return False

    @rule()
    def crash(self) -> None:
        self.daemon_goes()

    @rule()
    def start(self) -> None:
        self.daemon_comes()

    @rule(how=st.sampled_from([signal.SIGTERM, signal.SIGKILL]), wish=WISHES)
    def engine_restarts(self, how: signal.Signals, wish: dict[str, str]) -> None:
        """A desired state changes while the daemon is down."""
        self.engine.end(how)
        if self.daemon is not None:
            self.apply({"a": wish})
        self.engine.start()

    @rule()
    def quiet(self) -> None:
        """Check that the daemon converges to the desired state, with nothing left over."""
        self.daemon_comes()
        try:
            wait_for("all is as asked", lambda: not self.differences(), QUIET_SECONDS)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.differences()}") from late

    def differences(self) -> list[str]:
        """Return the differences from the desired state."""
        objects = {document["metadata"]["name"]: document for document in self.client.list("sandboxes")}
        names = [f"{name} is not to be there" for name in objects.keys() - self.asked.keys()]
        sandboxes = {sandbox["Config"]["Labels"][UID]: sandbox for sandbox in self.sandboxes()}
        for name, wish in self.asked.items():
            sandbox = sandboxes.pop(objects[name]["metadata"]["uid"], None)
            names += [f"{name}: {difference}" for difference in _differences(objects[name], sandbox, wish)]
        return names + [f"container {sandbox['Name']} is nobody's" for sandbox in sandboxes.values()]

    def sandboxes(self) -> list[dict[str, Any]]:
        """Our containers, as the engine inspects them."""
        ids = self.engine.docker("ps", "-aq", "--filter", f"label={INSTANCE}={self.instance}").split()
        output = self.engine.docker("inspect", *ids, check=False) if ids else ""
        listed: list[dict[str, Any]] = json.loads(output or "[]")  # one that goes meanwhile is left out
        return listed

    @invariant()
    def at_most_one_container_each(self) -> None:
        if hasattr(self, "instance"):
            uids = Counter(sandbox["Config"]["Labels"][UID] for sandbox in self.sandboxes())
            assert all(count == 1 for count in uids.values()), f"two containers of one object: {uids}"

    @invariant()
    def the_stranger_is_untouched(self) -> None:
        if hasattr(self, "foreign"):
            assert self.engine.docker("inspect", "-f", "{{.State.Status}}", self.foreign) == "created"


def _differences(obj: dict[str, Any], sandbox: dict[str, Any] | None, wish: dict[str, str]) -> list[str]:
    """Return the differences between a spec and its container that no condition reports."""
    generation, status = obj["metadata"]["generation"], obj.get("status", {})
    names = [] if status.get("observedGeneration") == generation else ["its spec was not looked at"]
    if sandbox is None:
        return names if wish["runState"] == "Suspended" else [*names, "it has no container"]
    state, host = sandbox["State"]["Status"], sandbox["HostConfig"]
    ready = next(
        (condition["status"] for condition in status.get("conditions", ()) if condition["type"] == "Ready"), ""
    )
    facts = {
        "state": (state, SHOWN[wish["runState"]]),
        "ready": (ready, ("True",) if wish["runState"] == "Running" else ("False",)),
        "memory": (host["Memory"], (MEMORY[wish["memory"]],)),
        "swap": (host["MemorySwap"], (MEMORY[wish["memory"]],)),
        "pids": (host["PidsLimit"], (16,)),
        "networks": (sorted(sandbox["NetworkSettings"]["Networks"]), ([],)),
        "name": (sandbox["Name"], (f"/{status.get('instanceRef', {}).get('name')}",)),
        "mode": (f"MODE={wish['mode']}" in sandbox["Config"]["Env"], (True,)),
    }
    stopped = wish["runState"] == "Suspended"  # what a stopped one is made of is looked at when it starts
    looked_at = ("state", "ready") if stopped else facts
    return names + [f"{name} is {facts[name][0]}" for name in looked_at if facts[name][0] not in facts[name][1]]


def test_random_operations_on_a_real_engine() -> None:
    with private_engine() as engine:
        Life.engine = engine
        run_state_machine_as_test(
            Life,
            settings=settings(
                max_examples=LIVES,
                stateful_step_count=14,
                deadline=None,
                database=None,
                phases=(Phase.generate,),  # a life takes half a minute: it is told as it was, not made small
                suppress_health_check=list(HealthCheck),
            ),
        )
