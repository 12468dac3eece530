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


class ModelHost:
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

    def sandbox(self, name: str) -> dict[str, Any]:
        return self.daemon.object("sandboxes", name)

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
def host(tmp_path_factory: pytest.TempPathFactory, provider: int) -> Iterator[ModelHost]:
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
        created = ModelHost(daemon, provider, port)
        daemon.paddock("secret", "set", "key", "--host", f"127.0.0.1:{provider}", stdin=f"{KEY}\n")
        created.add_provider("local", models=["tiny*", "slow", "endless", "echo"])
        yield created


def of(name: str) -> dict[str, Any]:
    return {"providerRef": {"name": name}}


def test_a_sandbox_without_a_network_streams_without_a_key(host: ModelHost) -> None:
    host.add_sandbox("box", of("local"))
    host.reachable("box")
    [(status, body)] = host.ask("box", "tiny", how="stream")
    assert (status, body.endswith("data: [DONE]  "), '"content": " two"' in body) == (200, True, True)
    assert [number for number, _ in host.ask("box", "secret-model", "echo")] == [404, 200]
    assert host.ready("provider", "local") == "Answering"
    inside = "env; cat /etc/hosts /proc/net/tcp; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    output = host.daemon.paddock("exec", "box", "--", "sh", "-c", f"{inside}; ls /sys/class/net").stdout
    assert output.splitlines()[-1] == "lo"
    assert "OPENAI_BASE_URL=http://127.0.0.1:8090/v1" in output
    assert "127.0.0.1\tmodels.paddock.internal" in output
    assert "models Listening: at" in " ".join(host.daemon.paddock("why", "sandbox", "box").stdout.split())
    assert "tiny*" in host.daemon.paddock("models").stdout


def test_the_key_is_nowhere(host: ModelHost) -> None:
    host.add_sandbox("hunted", of("local"))
    host.reachable("hunted")
    assert KEY not in host.ask("hunted", "echo")[0][1]
    daemon = host.daemon
    container = host.sandbox("hunted")["status"]["instanceRef"]["containerID"]
    search = (
        f"grep -rlsa {KEY[:14]} / --exclude-dir=sys --exclude-dir=proc; cat /proc/[0-9]*/environ | grep -a {KEY[:14]}"
    )
    output = daemon.paddock("exec", "hunted", "--", "sh", "-c", search, check=False).stdout
    assert output == ""
    assert KEY not in docker("inspect", container)
    pid = int(docker("inspect", "-f", "{{.State.Pid}}", container))
    assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    gateway = Path(f"/proc/{host.gateway()}")
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


def test_no_process_leaves_a_core_with_the_key(host: ModelHost) -> None:
    """The main process, a client that has just used the key, and the agent: none dumps, and none would dump the key."""
    host.add_sandbox("crashing", of("local"), agent={})
    host.reachable("crashing")
    crash = "cd /tmp && python3 -c 'import os; os.abort()'; ls -A"
    assert "core" not in host.daemon.paddock("exec", "crashing", "--", "sh", "-c", crash, check=False).stdout
    container = host.sandbox("crashing")["status"]["instanceRef"]["containerID"]
    arguments = ["exec", "-i", "crashing", "--", "python3", "-c", f"{CLIENT}\nsys.stdin.read()", "whole", "echo"]
    command, environment = [sys.executable, "-m", "controller", *arguments], {**os.environ, **host.daemon.environment}
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


def test_models_change_in_a_running_sandbox(host: ModelHost) -> None:
    host.add_provider("second", models=["other"])
    host.add_sandbox("changing", of("local"))
    host.reachable("changing")
    container = host.sandbox("changing")["status"]["instanceRef"]
    assert [number for number, _ in host.ask("changing", "tiny", "other")] == [200, 404]
    host.add_sandbox("changing", of("second"))
    wait_for("the change", lambda: [number for number, _ in host.ask("changing", "tiny", "other")] == [404, 200])
    host.add_sandbox("changing", of("local"), of("missing"))
    assert "provider `missing`" in host.reachable("changing", "ProviderMissing")["message"]
    host.add_sandbox("changing")
    wait_for("no listener", lambda: not host.daemon.condition("changing", "ModelsReachable"))
    code = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 8090)))"
    refusal = ("exec", "changing", "--", "python3", "-c", code)
    wait_for("the port is closed", lambda: host.daemon.paddock(*refusal).stdout.strip() == "111")
    host.add_sandbox("changing", of("local"))
    host.reachable("changing")
    assert host.ask("changing", "tiny")[0][0] == 200
    assert host.sandbox("changing")["status"]["instanceRef"] == container
    assert host.daemon.condition("changing", "Outdated")["status"] == "False"


def test_a_killed_gateway_is_back_and_sandboxes_run_on(host: ModelHost) -> None:
    host.add_sandbox("surviving", of("local"))
    host.reachable("surviving")
    before = host.gateway()
    arguments = ["exec", "surviving", "--", "python3", "-c", CLIENT, "stream", "endless", "tiny"]
    command = [sys.executable, "-m", "controller", *arguments]
    environment = {**os.environ, **host.daemon.environment}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        wait_for("the stream runs", lambda: '"endless"' in read(f"http://127.0.0.1:{host.provider}/seen"))
        os.kill(before, signal.SIGKILL)
        _, errors = client.communicate(timeout=120)
    assert b"IncompleteRead" in errors or b"RemoteDisconnected" in errors
    assert host.ask("surviving", "tiny")[0][0] == 200
    assert host.gateway() not in (0, before)
    assert host.daemon.condition("surviving", "Ready")["status"] == "True"
    host.reachable("surviving")


