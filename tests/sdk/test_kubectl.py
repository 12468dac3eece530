"""kubectl of three versions against the TCP listener, with TLS and a token."""

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.listeners import certificate
from tests.daemon import RunningDaemon, running, wait_for

PROGRAMS = Path(__file__).parents[2] / ".cache" / "kubectl"  # deploy/kubectl.sh makes them
VERSIONS = ("1.20", "1.32", "1.36")
OVER_WEBSOCKETS = ("1.32", "1.36")
pytestmark = [pytest.mark.kubectl, pytest.mark.docker, pytest.mark.timeout(300)]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: web, labels: {app: web}}
spec:
  template: {image: "paddock/test-tiny:1", command: [sh, -c, "echo hello; exec sleep 1000000"]}
  priority: %d
"""
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    cert, key = certificate(folder)
    settings = {"PADDOCK_TLS_CERT_FILE": str(cert), "PADDOCK_TLS_KEY_FILE": str(key)}
    with running(folder / "state", PADDOCK_API_HOST="127.0.0.1", PADDOCK_API_PORT="0", **settings) as daemon_process:
        yield daemon_process


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kubectl(daemon: RunningDaemon, version: str, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    home = tmp_path_factory.mktemp("home")
    token_name = f"kubectl-{version.replace('.', '-')}"
    token = daemon.paddock("token", "create", token_name, "--role", "user", "--namespace", "default").stdout.strip()
    cert = Path(daemon.environment["PADDOCK_TLS_CERT_FILE"])
    config = home / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: paddock\n"
        f"clusters: [{{name: p, cluster: {{server: '{daemon.served()['api']}', certificate-authority: '{cert}'}}}}]\n"
        f"users: [{{name: p, user: {{token: '{token}'}}}}]\n"
        "contexts: [{name: paddock, context: {cluster: p, user: p, namespace: default}}]\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(config)}

    def run(*words: str, stdin: str = "", check: bool = True, **variables: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [str(PROGRAMS / version / "kubectl"), *words],
            input=stdin,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def web(daemon: RunningDaemon, kubectl: Kubectl) -> Iterator[None]:
    kubectl("apply", "-f", "-", stdin=SANDBOX % 0)
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/web")
    yield
    kubectl("delete", "sandbox", "web")
    wait_for("it is gone", lambda: not daemon.get("web"))


def test_objects_are_applied_read_and_changed(kubectl: Kubectl, web: None) -> None:
    assert "sandboxes" in kubectl("api-resources").stdout
    assert "Server Version" in kubectl("version").stdout
    assert kubectl("apply", "-f", "-", stdin=SANDBOX % 0).stdout == "sandbox.paddock/web unchanged\n"
    assert kubectl("apply", "-f", "-", stdin=SANDBOX % 5).stdout == "sandbox.paddock/web configured\n"
    title, row = kubectl("get", "sb").stdout.splitlines()
    assert title.split()[:3] == ["NAME", "READY", "STATUS"]
    assert row.split()[:3] == ["web", "True", "Running"]
    assert kubectl("get", "sandboxes", "-l", "app=web", "-o", "jsonpath={.items[*].spec.priority}").stdout == "5"
    assert "Priority:" in kubectl("describe", "sandbox", "web").stdout
    assert kubectl("get", "all").stdout.splitlines()[1].split()[0].endswith("web")
    kubectl("label", "sandbox", "web", "tier=front")
    kubectl("annotate", "sandbox", "web", "note=a")
    kubectl("patch", "sandbox", "web", "--type=merge", "-p", '{"spec": {"priority": 7}}')
    assert kubectl("replace", "-f", "-", stdin=SANDBOX % 8).stdout == "sandbox.paddock/web replaced\n"
    assert "not found" in kubectl("get", "sandbox", "none", check=False).stderr
    process = kubectl("apply", "--server-side", "-f", "-", stdin=SANDBOX % 6, check=False)
    assert (process.returncode, "leave --server-side out" in process.stderr) == (1, True), process.stderr


def test_a_wrong_field_is_named(kubectl: Kubectl) -> None:
    process = kubectl("apply", "-f", "-", stdin=(SANDBOX % 0).replace("priority", "prioritty"), check=False)
    assert (process.returncode, "unknown field" in process.stderr) == (1, True)


def test_dry_runs_and_diffs_write_nothing(kubectl: Kubectl, web: None) -> None:
    text = (SANDBOX % 0).replace("name: web", "name: other")
    assert kubectl("apply", "--dry-run=server", "-f", "-", stdin=text).stdout.endswith("created (server dry run)\n")
    assert kubectl("create", "--dry-run=server", "-f", "-", stdin=text).returncode == 0
    for manifest, line in ((text, "+kind: Sandbox"), (SANDBOX % 3, "+  priority: 3")):
        process = kubectl("diff", "-f", "-", stdin=manifest, check=False)
        assert (process.returncode, line in process.stdout) == (1, True), process.stdout + process.stderr
    assert kubectl("diff", "-f", "-", stdin=SANDBOX % 0).stdout == ""
    assert "(server dry run)" in kubectl("delete", "sandbox", "web", "--dry-run=server").stdout
    assert kubectl("get", "sandboxes", "-o", "jsonpath={.items[*].metadata.name}").stdout == "web"


def test_kinds_are_explained(kubectl: Kubectl) -> None:
    assert "priority <integer>" in " ".join(kubectl("explain", "sandbox.spec.priority").stdout.split())
    assert "allowedHosts" in kubectl("explain", "sb", "--recursive").stdout
    assert "warmReplicas" in kubectl("explain", "sandboxpool.spec").stdout


def test_an_object_is_edited(kubectl: Kubectl, web: None, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/^  priority: .*/  priority: 4/" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    assert kubectl("edit", "sandbox", "web", EDITOR=str(editor)).stdout == "sandbox.paddock/web edited\n"
    assert kubectl("get", "sandbox", "web", "-o", "jsonpath={.spec.priority}").stdout == "4"


def test_logs_and_commands_of_a_sandbox(kubectl: Kubectl, version: str, web: None, tmp_path: Path) -> None:
    assert kubectl("get", "pods").stdout.splitlines()[1].split()[:2] == ["web", "True"]
    assert "Status:" in kubectl("describe", "pod", "web").stdout
    for arguments in (["web"], ["pod/web", "--tail=1"], ["web", "--since-time=2020-01-01T00:00:00Z"]):
        assert kubectl("logs", *arguments).stdout == "hello\n"
    if version not in OVER_WEBSOCKETS:
        assert "since version 1.30" in kubectl("exec", "web", "--", "true", check=False).stderr
        return
    assert kubectl("exec", "web", "--", "echo", "hi").stdout == "hi\n"
    assert kubectl("exec", "-i", "web", "--", "cat", stdin="data\n").stdout == "data\n"
    assert kubectl("exec", "web", "--", "sh", "-c", "echo wrong >&2; exit 3", check=False).returncode == 3
    (tmp_path / "a").write_text("content")
    kubectl("cp", str(tmp_path / "a"), "web:/tmp/a")
    assert kubectl("exec", "web", "--", "cat", "/tmp/a").stdout == "content"


def test_access_is_reviewed(kubectl: Kubectl, version: str) -> None:
    assert kubectl("auth", "can-i", "create", "sandboxes").stdout == "yes\n"
    assert kubectl("auth", "can-i", "get", "pods", "--subresource=log").stdout == "yes\n"
    assert kubectl("auth", "can-i", "create", "quotas", check=False).stdout.startswith("no")
    assert "sandboxes.paddock" in kubectl("auth", "can-i", "--list").stdout
    if version in OVER_WEBSOCKETS:
        assert "token kubectl" in kubectl("auth", "whoami").stdout


def test_a_manifest_of_a_pod_is_answered(kubectl: Kubectl) -> None:
    process = kubectl("create", "--validate=false", "-f", "-", stdin=MANIFEST, check=False)
    assert "into `template` of a Sandbox" in process.stderr


def test_spellings_of_kubernetes_are_applied(kubectl: Kubectl) -> None:
    head = "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: probed}\n"
    manifest = head + "spec: {runState: Suspended, template: {image: a, args: [-v]%s}}"
    probe = ", livenessProbe: {tcpSocket: {port: 80}%s}"

    def applied(probe: str) -> dict[str, Any]:
        kubectl("apply", "-f", "-", stdin=manifest % probe)
        answer: dict[str, Any] = json.loads(kubectl("get", "sandbox", "probed", "-o", "json").stdout)
        assert "livenessProbe" not in answer["spec"]["template"]
        return answer

    assert applied(probe % "")["spec"]["template"]["liveness"]["tcpSocket"] == {"port": 80}
    changed = applied(probe % ", periodSeconds: 5")
    assert (changed["spec"]["template"]["liveness"]["periodSeconds"], changed["metadata"]["generation"]) == (5, 2)
    again = applied(probe % ", periodSeconds: 5")
    assert (again["spec"], again["metadata"]["generation"]) == (changed["spec"], 2)
    assert "liveness" not in applied("")["spec"]["template"]
    kubectl("delete", "sandbox", "probed")


def test_changes_are_watched(kubectl: Kubectl, web: None) -> None:
    process = kubectl("get", "sb", "web", "--watch", "--request-timeout=3s", check=False)
    assert "web" in process.stdout
