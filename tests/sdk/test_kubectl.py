"""The real kubectl against the TCP listener, with TLS and a token."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.listeners import certificate
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.mcp, pytest.mark.docker, pytest.mark.timeout(300)]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: web, labels: {app: web}}
spec:
  template: {image: "paddock/test-tiny:1", command: [sleep, "1000000"]}
  priority: %d
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    cert, key = certificate(folder)
    settings = {"PADDOCK_TLS_CERT_FILE": str(cert), "PADDOCK_TLS_KEY_FILE": str(key)}
    with running(folder / "state", PADDOCK_API_HOST="127.0.0.1", PADDOCK_API_PORT="0", **settings) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on the path")
    home = tmp_path_factory.mktemp("home")
    token = daemon.paddock("token", "create", "kubectl", "--role", "user", "--namespace", "default").stdout.strip()
    cert = Path(daemon.environment["PADDOCK_TLS_CERT_FILE"])
    config = home / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: paddock\n"
        f"clusters: [{{name: p, cluster: {{server: '{daemon.served()['api']}', certificate-authority: '{cert}'}}}}]\n"
        f"users: [{{name: p, user: {{token: '{token}'}}}}]\n"
        "contexts: [{name: paddock, context: {cluster: p, user: p, namespace: default}}]\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(config)}

    def run(*words: str, stdin: str = "", check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            ["kubectl", *words], input=stdin, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def test_kubectl_applies_gets_describes_watches_and_deletes(daemon: RunningDaemon, kubectl: Kubectl) -> None:
    assert "sandboxes" in kubectl("api-resources").stdout
    made = kubectl("apply", "--validate=false", "-f", "-", stdin=SANDBOX % 0)
    assert made.stdout == "sandbox.paddock/web created\n"
    assert kubectl("apply", "--validate=false", "-f", "-", stdin=SANDBOX % 0).stdout.endswith("unchanged\n")
    assert kubectl("apply", "--validate=false", "-f", "-", stdin=SANDBOX % 5).stdout.endswith("configured\n")
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/web")
    title, row = kubectl("get", "sb").stdout.splitlines()
    assert title.split()[:3] == ["NAME", "READY", "STATUS"]
    assert row.split()[:3] == ["web", "True", "Running"]
    assert kubectl("get", "sandboxes", "-l", "app=web", "-o", "jsonpath={.items[*].spec.priority}").stdout == "5"
    assert "Priority:" in kubectl("describe", "sandbox", "web").stdout
    kubectl("label", "sandbox", "web", "tier=front")
    kubectl("patch", "sandbox", "web", "--type=merge", "-p", '{"spec": {"priority": 7}}')
    assert "not found" in kubectl("get", "sandbox", "none", check=False).stderr
    refused = kubectl("apply", "--server-side", "--validate=false", "-f", "-", stdin=SANDBOX % 6, check=False)
    assert (refused.returncode, "leave --server-side out" in refused.stderr) == (1, True), refused.stderr
    assert kubectl("delete", "sandbox", "web").stdout.startswith('sandbox.paddock "web" deleted')
    wait_for("it is gone", lambda: not daemon.get("web"))


def test_kubectl_applies_its_own_spellings(kubectl: Kubectl) -> None:
    head = "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: probed}\n"
    manifest = head + "spec: {runState: Suspended, template: {image: a, args: [-v]%s}}"
    probe = ", livenessProbe: {tcpSocket: {port: 80}%s}"

    def applied(probe: str) -> dict[str, Any]:
        kubectl("apply", "--validate=false", "-f", "-", stdin=manifest % probe)
        found: dict[str, Any] = json.loads(kubectl("get", "sandbox", "probed", "-o", "json").stdout)
        assert "livenessProbe" not in found["spec"]["template"]
        return found

    assert applied(probe % "")["spec"]["template"]["liveness"]["tcpSocket"] == {"port": 80}
    changed = applied(probe % ", periodSeconds: 5")
    assert (changed["spec"]["template"]["liveness"]["periodSeconds"], changed["metadata"]["generation"]) == (5, 2)
    again = applied(probe % ", periodSeconds: 5")
    assert (again["spec"], again["metadata"]["generation"]) == (changed["spec"], 2)
    assert "liveness" not in applied("")["spec"]["template"]
    kubectl("delete", "sandbox", "probed", "--wait=false")


def test_kubectl_watches(kubectl: Kubectl) -> None:
    kubectl("create", "--validate=false", "-f", "-", stdin=SANDBOX.replace("name: web", "name: seen") % 0)
    shown = kubectl("get", "sb", "seen", "--watch", "--request-timeout=3s", check=False)
    assert "seen" in shown.stdout
    kubectl("delete", "sandbox", "seen", "--wait=false")