def test_a_taken_port_is_said(host: ModelHost) -> None:
    server = "import http.server as h; h.HTTPServer(('127.0.0.1', 8090), h.SimpleHTTPRequestHandler).serve_forever()"
    probe = {"tcpSocket": {"port": 8090}, "periodSeconds": 1}
    template = {"image": "paddock/python:1", "command": ["python3", "-c", server], "readiness": probe}
    lifecycle = {"shutdownGracePeriodSeconds": 0}
    host.apply("Sandbox", "taken", {"template": template, "lifecycle": lifecycle})
    host.daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/taken")
    host.apply("Sandbox", "taken", {"template": template, "lifecycle": lifecycle, "models": [of("local")]})
    assert "port 8090" in host.reachable("taken", "PortTaken")["message"]


def test_providers_that_can_not_be_used_say_why(host: ModelHost) -> None:
    inner = ("provider", "add", "inner", "--type", "openai", "--endpoint", "http://10.0.0.1/v1")
    output = host.daemon.paddock("config", *inner, check=False)
    assert "provider_hosts, `10.0.0.1:80`" in output.stderr
    host.add_provider("keyless", secretRef={"name": "nothing"})
    bound = ("--host", f"127.0.0.1:{host.provider}")
    host.daemon.paddock("secret", "set", "wrong", *bound, stdin="sk-wrong")
    host.add_provider("wrong", secretRef={"name": "wrong"})
    host.daemon.paddock("secret", "set", "elsewhere", "--host", "127.0.0.1:9", stdin=KEY)
    host.add_provider("elsewhere", secretRef={"name": "elsewhere"})
    expected = {"keyless": "SecretMissing", "wrong": "Unauthorized", "elsewhere": "SecretNotForHost"}
    wait_for("all say why", lambda: {name: host.ready("provider", name) for name in expected} == expected, 60)
    host.add_sandbox("unlucky", of("keyless"), of("wrong"))
    host.reachable("unlucky")
    answers = host.ask("unlucky", "keyless/tiny", "wrong/tiny")
    assert [number for number, _ in answers] == [503, 502]
    assert "sk-wrong" not in str(answers)
    host.daemon.paddock("secret", "set", "nothing", *bound, stdin=KEY)
    wait_for("it is ready", lambda: host.ready("provider", "keyless") == "Answering", 60)
    assert host.ask("unlucky", "keyless/tiny")[0][0] == 200


def test_a_token_opens_the_models_of_its_namespace(host: ModelHost, tmp_path: Path) -> None:
    file = tmp_path / "token"
    host.daemon.paddock("token", "create", "ci", "--role", "user", "-n", "default", "--out", str(file))
    token = file.read_text().strip()

    def models(namespace: str, key: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", host.port, timeout=60)
        connection.request("GET", f"/{namespace}/v1/models", headers={"Authorization": f"Bearer {key}"})
        status = connection.getresponse().status
        connection.close()
        return status

    assert [models("default", token), models("other", token), models("default", "pdk_nobody")] == [200, 403, 401]


def test_a_model_server_sleeps_and_wakes(host: ModelHost) -> None:
    started = "import sys, time; time.sleep(3); sys.argv = ['x', '8080']; " + f"exec({SCRIPT.read_text()!r})"
    spec = {
        "template": {"image": "paddock/python:1", "command": ["python3", "-c", started]},
        "resources": {"limits": {"memory": "64Mi", "pids": 32}},
        "lifecycle": {"idleTimeoutSeconds": 3, "shutdownGracePeriodSeconds": 0},
        "model": "tiny",
    }
    host.apply("ModelServer", "smol", spec)
    host.add_sandbox("user", {"modelServerRef": {"name": "smol"}})
    host.reachable("user")
    [(status, body)] = host.ask("user", "smol", how="stream")
    assert (status, '"model": "tiny"' in body) == (200, True)
    wait_for("it is idle", lambda: host.ready("modelserver", "smol") == "Idle", 120)
    sandbox = host.sandbox("model-smol")
    assert sandbox["metadata"]["ownerReferences"][0]["kind"] == "ModelServer"
    assert (
        docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox["status"]["instanceRef"]["containerID"]).strip()
        == "none"
    )
    [(status, body)] = host.ask("user", "smol", how="stream")
    assert (status, ": modelserver `smol` is starting" in body, body.endswith("data: [DONE]  ")) == (200, True, True)
    host.daemon.paddock("delete", "modelserver", "smol")
    wait_for("its sandbox is gone", lambda: not host.daemon.get("model-smol"), 60)


def test_use_is_counted_and_audited(host: ModelHost) -> None:
    host.add_provider("bounded", limits={"requestsPerMinute": 2})
    host.add_sandbox("counted", of("bounded"))
    host.reachable("counted")
    assert [number for number, _ in host.ask("counted", "tiny", "tiny", "tiny")] == [200, 200, 429]

    def sums() -> Any:
        items = json.loads(host.daemon.paddock("audit", "-o", "json").stdout)["items"]
        return [single for single in items if single["verb"] == "models" and single["object"]["name"] == "counted"]

    [entry] = wait_for("the sum in the audit log", sums, 90)
    assert entry["detail"]["requests"] == {"ok": 2, "limited": 1}
    assert (entry["detail"]["tokensIn"], entry["detail"]["tokensOut"]) == (10, 8)
    metrics = read(host.daemon.works_at.metrics_url())
    assert 'paddock_model_requests_total{namespace="default",outcome="limited",provider="bounded"} 1.0' in metrics
    assert 'paddock_model_tokens_total{direction="in",namespace="default",provider="bounded"} 10.0' in metrics
