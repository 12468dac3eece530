"""Manifests of agent-sandbox as specs: what is translated is valid, and what is not is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from controller.cli.main import cli
from controller.documents.document import parse
from controller.kinds.registry import discover

GOOD = """
apiVersion: agents.x-k8s.io/v1alpha1
kind: Sandbox
metadata: {name: coder, labels: {app: coder}, uid: ignored}
spec:
  replicas: 0
  shutdownPolicy: Delete
  volumeClaimTemplates:
  - metadata: {name: work}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
  podTemplate:
    spec:
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 5
      runtimeClassName: gvisor
      serviceAccountName: nobody
      volumes: [{name: scratch, emptyDir: {sizeLimit: 128Mi}}]
      containers:
      - name: main
        image: example.org/coder:1
        command: [python3]
        args: [-m, http.server]
        env: [{name: A, value: "1"}]
        ports: [{containerPort: 8000}]
        resources: {requests: {cpu: 250m}, limits: {memory: 512Mi, ephemeral-storage: 1Gi}}
        securityContext: {runAsUser: 1000, runAsGroup: 1000, readOnlyRootFilesystem: true}
        readinessProbe: {httpGet: {path: /, port: 8000}, periodSeconds: 2}
        volumeMounts: [{name: work, mountPath: /work}, {name: scratch, mountPath: /tmp}]
---
apiVersion: extensions.agents.x-k8s.io/v1alpha1
kind: SandboxTemplate
metadata: {name: python}
spec: {podTemplate: {spec: {containers: [{name: main, image: "paddock/python:1", command: [sleep, infinity]}]}}}
---
apiVersion: extensions.agents.x-k8s.io/v1alpha1
kind: SandboxWarmPool
metadata: {name: warm, namespace: default}
spec: {replicas: 3, sandboxTemplateRef: {name: python}}
---
apiVersion: extensions.agents.x-k8s.io/v1alpha1
kind: SandboxClaim
metadata: {name: mine}
spec: {sandboxTemplateRef: {name: python}, lifecycle: {shutdownPolicy: Delete}}
"""
BAD = """
apiVersion: agents.x-k8s.io/v1alpha1
kind: Sandbox
metadata: {name: bad}
spec:
  shutdownTime: "2026-01-31T12:00:00Z"
  podTemplate:
    spec:
      hostNetwork: true
      containers:
      - name: main
        image: a
        env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}}}]
        securityContext: {privileged: true, capabilities: {add: [NET_ADMIN]}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, hostPath: {path: /srv}}]
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
"""
Import = Callable[..., Result]


@pytest.fixture
def translated(tmp_path: Path) -> Import:
    def run(text: str, *flags: str) -> Result:
        (tmp_path / "in.yaml").write_text(text)
        return CliRunner().invoke(cli, ["import", "agent-sandbox", str(tmp_path / "in.yaml"), *flags])

    return run


def test_every_kind_is_translated_to_a_valid_spec(translated: Import) -> None:
    done = translated(GOOD)
    assert done.exit_code == 0, done.stderr
    documents, problems = parse("out", done.stdout, discover())
    assert [str(each) for each in problems] == []
    assert [(each.kind.name, each.name) for each in documents] == [
        ("Sandbox", "coder"),
        ("SandboxTemplate", "python"),
        ("SandboxPool", "warm"),
        ("Sandbox", "mine"),
    ]
    coder, _, pool, claim = (each["spec"] for each in yaml.safe_load_all(done.stdout))
    assert (pool["warmReplicas"], claim["templateRef"]["name"]) == (3, "python")
    template = coder.pop("template")
    assert coder == {
        "lifecycle": {"ttlSecondsAfterFinished": 0, "shutdownGracePeriodSeconds": 5},
        "restartPolicy": "OnFailure",
        "runState": "Suspended",
    }
    assert (template["command"], template["args"]) == (["python3"], ["-m", "http.server"])
    assert template["resources"] == {"limits": {"cpu": "250m", "memory": "512Mi", "disk": "1Gi"}}
    assert (template["user"], template["runtime"]) == ("1000:1000", "runsc")
    assert template["volumeClaimTemplates"] == [{"name": "work", "mountPath": "/work", "size": "2Gi"}]
    assert template["tmpfs"] == [{"mountPath": "/tmp", "size": "128Mi"}]
    assert "serviceAccountName: left out: a sandbox has no service account" in done.stderr


def test_each_field_without_counterpart_is_named(translated: Import) -> None:
    done = translated(BAD)
    assert (done.exit_code, done.stdout) == (1, "")
    for path in (
        "Sandbox/bad: spec.shutdownTime: ",
        "spec.podTemplate.spec.hostNetwork: ",
        "containers[0].env[0].valueFrom: ",
        "securityContext.privileged: ",
        "securityContext.capabilities.add: ",
        "volume data (hostPath): ",
        "Pod/pod: not of agents.x-k8s.io",
    ):
        assert path in done.stderr, path
    lossy = translated(BAD, "--lossy")
    assert (lossy.exit_code, "warning: Sandbox/bad: spec.shutdownTime" in lossy.stderr) == (0, True)
    assert "kind: Sandbox" in lossy.stdout


def sandbox(pod: str, container: str, spec: str = "") -> str:
    return f"""
apiVersion: agents.x-k8s.io/v1alpha1
kind: Sandbox
metadata: {{name: one}}
spec:
  podTemplate:
    spec: {{{pod}, containers: [{{name: main, image: a, {container}}}]}}
  {spec}
"""


def test_security_of_pod_and_container_is_merged(translated: Import) -> None:
    """The container's fields go before the pod's, field by field; nothing of either is lost."""
    pod = "securityContext: {runAsNonRoot: true, runAsUser: 5, runAsGroup: 6, seccompProfile: {type: RuntimeDefault}}"
    narrow = "readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}"
    done = translated(sandbox(pod, f"securityContext: {{runAsUser: 7, {narrow}}}"))
    assert done.exit_code == 0, done.stderr
    assert parse("out", done.stdout, discover())[1] == []
    template = yaml.safe_load(done.stdout)["spec"]["template"]
    assert template["user"] == "7:6"
    assert template["security"] == {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "noNewPrivileges": True,
        "capabilities": [],
    }
    assert "seccompProfile: left out: the securityLevel has one" in done.stderr


def test_no_field_is_dropped_in_silence(translated: Import) -> None:
    pod = "securityContext: {runAsGroup: 6, seccompProfile: {type: Unconfined}}, volumes: [{name: t, emptyDir: {}}]"
    container = (
        "securityContext: {capabilities: {drop: [NET_RAW]}},"
        "volumeMounts: [{name: t, mountPath: /t, readOnly: true, subPath: x}]"
    )
    done = translated(sandbox(pod, container, "replicas: 3"))
    assert (done.exit_code, done.stdout) == (1, "")
    for path in (
        "spec.replicas: a Sandbox is one sandbox",
        "securityContext.runAsGroup: needs `runAsUser`",
        "spec.podTemplate.spec.securityContext.seccompProfile: Unconfined",
        "securityContext.capabilities.drop: name those to keep",
        "containers[0].volumeMounts[0].readOnly: this volume would be writable",
        "containers[0].volumeMounts[0].subPath: has no counterpart",
    ):
        assert path in done.stderr, path
