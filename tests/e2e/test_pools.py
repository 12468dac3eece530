"""A warm pool on the real engine: filled, claimed as it runs, refilled, given up."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, running

pytestmark = pytest.mark.docker

POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t}
spec: {image: "paddock/test-tiny:1", command: [sleep, infinity]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: p}
spec: {templateRef: {name: t}, warmReplicas: 2, shutdownGracePeriodSeconds: 0}
"""
CLAIM = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: a}
spec:
  templateRef: {name: t}
  resources: {limits: {memory: 128Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def read(daemon: RunningDaemon, word: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.paddock("get", word, "-o", "json").stdout)
    return found


def test_a_pool_serves_a_claim_and_is_refilled(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(POOL)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/p")
        daemon.apply(CLAIM)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/a")
        box = read(daemon, "sandbox/a")["status"]
        assert (box["launchType"], box["resources"]["limits"]["memory"]) == ("Warm", "128Mi")
        assert daemon.paddock("exec", "sandbox/a", "--", "sh", "-c", "echo $HOSTNAME $(hostname)").stdout.startswith(
            "p-"
        )
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/p")
        daemon.paddock("delete", "sandbox/a", "sandboxpool/p", "--timeout=60s")
        assert "no " in daemon.paddock("get", "sandboxpools").stderr.lower()
