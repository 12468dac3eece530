"""No secret reaches the daemon's log at any level."""

from pathlib import Path

import pytest

from tests.daemon import running

pytestmark = pytest.mark.docker
CANARY = "canary-3f1d9c"
SANDBOX = f"""
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: box}}
spec:
  template:
    image: "paddock/test-tiny:1"
    command: ["sh", "-c", "sleep 1000000; echo {CANARY}-argument"]
    env: [{{name: TOKEN, value: "{CANARY}-env"}}]
  lifecycle: {{shutdownGracePeriodSeconds: 0}}
"""


def test_no_secret_is_logged(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{CANARY}-token\n")
    with running(tmp_path, PADDOCK_LOG_LEVEL="debug", PADDOCK_METRICS_TOKEN_FILE=str(token)) as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        daemon.paddock("exec", "box", "--", "echo", f"{CANARY}-command")
        daemon.apply(SANDBOX.replace("-env", "-other"))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        log = "".join(daemon.works_at.log)
    assert '"event": "action done"' in log, "it did tell what it did"
    assert CANARY not in log
