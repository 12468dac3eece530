"""The first hour of an agent developer: eight steps after `make up` alone, from a fresh clone on an empty engine.

The engine is one of its own, in a network namespace with a way to the Internet through this host; so `make up` loads
the guard of networks there, and nothing of this host changes but a few firewall rules, which go again. Packages come
from where this host's own apt, pip and npm get them. Run by `make test-first-hour`; it takes about ten minutes.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import ROOT, wait_for
from tests.lab.engine import Namespaces, PrivateEngine
from tests.lab.internet import impossible

pytestmark = [
    pytest.mark.first_hour,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]

HOST_SIDE, INSIDE, NETWORK = "10.232.7.1", "10.232.7.2", "10.232.7.0/30"
LINK = "pdk-first-hour"[:15]
UP_SECONDS, STEP_SECONDS = 1500, 600
FIRST_TEN_LINES = """
from paddock import Paddock

with Paddock() as client, client.sandboxes.create() as sandbox:
    print(sandbox.run_code("x = 6\\nx * 7").text)
    sandbox.files.write("notes/a.txt", "hello")
    print(sandbox.run("cat notes/a.txt").stdout, sandbox.run("pwd").stdout.strip())
"""
TWO_STEPS = """
from paddock import Paddock

with Paddock() as client, client.sandboxes.create(level="build") as sandbox:
    sandbox.run("pip install --quiet six && python3 -c 'import six'", timeout=300, check=True)
    print("installed")
    refused = sandbox.run("curl -sS https://example.com; git clone https://example.com/a; curl -sS http://example.com")
    print(refused.stdout, refused.stderr)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def way_out(namespaces: Namespaces) -> Iterator[None]:
    """A link from a network namespace to this host, which masquerades what comes from there."""
    rules = [
        ("-t", "nat", "POSTROUTING", "-s", NETWORK, "-j", "MASQUERADE"),
        ("-t", "filter", "FORWARD", "-i", LINK, "-j", "ACCEPT"),
        ("-t", "filter", "FORWARD", "-o", LINK, "-j", "ACCEPT"),
    ]
    ip("link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", str(namespaces.pid))
    addition = []
    try:
        ip("addr", "add", f"{HOST_SIDE}/30", "dev", LINK)
        ip("link", "set", LINK, "up")
        namespaces.run("ip", "addr", "add", f"{INSIDE}/30", "dev", "eth0")
        namespaces.run("ip", "link", "set", "eth0", "up")
        namespaces.run("ip", "route", "add", "default", "via", HOST_SIDE)
        for table, name, chain, *rule in rules:
            subprocess.run(["iptables", table, name, "-I", chain, *rule], check=True)
            addition.append((table, name, "-D", chain, *rule))
        yield
    finally:
        for rule in addition:
            subprocess.run(["iptables", *rule], check=True)
        ip("link", "del", LINK)


