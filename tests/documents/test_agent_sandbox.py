"""Manifests of agent-sandbox as specs: what is translated is valid, and what is not is named."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cli.main import cli
from controller.documents.agent_sandbox.translate import translate
from controller.documents.document import parse
from controller.kinds.registry import discover
from tests.examples import examples

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
    assert [str(problem) for problem in problems] == []
    assert [(document.kind.name, document.name) for document in documents] == [
        ("Sandbox", "coder"),
        ("SandboxTemplate", "python"),
        ("SandboxPool", "warm"),
        ("Sandbox", "mine"),
    ]
    coder, _, pool, claim = (document["spec"] for document in yaml.safe_load_all(done.stdout))
    assert (pool["warmReplicas"], claim["templateRef"]["name"]) == (3, "python")
    template = coder.pop("template")
    assert coder == {
        "lifecycle": {"shutdownGracePeriodSeconds": 5, "keepRunning": True},
        "restartPolicy": "OnFailure",
        "runState": "Suspended",
    }
    assert (template["command"], template["args"]) == (["python3"], ["-m", "http.server"])
    assert template["resources"] == {"limits": {"cpu": "250m", "memory": "512Mi", "disk": "1Gi"}}
    assert (template["user"], template["runtime"]) == ("1000:1000", "runsc")
    assert template["volumeClaimTemplates"] == [{"name": "work", "mountPath": "/work", "size": "2Gi"}]
    assert template["tmpfs"] == [{"mountPath": "/tmp", "size": "128Mi"}]
    assert claim["lifecycle"] == {"shutdownGracePeriodSeconds": 30, "keepRunning": True}
    for message in (
        "serviceAccountName: left out: a sandbox has no service account",
        "Sandbox/coder: spec.shutdownPolicy: left out: it has no effect without a time",
        "Sandbox/coder: spec: at the securityLevel full-isolation it has no network",
        "cpu: becomes the limit here",
        "volumeClaimTemplates[work]: stays when its sandbox is deleted",
        "volume scratch.emptyDir: a folder in memory here; it counts as memory",
        "readinessProbe: ends with its first success here",
        "runtimeClassName: the engine's runtime `runsc` here",
    ):
        assert message in done.stderr, message


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


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_every_version_is_known(translated: Import, version: str) -> None:
    done = translated(GOOD.replace("v1alpha1", version))
    assert done.exit_code == 0, done.stderr
    assert "`v2` is not known; known: v1alpha1, v1beta1, v1" in translated(GOOD.replace("v1alpha1", "v2")).stderr


POOL = """
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: py}
spec:
  service: true
  networkPolicy: {egress: [{}]}
  envVarsInjectionPolicy: POLICY
  volumeClaimTemplatesPolicy: POLICY
  podTemplate:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 7
      containers:
      - {name: main, image: a, env: [{name: A, value: "1"}], volumeMounts: [{name: w, mountPath: /w}]}
  volumeClaimTemplates: [{metadata: {name: w}, spec: {resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: warm}
spec: {sandboxTemplateRef: {name: py}, updateStrategy: {type: OnReplenish}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata: {name: mine, labels: {b: own}}
spec:
  warmPoolRef: {name: warm}
  additionalPodMetadata: {labels: {a: x, b: x}}
  lifecycle: {ttlSecondsAfterFinished: 60, shutdownPolicy: Delete}
"""


def test_a_claim_of_a_pool_is_one_of_its_template(translated: Import) -> None:
    done = translated(POOL.replace("POLICY", "Disallowed"))
    assert done.exit_code == 0, done.stderr
    template, pool, claim = yaml.safe_load_all(done.stdout)
    assert "restartPolicy" not in template["spec"]
    assert pool["spec"] == {"templateRef": {"name": "py"}, "warmReplicas": 1, "shutdownGracePeriodSeconds": 7}
    assert claim["metadata"]["labels"] == {"a": "x", "b": "own"}
    assert claim["spec"] == {
        "templateRef": {"name": "py"},
        "restartPolicy": "Never",
        "lifecycle": {"shutdownGracePeriodSeconds": 7, "keepRunning": True, "ttlSecondsAfterFinished": 60},
    }
    for message in (
        "SandboxTemplate/py: spec.service: left out: ports of a sandbox are reached by",
        "SandboxTemplate/py: spec.networkPolicy: left out: a sandbox reaches what",
        "SandboxTemplate/py: spec.envVarsInjectionPolicy: left out",
        "SandboxTemplate/py: spec.podTemplate.spec.restartPolicy: belongs to each Sandbox here",
        "SandboxWarmPool/warm: spec.updateStrategy: its members are replaced after a day",
        "SandboxClaim/mine: spec.warmPoolRef: a warm sandbox of any pool of its template",
        "SandboxClaim/mine: spec.additionalPodMetadata: written as labels and annotations",
    ):
        assert message in done.stderr, message


OWN = """  env: [{name: A, value: "2"}, {name: B, value: "3"}]
  volumeClaimTemplates: [{metadata: {name: w}, spec: {resources: {requests: {storage: 4Gi}}}}]
"""


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("Overrides", ""),
        ("Allowed", "spec.env[0]: its template does not allow it (envVarsInjectionPolicy Allowed)"),
        ("Disallowed", "spec.env[1]: its template does not allow it (envVarsInjectionPolicy Disallowed)"),
    ],
)
def test_a_claim_with_its_own_variables_starts_cold(translated: Import, policy: str, fault: str) -> None:
    done = translated(POOL.replace("POLICY", policy) + OWN)
    assert (done.exit_code == 0, fault in done.stderr) == (not fault, True)
    if not fault:
        spec = list(yaml.safe_load_all(done.stdout))[2]["spec"]
        assert "templateRef" not in spec
        assert spec["template"]["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
        assert spec["template"]["volumeClaimTemplates"] == [{"name": "w", "mountPath": "/w", "size": "4Gi"}]
        assert "its template is written out, and it starts cold" in done.stderr


def test_a_claim_of_an_unknown_pool_is_refused(translated: Import) -> None:
    claim = POOL.rpartition("---")[2]
    done = translated(claim)
    assert done.exit_code == 1
    assert "spec.warmPoolRef: pool `warm` is not among these documents" in done.stderr
    lossy = translated(claim, "--lossy")
    assert "Sandbox/mine, as translated: spec.templateRef.name" in lossy.stderr  # apply refuses it, too
    text = POOL.replace("POLICY", "Allowed").replace("warmPoolRef: {name: warm}", "sandboxTemplateRef: {name: other}")
    assert "its template: `other` is not among these documents" in translated(text).stderr
    specific = text.replace("sandboxTemplateRef: {name: other}", "sandboxTemplateRef: {name: other}\n  warmpool: warm")
    assert "pool `warm` is of the template `py`, and the claim of `other`" in translated(specific).stderr


@pytest.mark.parametrize(
    ("spec", "state"),
    [("operatingMode: Suspended", "Suspended"), ("operatingMode: Running", None), ("replicas: 0", "Suspended")],
)
def test_the_operating_mode_is_the_run_state(translated: Import, spec: str, state: str | None) -> None:
    done = translated(sandbox("dnsPolicy: ClusterFirst", "", spec))
    assert done.exit_code == 0, done.stderr
    assert yaml.safe_load(done.stdout)["spec"].get("runState") == state


def test_uses_of_variables_are_replaced(translated: Import) -> None:
    name = "{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"
    env = f'env: [{{name: A, value: "1"}}, {{name: B, value: "$(A)$(C)"}}, {name}]'
    done = translated(
        sandbox("dnsPolicy: None", f'{env}, command: ["$(A)", "$$(A)", "$(C)", "$A"], args: ["$(B)-$(N)"]')
    )
    assert done.exit_code == 0, done.stderr
    template = yaml.safe_load(done.stdout)["spec"]["template"]
    assert [entry["value"] for entry in template["env"]] == ["1", "1$(C)", "one"]
    assert (template["command"], template["args"]) == (["1", "$(A)", "$(C)", "$A"], ["1$(C)-one"])


def test_named_ports_of_probes_are_numbers(translated: Import) -> None:
    probe = "httpGet: {path: /a, port: web, httpHeaders: [{name: Host, value: x}]}"
    container = f"ports: [{{name: web, containerPort: 80, protocol: UDP}}], startupProbe: {{{probe}}}"
    done = translated(sandbox("dnsPolicy: None", f"{container}, livenessProbe: {{tcpSocket: {{port: web}}}}"))
    assert done.exit_code == 0, done.stderr
    template = yaml.safe_load(done.stdout)["spec"]["template"]
    assert template["startup"] == {"httpGet": {"path": "/a", "host": "x", "port": 80}}
    assert template["liveness"] == {"tcpSocket": {"port": 80}}


def test_shared_memory_is_a_size(translated: Import) -> None:
    pod = "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 256Mi}}]"
    done = translated(sandbox(pod, "volumeMounts: [{name: shm, mountPath: /dev/shm}]"))
    assert yaml.safe_load(done.stdout)["spec"]["template"]["shmSize"] == "256Mi"


ALL_PARTS = """
apiVersion: agents.x-k8s.io/v1
kind: Sandbox
metadata: {name: one}
spec:
  podTemplate:
    spec:
      securityContext: {runAsNonRoot: true}
      volumes: [{name: t, emptyDir: {sizeLimit: 1Mi}}]
      containers:
      - name: main
        image: a
        env: [{name: A, value: b}]
        ports: [{containerPort: 80}]
        resources: {limits: {cpu: 1}}
        securityContext: {capabilities: {drop: [ALL]}}
        volumeMounts: [{name: t, mountPath: /t}, {name: c, mountPath: /c}]
        readinessProbe: {httpGet: {port: 80}}
        livenessProbe: {tcpSocket: {port: 80}}
  volumeClaimTemplates: [{metadata: {name: c}, spec: {resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: extensions.agents.x-k8s.io/v1
kind: SandboxWarmPool
metadata: {name: pool}
spec: {sandboxTemplateRef: {name: x}}
---
apiVersion: extensions.agents.x-k8s.io/v1
kind: SandboxClaim
metadata: {name: claim}
spec: {warmPoolRef: {name: pool}, lifecycle: {ttlSecondsAfterFinished: 1}, additionalPodMetadata: {labels: {a: b}}}
"""
_MAPS_OF_NAMES = ("labels", "requests")
_REFERENCES = ("sandboxTemplateRef", "warmPoolRef")


def mappings_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping whose keys are fields."""
    if isinstance(value, dict):
        yield value
    for key, entry in value.items() if isinstance(value, dict) else ():
        if key not in (*_MAPS_OF_NAMES, *_REFERENCES):
            yield from mappings_of(entry)
    for single in value if isinstance(value, list) else ():
        yield from mappings_of(single)


def test_a_field_that_nobody_knows_is_named_wherever_it_is() -> None:
    count = sum(len(list(mappings_of(document))) for document in yaml.safe_load_all(ALL_PARTS))
    assert count > 30
    for place in range(count):
        manifests = list(yaml.safe_load_all(ALL_PARTS))
        target = [mapping for manifest in manifests for mapping in mappings_of(manifest)][place]
        target["unheardOf"] = 5
        assert [fault for fault in translate(manifests).faults if ".unheardOf: " in fault], target


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), _JSON)
def test_no_shape_of_a_part_breaks_the_translation(data: st.DataObject, value: Any) -> None:
    manifests = list(yaml.safe_load_all(ALL_PARTS))
    target = data.draw(st.sampled_from([mapping for manifest in manifests for mapping in mappings_of(manifest)]))
    target[data.draw(st.sampled_from(sorted(target)))] = value
    translate(manifests)


def test_other_kinds_of_a_file_are_named(translated: Import) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n"
    many = (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: agents.x-k8s.io/v1, kind: Sandbox, metadata: {name: a}}\n"
    )
    assert "Service/web: left out: ports of a sandbox are reached by" in translated(service + GOOD).stderr
    assert "Sandbox/a: spec.podTemplate.spec.containers: has 0 containers" in translated(many).stderr


def test_an_invalid_translation_is_said_at_once(translated: Import) -> None:
    done = translated(sandbox("dnsPolicy: None", "workingDir: relative"))
    assert done.exit_code == 1
    assert "Sandbox/one, as translated: spec.template.workingDir" in done.stderr


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
