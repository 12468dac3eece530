"""Installs of MCP servers' packages: one for all who name them, explained failures, and no rest after a crash."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.mcpserver import KIND, ready_condition
from controller.kinds.meta import ObjectRef
from controller.kinds.planning.action import Action, BuildImage
from controller.kinds.registry import discover
from controller.kinds.runtime.package_hosts import PackageHosts
from controller.loop.tasks.images import ImageKeeper
from controller.plan.capacity.images import PruneRules
from controller.policy.levels.levels import Policy
from controller.policy.levels.package_hosts import with_packages
from controller.policy.packages.install import NAMESPACE
from controller.ports import NullMeter
from controller.service import errors
from controller.service.mcp.installs import InstallPorts, InstallRules, Installs
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.fakes.shell import Run
from tests.loop.harness import Crash, FusedStore, LoopHarness

# `make test` tries every step; plain pytest, which is for seconds at a desk, a few.
_STRIDE = 1 if os.environ.get("PADDOCK_TEST_DOCKER") else 7
INTEGRITY = "sha512-" + "A" * 86 + "=="
IMAGES = ("paddock/node:1", "paddock/python:1", "paddock/egress:1")
GRACE = 3600.0


def ok(text: str = "") -> Run:
    return Run((Chunk("stdout", text.encode()),) if text else (), 0)


def below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


class Tools:
    """npm, pip and two commands of Debian in the sandbox that fetches; `fails` and `finding` are what they answer."""

    def __init__(self, step: Callable[[bool], None]) -> None:
        self._step, self.fetched, self.env = step, list[str](), dict[str, str]()
        self.fails: Run | None = None
        self.finding = "other"

    def programs(self) -> dict[str, Callable[[Path, Sequence[str]], Run]]:
        document = {"mkdir": self._mkdir, "cat": self._cat, "npm": self._npm, "python3": self._python}
        return {name: self._stepping(do) for name, do in document.items()}

    def _stepping(self, do: Callable[[Path, Sequence[str]], Run]) -> Callable[[Path, Sequence[str]], Run]:
        def run(root: Path, command: Sequence[str]) -> Run:
            self._step(False)
            done = do(root, command)
            self._step(True)
            return done

        return run

    def _mkdir(self, root: Path, command: Sequence[str]) -> Run:
        for name in command[2:]:
            below(root, name).mkdir(parents=True, exist_ok=True)
        return ok()

    def _cat(self, root: Path, command: Sequence[str]) -> Run:
        return ok(below(root, command[1]).read_text())

    def _npm(self, root: Path, command: Sequence[str]) -> Run:
        if self.fails is not None:
            return self.fails
        folder = below(root, command[command.index("--prefix") + 1])
        packages: dict[str, Any] = {"": {}}
        for entry in command[command.index("--") + 1 :]:
            name, _, version = entry.rpartition("@")
            self.fetched.append(entry)
            packages[f"node_modules/{name}"] = {"version": version, "integrity": INTEGRITY}
            (folder / "node_modules" / name).mkdir(parents=True, exist_ok=True)
            (folder / "node_modules" / name / "package.json").write_text(json.dumps({"bin": "index.js"}))
        (folder / "package-lock.json").write_text(json.dumps({"packages": packages}))
        return ok()

    def _python(self, _root: Path, command: Sequence[str]) -> Run:
        if "pip" in command:
            return self.fails or ok()
        return ok(self.finding)


class InstallHarness(LoopHarness):
    """The loop, with the installs of the current daemon."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, policy=with_packages(Policy(), PackageHosts(("packages.example.org",))))
        self.engine.images |= {name: f"sha256:{number:064x}" for number, name in enumerate(IMAGES, 1)}
        self.tools = Tools(lambda after: self.fuse.step(after=after))
        self.engine.programs |= self.tools.programs()
        self.engine.image_store.build = self._building(self.engine.image_store.build)  # type: ignore[method-assign]
        self.restart()

    def _building(self, build: Callable[..., Any]) -> Callable[..., Any]:
        def do(ask: Any) -> Any:
            self.fuse.step(after=False)
            created = build(ask)
            self.fuse.step(after=True)
            return created

        return do

    def restart(self) -> None:
        """Start the next daemon, as `paddock serve` does."""
        self.daemon()
        services = self.services_over(FusedStore(self.store, self.fuse))
        ports = InstallPorts(
            services.objects,
            services.write,
            self.engine,
            services.images,
            services.sandbox_streams,
            services.files,
            services.mcp_servers,
        )
        self.installs = Installs(
            ports,
            self.policy,
            InstallRules(seconds=300, disk_bytes=64 << 20, instance_id=self.store.instance_id),
            clock=self.clock.now,
            spawn=lambda do: do(),
            pause=self._pause,
        )
        self.settle(seconds=0)

    def close(self) -> None:
        super().close()
        self.engine.close()

    def _pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.run_pass()

    def server(self, name: str, namespace: str = "default", **spec: Any) -> None:
        body = {"command": "npx", "args": ["-y", "@scope/server@1.2.3", "/workspace"], **spec}
        document = {"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": body}
        self.services.apply.apply([Source("test", json.dumps(document))], namespace=namespace)

    def drop(self, name: str) -> None:
        self.services.objects.delete(KIND, "default", name)

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.installs.tick()
        self.settle(seconds=0)

    def status(self, name: str, namespace: str = "default") -> dict[str, Any]:
        mcp_server = self.store.get("MCPServer", namespace, name)
        assert mcp_server is not None
        return dict(mcp_server.status)

    def ready(self, name: str) -> tuple[str, str]:
        mcp_server = self.store.get("MCPServer", "default", name)
        assert mcp_server is not None
        condition = ready_condition(mcp_server)
        return str(condition.get("reason")), str(condition.get("message"))

    def picture(self) -> tuple[Any, ...]:
        """Everything that an install may leave: the status, sandboxes, containers, networks, volumes, images."""
        sandboxes = [stored.name for stored in self.store.list("Sandbox", NAMESPACE)[0]]
        images = sorted(name for our in self.engine.image_store.ours() or () for name in our.names)
        networks = {name: network for name, network in self.engine.networks.items() if network.role != "uplink"}
        volumes = dict(self.engine.volumes)
        parts = self.status("a"), sandboxes, self.ours(), networks, volumes, images, list(self.store.instances())
        return (*parts, len(self.engine.image_store.built))