@dataclass
class Developer:
    """A fresh clone on such a host; `up` is what `make up` printed."""

    clone: Path
    namespaces: Namespaces
    environment: dict[str, str]
    up: str = ""

    def run(self, *command: str, seconds: float = STEP_SECONDS, check: bool = True) -> subprocess.CompletedProcess[str]:
        # Whoever enters a mount namespace begins in its root.
        done = subprocess.run(
            self.namespaces.enter("sh", "-c", 'cd "$0" && exec "$@"', str(self.clone), *command),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def paddock(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(f"{self.clone}/.venv/bin/paddock", *arguments, check=check)

    def python(self, text: str) -> str:
        return self.run(f"{self.clone}/.venv/bin/python", "-c", text).stdout

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post to the daemon's socket with curl, as the pages show it."""
        url = f"http://localhost/apis/paddock/v1alpha1/namespaces/default/{path}"
        sent = ("-H", "content-type: application/json", "-d", json.dumps(body))
        done = self.run("curl", "-sS", "--unix-socket", self.environment["PADDOCK_SOCKET"], *sent, url)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def developer() -> Iterator[Developer]:
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    engine = PrivateEngine(folder)
    clone, state = folder / "clone", folder / "state"
    paths = {"STATE_DIR": state, "SOCKET": folder / "paddock.sock", "MOUNTS_DIR": folder / "mounts"}
    mine = {key: value for key, value in os.environ.items() if not key.startswith("PADDOCK_")}
    environment = {
        **mine,
        **{f"PADDOCK_{name}": str(path) for name, path in paths.items()},
        "PADDOCK_SERVER": f"unix://{paths['SOCKET']}",
        "PADDOCK_SECRETS_DIR": str(folder / "secrets"),
        "DOCKER_HOST": engine.base_url,
    }
    created = Developer(clone, engine.namespaces, environment)
    try:
        with way_out(engine.namespaces):
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
            engine.start()
            try:
                created.up = created.run("make", "up", seconds=UP_SECONDS).stdout
                yield created
            finally:
                # With the sandboxes go the mounts that were made for them.
                created.paddock("delete", "sandbox", "--all", check=False)
                created.run("make", "down", check=False)
                folders = f"cut -d' ' -f2 /proc/mounts | grep '^{folder}/mounts' | tac"
                created.run("sh", "-c", f"{folders} | xargs -r -n 1 umount -l", check=False)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_1_make_up_leaves_all_levels_usable(developer: Developer) -> None:
    assert "Security levels that work here: full-isolation, development, build, production." in developer.up


def test_2_run_reads_as_docker_run(developer: Developer) -> None:
    assert developer.paddock("run", "--rm", "paddock/python:1", "python3", "-c", "print(6 * 7)").stdout == "42\n"
    absent = developer.paddock("run", "example.org/absent:1", "true", check=False)
    assert absent.returncode == 1
    assert "example.org/absent:1 is not on this host" in absent.stderr
    assert "images here: paddock/agent:1" in absent.stderr


def test_3_an_agents_first_ten_lines_work(developer: Developer) -> None:
    assert developer.python(FIRST_TEN_LINES).splitlines() == ["42", "hello /workspace"]


def test_4_pip_installs_and_other_hosts_are_refused_in_words(developer: Developer) -> None:
    python = developer.python(TWO_STEPS)
    assert python.startswith("installed\n")
    assert python.count("CONNECT tunnel failed, response 403") == 2, "curl and git"
    assert "paddock: example.com is not in this sandbox's allowed hosts" in python


def test_5_an_image_that_is_not_built_is_built_meanwhile(developer: Developer) -> None:
    done = developer.paddock("run", "paddock/node:1", "node", "-e", "console.log(6 * 7)")
    assert done.stdout == "42\n"
    assert "Ready=False ImageBuilding: paddock/node:1 is being built on this host: 10 s" in done.stderr


def test_6_mcp_servers_are_installed_and_called(developer: Developer) -> None:
    """On the default settings: from where this host's own pip and npm get packages."""
    developer.paddock("mcp", "enable", "--", "uvx", "mcp-server-time@2026.10.19")
    developer.paddock("mcp", "enable", "--", "npx", "@modelcontextprotocol/server-everything@2026.8.31")

    def rows() -> list[list[str]]:
        return [line.split() for line in developer.paddock("get", "mcpservers", "--no-headers").stdout.splitlines()]

    wait_for("both are installed", lambda: all(row[1] != "Installing" for row in rows()), STEP_SECONDS)
    output = developer.paddock("mcp", "call", "--server", "mcp-server-time", "get_current_time", "timezone=UTC").stdout
    assert "UTC" in output
    answer = developer.paddock("mcp", "call", "--server", "server-everything", "echo", "message=hello").stdout
    assert "hello" in answer


def test_7_a_project_runs_an_agents_command(developer: Developer) -> None:
    developer.paddock("project", "open", "shop")
    level = developer.paddock("get", "sandbox", "shop", "-o", "jsonpath={.spec.template.securityLevel}").stdout
    assert level.strip() == "development"
    answer = developer.post("sandboxes/shop/run", {"command": ["sh", "-c", "echo x >src/a; echo $PROJECT_NAME"]})
    assert (answer["success"], answer["output"]) == (True, "shop\n")
    assert [file["path"] for file in answer["files"]] == ["src/a"]
    call = {"tool": "exec", "parameters": {"command": "printf", "args": "'%s|' 'two words' x"}}
    assert developer.post("sandboxes/shop/mcp/execute", call)["output"] == "two words|x|"


def test_8_clients_of_e2b_create_sandboxes(developer: Developer) -> None:
    """On the loopback, where the daemon listens after `make up` alone; its images serve both of E2B's templates."""
    config = f"XDG_CONFIG_HOME={developer.clone.parent / 'config'}"
    printed = developer.run("env", config, f"{developer.clone}/.venv/bin/paddock", "e2b", "env", "-o", "json").stdout
    variables = json.loads(printed)
    headers = ("-H", f"X-API-KEY: {variables['E2B_API_KEY']}", "-H", "content-type: application/json")
    for template in ("base", "code-interpreter-v1"):
        body = json.dumps({"templateID": template, "timeout": 60})
        url = f"{variables['E2B_API_URL']}/v2/sandboxes"
        created = json.loads(developer.run("curl", "-sS", *headers, "-d", body, url).stdout)
        name = created.get("sandboxID", created)
        assert developer.paddock("exec", name, "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"
