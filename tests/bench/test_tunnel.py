"""Cost of a command in a sandbox of another host, through this one's daemon, over the same command asked there."""

from pathlib import Path

import pytest

from tests.bench.test_exec import ROUNDS, alternately
from tests.raw_client import Paddock
from tests.two_hosts import two_hosts

pytestmark = [pytest.mark.bench, pytest.mark.docker]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: exec}
spec:
  host: b
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def test_exec_through_another_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        two_hosts(tmp_path) as (a, b),
        Paddock(f"unix://{a.socket}") as far,
        Paddock(f"unix://{b.socket}") as near,
    ):
        a.apply(SANDBOX)
        b.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/exec")
        sandboxes = [paddock.sandbox("exec") for paddock in (far, near)]
        through, local = alternately(
            lambda: sandboxes[0].exec(["true"]).exit_code, lambda: sandboxes[1].exec(["true"]).exit_code
        )
        b.paddock("delete", "sandbox", "exec")
    with capsys.disabled():
        print(
            f"\nexec of true, p50 of {ROUNDS}: {through * 1000:.1f} ms through another daemon, {local * 1000:.1f} ms at"
            f" its own; ratio {through / local:.2f}; allowed: 1.15 and 5 ms, {1.15 * local * 1000 + 5:.1f} ms"
        )
