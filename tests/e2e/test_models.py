"""Models from network-less sandboxes on the real engine: streamed, revoked, kept over a crash, and no key anywhere."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import ROOT, RunningDaemon, docker, running, wait_for
from tests.lab.core import core_has, core_limits

pytestmark = [pytest.mark.docker, pytest.mark.timeout(420)]
SCRIPT = ROOT / "tests" / "gateway" / "scripted_model.py"
KEY = "sk-canary-4b7e19d2"
CLIENT = """
import http.client, json, os, sys
from urllib.parse import urlsplit
url = urlsplit(os.environ["OPENAI_BASE_URL"])
connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
for model in sys.argv[2:]:
    body = {"model": model, "stream": sys.argv[1] == "stream"}
    connection.request("POST", url.path + "/chat/completions", json.dumps(body), {"Authorization": "Bearer x"})
    answer = connection.getresponse()
    print(answer.status, answer.read().decode().replace("\\n", " "), flush=True)
"""


class World:
    """A daemon with a provider on the host, and what is asked from inside of sandboxes."""

    def __init__(self, daemon: RunningDaemon, provider: int, port: int) -> None:
        self.daemon, self.provider, self.port = daemon, provider, port

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.daemon.apply(json.dumps(document))

    def add_provider(self, name: str, **spec: Any) -> None:
        url = f"http://127.0.0.1:{self.provider}/v1"
        self.apply("Provider", name, {"type": "OpenAI", "url": url, "secretRef": {"name": "key"}, **spec})

    def add_sandbox(
        self, name: str, *models: dict[str, Any], command: Any = ("sleep", "infinity"), **more: Any
    ) -> None:
        template = {"image": "paddock/python:1", "command": list(command), **more}
        self.apply("Sandbox", name, {"template": template, "models": list(models)})

    def reachable(self, name: str, reason: str = "Listening") -> dict[str, Any]:
        def found() -> Any:
            condition = self.daemon.condition(name, "ModelsReachable")
            return condition if condition.get("reason") == reason else None

        return dict(wait_for(f"{name}: {reason}", found, 90))

    def ask(self, name: str, *models: str, how: str = "whole") -> list[tuple[int, str]]:
        done = self.daemon.paddock("exec", name, "--", "python3", "-c", CLIENT, how, *models)
        return [(int(line[:3]), line[4:]) for line in done.stdout.splitlines()]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.daemon.paddock("get", kind, name, "-o", "json").stdout)
        return document

    def ready(self, kind: str, name: str) -> str:
        conditions = self.daemon.object(f"{kind}s", name).get("status", {}).get("conditions", [])
        return str(next((condition["reason"] for condition in conditions if condition["type"] == "Ready"), ""))

    def gateway(self) -> int:
        """Return the process id of the gateway."""
        pids = Path(f"/proc/{self.daemon.works_at.process.pid}/task").glob("*/children")
        for pid in (name for file in pids for name in file.read_text().split()):
            with contextlib.suppress(OSError):
                if b"controller.gateway.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return 0


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def provider() -> Iterator[int]:
    command = [sys.executable, str(SCRIPT), "0", KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, provider: int) -> Iterator[World]:
    folder, port = tmp_path_factory.mktemp("models"), free_port()
    settings = {
        "PADDOCK_SECRETS_DIR": str(folder / "secrets"),
        "PADDOCK_PROVIDER_HOSTS": json.dumps([f"127.0.0.1:{provider}"]),
        "PADDOCK_MODELS_PORT": str(port),
        "PADDOCK_LOG_LEVEL": "debug",
        "PADDOCK_API_HOST": "127.0.0.1",
        "PADDOCK_API_PORT": "0",
    }
    with running(folder / "state", **settings) as daemon:
        created = World(daemon, provider, port)
        daemon.paddock("secret", "set", "key", "--host", f"127.0.0.1:{provider}", stdin=f"{KEY}\n")
        created.add_provider("local", models=["tiny*", "slow", "endless", "echo"])
        yield created


def of(name: str) -> dict[str, Any]:
    return {"providerRef": {"name": name}}


def test_a_sandbox_without_a_network_streams_without_a_key(world: World) -> None:
    world.add_sandbox("box", of("local"))
    world.reachable("box")
    [(status, body)] = world.ask("box", "tiny", how="stream")
    assert (status, body.endswith("data: [DONE]  "), '"content": " two"' in body) == (200, True, True)
    assert [number for number, _ in world.ask("box", "secret-model", "echo")] == [404, 200]
    assert world.ready("provider", "local") == "Answering"
    inside = "env; cat /etc/hosts /proc/net/tcp; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    output = world.daemon.paddock("exec", "box", "--", "sh", "-c", f"{inside}; ls /sys/class/net").stdout
    assert output.splitlines()[-1] == "lo"
    assert "OPENAI_BASE_URL=http://127.0.0.1:8090/v1" in output
    assert "127.0.0.1\tmodels.paddock.internal" in output
    assert "models Listening: at" in " ".join(world.daemon.paddock("why", "sandbox", "box").stdout.split())
    assert "tiny*" in world.daemon.paddock("models").stdout


def test_the_key_is_nowhere(world: World) -> None:
    world.add_sandbox("hunted", of("local"))
    world.reachable("hunted")
    assert KEY not in world.ask("hunted", "echo")[0][1]
    daemon = world.daemon
    container = world.get("sandbox", "hunted")["status"]["instanceRef"]["containerID"]
    search = (
        f"grep -rlsa {KEY[:14]} / --exclude-dir=sys --exclude-dir=proc; cat /proc/[0-9]*/environ | grep -a {KEY[:14]}"
    )
    output = daemon.paddock("exec", "hunted", "--", "sh", "-c", search, check=False).stdout
    assert output == ""
    assert KEY not in docker("inspect", container)
    pid = int(docker("inspect", "-f", "{{.State.Pid}}", container))
    assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    gateway = Path(f"/proc/{world.gateway()}")
    assert KEY.encode() not in (gateway / "environ").read_bytes() + (gateway / "cmdline").read_bytes()
    for what in (
        ("audit",),
        ("get", "providers", "-o", "yaml"),
        ("events",),
        ("logs", "hunted"),
        ("describe", "provider", "local"),
    ):
        assert KEY not in daemon.paddock(*what).stdout, what
    for entry in (daemon, daemon.works_at):
        assert KEY not in "".join(entry.log)
    stored = [path for at in (daemon, daemon.works_at) for path in at.folder.rglob("*") if path.is_file()]
    assert [path for path in stored if KEY.encode() in path.read_bytes()] == []


def test_no_process_leaves_a_core_with_the_key(world: World) -> None:
    """The main process, a client that has just used the key, and the agent: none dumps, and none would dump the key."""
    world.add_sandbox("crashing", of("local"), agent={})
    world.reachable("crashing")
    crash = "cd /tmp && python3 -c 'import os; os.abort()'; ls -A"
    assert "core" not in world.daemon.paddock("exec", "crashing", "--", "sh", "-c", crash, check=False).stdout
    container = world.get("sandbox", "crashing")["status"]["instanceRef"]["containerID"]
    arguments = ["exec", "-i", "crashing", "--", "python3", "-c", f"{CLIENT}\nsys.stdin.read()", "whole", "echo"]
    command, environment = [sys.executable, "-m", "controller", *arguments], {**os.environ, **world.daemon.environment}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith(b"200 ")

        def all_four() -> list[int]:
            """The ids of init, the agent, the main process and the client, once all run."""
            numbers = [int(name) for name in docker("top", container, "-eo", "pid").split()[1:]]
            return numbers if len(numbers) == 4 else []

        pids = wait_for("all four run", all_four, 60)
        assert {core_limits(pid) for pid in pids} == {("0", "0")}
        assert any(core_has(pid, [b"OPENAI_BASE_URL=http"]) for pid in pids)
        assert not any(core_has(pid, [KEY.encode()]) for pid in pids)
        client.stdin.close()  # type: ignore[union-attr]
        assert client.wait(60) == 0


def test_models_change_in_a_running_sandbox(world: World) -> None:
    world.add_provider("second", models=["other"])
    world.add_sandbox("changing", of("local"))
    world.reachable("changing")
    container = world.get("sandbox", "changing")["status"]["instanceRef"]
    assert [number for number, _ in world.ask("changing", "tiny", "other")] == [200, 404]
    world.add_sandbox("changing", of("second"))
    wait_for("the change", lambda: [number for number, _ in world.ask("changing", "tiny", "other")] == [404, 200])
    world.add_sandbox("changing", of("local"), of("missing"))
    assert "provider `missing`" in world.reachable("changing", "ProviderMissing")["message"]
    world.add_sandbox("changing")
    wait_for("no listener", lambda: not world.daemon.condition("changing", "ModelsReachable"))
    code = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 8090)))"
    refusal = ("exec", "changing", "--", "python3", "-c", code)
    wait_for("the port is closed", lambda: world.daemon.paddock(*refusal).stdout.strip() == "111")
    world.add_sandbox("changing", of("local"))
    world.reachable("changing")
    assert world.ask("changing", "tiny")[0][0] == 200
    assert world.get("sandbox", "changing")["status"]["instanceRef"] == container
    assert world.daemon.condition("changing", "Outdated")["status"] == "False"


def test_a_killed_gateway_is_back_and_sandboxes_run_on(world: World) -> None:
    world.add_sandbox("surviving", of("local"))
    world.reachable("surviving")
    before = world.gateway()
    arguments = ["exec", "surviving", "--", "python3", "-c", CLIENT, "stream", "endless", "tiny"]
    command = [sys.executable, "-m", "controller", *arguments]
    environment = {**os.environ, **world.daemon.environment}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        wait_for("the stream runs", lambda: '"endless"' in read(f"http://127.0.0.1:{world.provider}/seen"))
        os.kill(before, signal.SIGKILL)
        _, errors = client.communicate(timeout=120)
    assert b"IncompleteRead" in errors or b"RemoteDisconnected" in errors
    assert world.ask("surviving", "tiny")[0][0] == 200
    assert world.gateway() not in (0, before)
    assert world.daemon.condition("surviving", "Ready")["status"] == "True"
    world.reachable("surviving")


def test_a_taken_port_is_said(world: World) -> None:
    server = "import http.server as h; h.HTTPServer(('127.0.0.1', 8090), h.SimpleHTTPRequestHandler).serve_forever()"
    probe = {"tcpSocket": {"port": 8090}, "periodSeconds": 1}
    template = {"image": "paddock/python:1", "command": ["python3", "-c", server], "readiness": probe}
    lifecycle = {"shutdownGracePeriodSeconds": 0}
    world.apply("Sandbox", "taken", {"template": template, "lifecycle": lifecycle})
    world.daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/taken")
    world.apply("Sandbox", "taken", {"template": template, "lifecycle": lifecycle, "models": [of("local")]})
    assert "port 8090" in world.reachable("taken", "PortTaken")["message"]


def test_providers_that_can_not_be_used_say_why(world: World) -> None:
    inner = ("provider", "add", "inner", "--type", "openai", "--endpoint", "http://10.0.0.1/v1")
    output = world.daemon.paddock("config", *inner, check=False)
    assert "provider_hosts, `10.0.0.1:80`" in output.stderr
    world.add_provider("keyless", secretRef={"name": "nothing"})
    bound = ("--host", f"127.0.0.1:{world.provider}")
    world.daemon.paddock("secret", "set", "wrong", *bound, stdin="sk-wrong")
    world.add_provider("wrong", secretRef={"name": "wrong"})
    world.daemon.paddock("secret", "set", "elsewhere", "--host", "127.0.0.1:9", stdin=KEY)
    world.add_provider("elsewhere", secretRef={"name": "elsewhere"})
    expected = {"keyless": "SecretMissing", "wrong": "Unauthorized", "elsewhere": "SecretNotForHost"}
    wait_for("all say why", lambda: {name: world.ready("provider", name) for name in expected} == expected, 60)
    world.add_sandbox("unlucky", of("keyless"), of("wrong"))
    world.reachable("unlucky")
    answers = world.ask("unlucky", "keyless/tiny", "wrong/tiny")
    assert [number for number, _ in answers] == [503, 502]
    assert "sk-wrong" not in str(answers)
    world.daemon.paddock("secret", "set", "nothing", *bound, stdin=KEY)
    wait_for("it is ready", lambda: world.ready("provider", "keyless") == "Answering", 60)
    assert world.ask("unlucky", "keyless/tiny")[0][0] == 200


def test_a_token_opens_the_models_of_its_namespace(world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    world.daemon.paddock("token", "create", "ci", "--role", "user", "-n", "default", "--out", str(file))
    token = file.read_text().strip()

    def models(namespace: str, key: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
        connection.request("GET", f"/{namespace}/v1/models", headers={"Authorization": f"Bearer {key}"})
        status = connection.getresponse().status
        connection.close()
        return status

    assert [models("default", token), models("other", token), models("default", "pdk_nobody")] == [200, 403, 401]


def test_a_model_server_sleeps_and_wakes(world: World) -> None:
    started = "import sys, time; time.sleep(3); sys.argv = ['x', '8080']; " + f"exec({SCRIPT.read_text()!r})"
    spec = {
        "template": {"image": "paddock/python:1", "command": ["python3", "-c", started]},
        "resources": {"limits": {"memory": "64Mi", "pids": 32}},
        "lifecycle": {"idleTimeoutSeconds": 3, "shutdownGracePeriodSeconds": 0},
        "model": "tiny",
    }
    world.apply("ModelServer", "smol", spec)
    world.add_sandbox("user", {"modelServerRef": {"name": "smol"}})
    world.reachable("user")
    [(status, body)] = world.ask("user", "smol", how="stream")
    assert (status, '"model": "tiny"' in body) == (200, True)
    wait_for("it is idle", lambda: world.ready("modelserver", "smol") == "Idle", 120)
    sandbox = world.get("sandbox", "model-smol")
    assert sandbox["metadata"]["ownerReferences"][0]["kind"] == "ModelServer"
    assert (
        docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox["status"]["instanceRef"]["containerID"]).strip()
        == "none"
    )
    [(status, body)] = world.ask("user", "smol", how="stream")
    assert (status, ": modelserver `smol` is starting" in body, body.endswith("data: [DONE]  ")) == (200, True, True)
    world.daemon.paddock("delete", "modelserver", "smol")
    wait_for("its sandbox is gone", lambda: not world.daemon.get("model-smol"), 60)


def test_use_is_counted_and_audited(world: World) -> None:
    world.add_provider("bounded", limits={"requestsPerMinute": 2})
    world.add_sandbox("counted", of("bounded"))
    world.reachable("counted")
    assert [number for number, _ in world.ask("counted", "tiny", "tiny", "tiny")] == [200, 200, 429]

    def sums() -> Any:
        items = json.loads(world.daemon.paddock("audit", "-o", "json").stdout)["items"]
        return [single for single in items if single["verb"] == "models" and single["object"]["name"] == "counted"]

    [entry] = wait_for("the sum in the audit log", sums, 90)
    assert entry["detail"]["requests"] == {"ok": 2, "limited": 1}
    assert (entry["detail"]["tokensIn"], entry["detail"]["tokensOut"]) == (10, 8)
    metrics = read(world.daemon.works_at.metrics_url())
    assert 'paddock_model_requests_total{namespace="default",outcome="limited",provider="bounded"} 1.0' in metrics
    assert 'paddock_model_tokens_total{direction="in",namespace="default",provider="bounded"} 10.0' in metrics