@pytest.fixture
def harness(backend: Backend) -> Iterator[InstallHarness]:
    harness = InstallHarness(backend.store())
    yield harness
    harness.close()


def test_a_package_is_installed_once_for_all_who_name_it(harness: InstallHarness) -> None:
    harness.server("a")
    harness.server("b", namespace="other", args=["@scope/server@1.2.3", "elsewhere"])
    harness.tick()
    harness.server("c")
    harness.tick()
    install = harness.status("a")["install"]
    assert install["packages"] == ["@scope/server@1.2.3"]
    assert install["program"] == ["node", "/opt/server/node_modules/@scope/server/index.js"]
    assert install["lock"] == [{"name": "@scope/server", "version": "1.2.3", "integrity": INTEGRITY}]
    assert harness.engine.images[install["image"]] == install["digest"]
    assert install["image"].startswith("paddock/mcp/scope-server:")
    assert harness.status("b", "other")["install"] == harness.status("c")["install"] == install
    assert (harness.tools.fetched, harness.ready("a")[0]) == (["@scope/server@1.2.3"], "Unused")
    assert harness.picture()[1:5] == ([], {}, {}, {}), "no sandbox, container, network or volume is left"
    events = [event.reason for event in harness.store.events(kind="MCPServer", name="a")]
    assert events == ["Installing"]
    server = harness.services.mcp_servers.get("other", "b")
    assert (server.spec.image, server.spec.args[-1]) == (install["image"], "elsewhere")


def test_a_failed_install_says_why_and_is_tried_again_later(harness: InstallHarness) -> None:
    chunk = Chunk("stderr", b"npm error \x07nothing\xe2\x80\x8b there\nnpm error for you\n")
    harness.tools.fails = Run((Chunk("stdout", b'{"error": {"code": "E404"}}'), chunk), 1)
    harness.server("a")
    harness.tick()
    reason, message = harness.ready("a")
    assert reason == "InstallFailed"
    assert message.startswith("@scope/server@1.2.3: the registry does not have it")
    assert message.endswith("its last lines: npm error nothing there | npm error for you")
    assert harness.picture()[1:5] == ([], {}, {}, {})
    with pytest.raises(errors.ServiceUnavailable, match="InstallFailed: @scope/server"):
        harness.services.mcp_servers.await_install(harness.services.mcp_servers.get("default", "a"))
    harness.tools.fails = None
    harness.tick(14)
    assert harness.ready("a")[0] == "InstallFailed", "the next try is not due"
    harness.server("late")
    harness.tick(0)
    assert harness.ready("late") == (reason, message)
    harness.tick(1)
    assert (harness.ready("a")[0], harness.ready("late")[0]) == ("Unused", "Unused")


def test_a_source_only_package_is_refused_in_words(harness: InstallHarness) -> None:
    harness.tools.fails, harness.tools.finding = (
        Run((Chunk("stderr", b"ERROR: No matching distribution\n"),), 1),
        "source-only",
    )
    harness.server("a", command="uvx", args=["bar==1.2"])
    harness.tick()
    assert "bar==1.2: publishes no wheel" in harness.ready("a")[1]
    harness.server("b", command="uvx", args=["slow==1.2"])
    harness.tools.fails = Run((), None)
    harness.tick()
    assert "300 s were not enough (setting package_install_seconds)" in harness.ready("b")[1]


