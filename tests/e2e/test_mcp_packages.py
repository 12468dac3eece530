"""Packages of MCP servers on a real engine: fetched once through the proxy, run without a network, and nothing is left.

The lab's Internet has the registry, and logs who asked it for what.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.lab.internet import Lab, impossible
from tests.lab.packages import INDEX, REGISTRY, Packages
from tests.mounts import unmount_below

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(420),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
SCRIPT = (Path(__file__).parents[1] / "mcpserver" / "scripted_server.py").read_text()
MAIN = "def main():\n    import runpy\n    runpy.run_module('scripted.server', run_name='__main__')\n"
DISK = 64 << 20
SPACE = "paddock-packages"
SETTINGS = {
    "PADDOCK_PACKAGE_SOURCES": "[]",
    "PADDOCK_PYPI_INDEX": INDEX,
    "PADDOCK_NPM_REGISTRY": REGISTRY,
    "PADDOCK_PACKAGE_INSTALL_BYTES": str(DISK),
}


def fill(packages: Packages) -> None:
    for version in ("1.0", "1.1"):
        code = {"scripted/__init__.py": MAIN, "scripted/server.py": SCRIPT}
        programs = {"scripted-server": "scripted:main"}
        packages.wheel("scripted-server", version, code, programs=programs, requires=["scripted-core>=2"])
    packages.wheel("scripted-core", "2.5", {"scripted_core.py": "x = 1\n"})
    packages.source("old-server", "1.0")
    packages.wheel("big-server", "1.0", {"big.bin": bytes(4 * DISK)}, programs={"big-server": "big:main"})


@pytest.fixture(scope="module")
def place(shared_lab: Lab) -> Iterator[Lab]:
    shared_lab.begin()
    shared_lab.load("paddock/egress:1", "paddock/python:1")
    folder = shared_lab.folder / "packages"
    fill(Packages(folder))
    yield shared_lab
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    created = place.daemon(place.folder / "packages-state", **SETTINGS)
    yield created
    created.stop()
    place.remove_containers()
    unmount_below(Path("/run/paddock/mounts") / created.instance_id())


def server(daemon: RunningDaemon, name: str, **spec: Any) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec}
    daemon.apply(json.dumps(document))


def status(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    return dict(daemon.object("mcpservers", name).get("status", {}))


def ended(daemon: RunningDaemon, name: str) -> tuple[str, str]:
    """The reason and message of its install, once that has ended."""

    def look() -> tuple[str, str] | None:
        ready = next(iter(status(daemon, name).get("conditions", ())), {})
        is_over = ready.get("reason") in ("Unused", "InstallFailed", "Answering")
        return (ready["reason"], ready["message"]) if is_over else None

    names: tuple[str, str] = wait_for(f"the install of {name} has ended", look, 180)
    return names


class Bridge:
    """A client's connection, over the bridge."""

    def __init__(self, daemon: RunningDaemon, name: str) -> None:
        command = [sys.executable, "-m", "controller", "mcp", "--server", name]
        self._process = subprocess.Popen(
            command, env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, tool: str, text: str = "") -> None:
        assert self._process.stdin is not None
        call = {"name": tool, "arguments": {"text": text}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Return the text of the next answer; what is said without being asked is passed over."""
        assert self._process.stdout is not None
        observed = next(entry for entry in map(json.loads, iter(self._process.stdout.readline, "")) if "id" in entry)
        assert "result" in observed, observed
        return str(observed["result"]["content"][0]["text"])

    def __call__(self, tool: str, text: str = "") -> str:
        self.send(tool, text)
        return self.answer()

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def bridged(daemon: RunningDaemon, name: str) -> Iterator[Bridge]:
    bridge = Bridge(daemon, name)
    try:
        yield bridge
    finally:
        bridge.close()


def asked(daemon: RunningDaemon, name: str, tool: str, text: str = "") -> str:
    """Call a tool as a client does."""
    with bridged(daemon, name) as call:
        return call(tool, text)


def left(place: Lab, daemon: RunningDaemon) -> list[str]:
    """Return what an install made, and did not take away."""
    stored = [*daemon.objects("sandboxes", SPACE), *daemon.objects("volumes", SPACE)]
    names = [entry["metadata"]["name"] for entry in stored]
    names += place.docker("ps", "-aq", "--filter", f"label=paddock.namespace={SPACE}").split()
    return names + [str(path) for path in (daemon.folder / "volumes").rglob("*") if path.is_file()]


def test_an_installed_server_runs_without_a_network(place: Lab, daemon: RunningDaemon) -> None:
    server(daemon, "scripted", command="uvx", args=["scripted-server==1.0", "none"])
    assert ended(daemon, "scripted")[0] == "Unused"
    install = status(daemon, "scripted")["install"]
    assert [f"{entry['name']} {entry['version']}" for entry in install["lock"]] == [
        "scripted-core 2.5",
        "scripted-server 1.0",
    ]
    assert all(entry["integrity"].startswith("sha256:") for entry in install["lock"])
    [image] = json.loads(place.docker("inspect", install["image"]))
    assert (image["Id"], image["Config"]["User"]) == (install["digest"], "20000:20000")
    assert f"{install['image']}" in daemon.paddock("get", "mcpservers", "-o", "wide").stdout
    assert install["digest"] in daemon.paddock("describe", "mcpserver", "scripted").stdout
    wait_for("nothing of the install is left", lambda: not left(place, daemon), 60)
    before = place.mark()
    facts = json.loads(asked(daemon, "scripted", "facts"))
    assert (facts["interfaces"], facts["capabilities"], facts["uid"] > 20000) == (["lo"], "0" * 16, True)
    assert place.packets(before) == set(), "nobody asks the registry at run time"
    server(daemon, "again", package={"registry": "pypi", "name": "scripted-server", "version": "1.0"}, args=["none"])
    assert ended(daemon, "again")[0] == "Unused"
    assert status(daemon, "again")["install"] == install
    assert asked(daemon, "again", "echo", "hi") == "hi"


def test_failed_installs_say_why_and_leave_nothing(place: Lab, daemon: RunningDaemon) -> None:
    for name in ("old-server", "big-server", "no-server"):
        server(daemon, name, command="pipx", args=["run", f"{name}==1.0"])
    reasons = {name: ended(daemon, name) for name in ("old-server", "big-server", "no-server")}
    assert {reason for reason, _ in reasons.values()} == {"InstallFailed"}
    assert "publishes no wheel" in reasons["old-server"][1]
    assert "code of the package has run" not in reasons["old-server"][1]
    assert "it has 64Mi of disk" in reasons["big-server"][1]
    assert "No space left on device" in reasons["big-server"][1]
    assert "the registry does not have it" in reasons["no-server"][1]
    for name in reasons:
        daemon.paddock("delete", "mcpserver", name)
    wait_for("nothing of the installs is left", lambda: not left(place, daemon), 60)
    output = daemon.paddock("mcp", "import", "/dev/stdin", stdin=IMPORTED, check=False)
    assert "`npx @scope/server` names no version: write `@scope/server@1.2.3`" in output.stdout + output.stderr


IMPORTED = json.dumps({"mcpServers": {"files": {"command": "npx", "args": ["-y", "@scope/server", "/workspace"]}}})


def test_sessions_heal_after_the_engine_was_away(place: Lab, daemon: RunningDaemon) -> None:
    server(daemon, "steady", command="python3", args=["-c", SCRIPT, "none"])

    def ready() -> str:
        return str(next(iter(status(daemon, "steady").get("conditions", ())), {}).get("reason"))

    def sandboxes() -> list[str]:
        return [entry["metadata"]["uid"] for entry in daemon.objects("sandboxes")]

    with bridged(daemon, "steady") as call:
        assert call("echo", "before") == "before"
        [first] = sandboxes()
        call.send("slow")
        place.engine.end(signal.SIGKILL)
        assert call.answer().startswith("mcpserver `steady`: "), "a call in flight ends with an error"
        wait_for("its state says so", lambda: ready() == "DockerUnavailable", 60)
        assert "DockerUnavailable: the engine can't be reached" in call("echo")
        assert "DockerUnavailable" in daemon.paddock("mcp", "list").stdout
        place.engine.start()
        wait_for("the same connection is served again", lambda: call("echo", "after") == "after", 120)
        assert ready() == "Answering"
        wait_for("the lost session has left no sandbox", lambda: first not in sandboxes() and len(sandboxes()) == 1, 60)
    wait_for("its sandbox is gone", lambda: not sandboxes(), 60)
    events = json.loads(daemon.paddock("get", "events", "-o", "json").stdout)["items"]
    counts = [
        event["count"] for event in events if event["reason"] == "DockerUnavailable" and "steady" in json.dumps(event)
    ]
    assert counts == [1], "one warning, however long it lasted"


def test_a_killed_daemon_leaves_no_install(place: Lab, daemon: RunningDaemon) -> None:
    server(daemon, "killed", command="uvx", args=["scripted-server==1.1", "none"])
    wait_for("its sandbox is there", lambda: left(place, daemon), 60)
    daemon.kill()
    again = place.daemon(daemon.folder, **SETTINGS)
    try:
        assert ended(again, "killed")[0] == "Unused"
        wait_for("nothing of the install is left", lambda: not left(place, again), 60)
        assert asked(again, "killed", "echo", "hi") == "hi"
        images = place.docker("images", "--format", "{{.Repository}}:{{.Tag}}", "paddock/mcp/scripted-server").split()
        needed = {status(again, name)["install"]["image"] for name in ("killed", "scripted")}
        assert set(images) == needed
    finally:
        again.stop()