def test_missing_images_and_hosts_are_named(harness: InstallHarness) -> None:
    del harness.engine.images["paddock/python:1"]
    node = harness.engine.images.pop("paddock/node:1")
    harness.server("a", command="uvx", args=["bar==1.2"])
    harness.server("npm")
    harness.tick()
    for server, recipe in (("a", "python"), ("npm", "node")):
        reason, message = harness.ready(server)
        assert (reason, f"paddock/{recipe}:1 is not on this host" in message) == ("InstallFailed", True)
        assert message.endswith(f"build it (`images/build.sh {recipe}`)")
    harness.engine.images["paddock/node:1"] = node
    harness.tick(60)
    assert harness.ready("npm")[0] == "Unused", "it is installed once the image is there"
    harness.policy = Policy()
    harness.restart()
    harness.server("b", args=["@scope/server@1.2.4"])
    harness.tick()
    assert "reach no package registry; name one in the daemon's settings (npm_registry" in harness.ready("b")[1]


def test_an_image_that_is_being_built_is_waited_for(harness: InstallHarness) -> None:
    """Longer than an install may take otherwise, and the server says why."""
    node, messages = harness.engine.images.pop("paddock/node:1"), list[str]()
    harness.engine.building.add("paddock/node:1")

    def build(action: Action) -> None:
        if isinstance(action, BuildImage):
            harness.clock.advance(80)
            messages.append(harness.ready("npm")[1])
            if len(messages) == 8:
                harness.engine.images["paddock/node:1"] = node

    harness.engine.before_act = build
    harness.server("npm")
    harness.tick()
    assert harness.ready("npm")[0] == "Unused"
    assert "is being installed into an image; paddock/node:1 is being built on this host" in messages[-1]


def test_a_lost_image_is_installed_again(harness: InstallHarness) -> None:
    harness.server("a")
    harness.tick()
    install = harness.status("a")["install"]
    del harness.engine.images[install["image"]]
    harness.tick(31)
    assert len(harness.tools.fetched) == 2
    assert harness.engine.images[install["image"]] == install["digest"]
    harness.engine.go_down()
    harness.tick(31)
    assert harness.ready("a")[0] == "Unused", "an unreachable engine is no lost image"


def test_an_install_that_nobody_wants_ends(harness: InstallHarness) -> None:
    harness.server("a")

    def npm(_root: Path, _command: Sequence[str]) -> Run:
        harness.drop("a")
        harness.installs.tick()
        return ok()

    harness.engine.programs["npm"] = npm
    harness.tick()
    assert harness.store.list("Sandbox", NAMESPACE)[0] == []
    assert not [image for image in harness.engine.images if image.startswith("paddock/mcp/")]


def test_images_go_when_no_server_needs_them(harness: InstallHarness) -> None:
    keeper = ImageKeeper(
        harness.engine.image_store,
        snapshot=lambda: harness.reconcile_pass.last,
        store=harness.store,
        registry=discover(),
        clock=harness.clock,
        meter=NullMeter(),
        host=ObjectRef("Host", "", "host", "the-host"),
        rules=PruneRules("superseded", GRACE, harness.store.instance_id),
    )
    image = harness.engine.build_image("paddock/mcp/scope-server:0123-abcdef01", ours=True)

    def later() -> int:
        for wait in (0.0, GRACE):
            harness.clock.advance(wait)
            harness.run_pass()
            keeper.observe_now()
        ids = {our.id for our in harness.engine.image_store.ours() or ()}
        assert image in ids, "that of another Paddock on this engine"
        return len(ids - {image})

    harness.server("a")
    harness.tick()
    assert later() == 1
    harness.server("a", args=["@scope/server@1.2.4"])
    harness.tick()
    assert later() == 1, "that of the earlier version is gone"
    assert harness.status("a")["install"]["image"] in harness.engine.images
    harness.drop("a")
    assert later() == 0


@pytest.mark.timeout(600)
def test_a_crash_at_any_step_leaves_nothing_half_made(backend: Backend) -> None:
    """State before a step is the state after the last one."""

    def live(harness: InstallHarness) -> tuple[Any, ...]:
        for _ in range(4):
            try:
                harness.installs.remove_left()
                harness.settle(seconds=0)
                harness.tick()
                harness.settle()
                break
            except Crash:
                harness.restart()
        return harness.picture()

    harness = InstallHarness(backend.store())
    harness.server("a")
    started = harness.fuse.steps
    desired = live(harness)
    total = harness.fuse.steps
    assert desired[0]["install"]["digest"]
    assert desired[1:5] == ([], {}, {}, {})
    assert total - started > 20, "it has many steps"
    for crash_at in range(1, total - started + 1, _STRIDE):
        harness.drop("a")
        harness.settle()
        for name in [image for image in harness.engine.images if image.startswith("paddock/mcp/")]:
            harness.engine.image_store.built.pop(harness.engine.images.pop(name), None)
        harness.server("a")
        harness.restart()
        harness.fuse.blow_at, harness.fuse.after = harness.fuse.steps + crash_at, True
        observed = live(harness)
        assert plain(observed) == plain(desired), f"crash at step {crash_at} of {total - started}"
    harness.close()


def plain(picture: tuple[Any, ...]) -> tuple[Any, ...]:
    """The picture without times."""
    conditions = [
        {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        for condition in picture[0]["conditions"]
    ]
    return ({**picture[0], "conditions": conditions}, *picture[1:])
