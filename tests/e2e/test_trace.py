"""A trace id is passed from a request to its engine calls."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemon import RunningDaemon, running, wait_for

pytestmark = pytest.mark.docker
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: box}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
API = "http://paddock/apis/paddock/v1alpha1"


def test_from_the_request_to_the_engine(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket), verify=False), timeout=60) as client:
            parent = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            body = {"documents": [{"file": "box.yaml", "text": SANDBOX}]}
            answer = client.post(f"{API}/apply", json=body, headers=parent)
            assert (answer.status_code, answer.headers["X-Trace-Id"]) == (200, TRACE)
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
            deleted = client.delete(f"{API}/namespaces/default/sandboxes/box").headers["X-Trace-Id"]
        wait_for("the box is gone", lambda: not daemon.get("box"))
        reported = [
            (line["event"], line.get("action", "").split()[0:1], line.get("trace_id")) for line in _lines(daemon)
        ]
    assert ("created", [], TRACE) in reported
    assert {trace for event, _, trace in reported if event == "action done"} == {TRACE, deleted}
    for verb, trace in (("create", TRACE), ("start", TRACE), ("remove", deleted)):
        assert ("action done", [verb], trace) in reported


def _lines(daemon: RunningDaemon) -> list[dict[str, Any]]:
    """Log lines of the daemon that is asked, and of that of the sandbox's host."""
    logs = {id(entry): entry.log for entry in (daemon, daemon.works_at)}
    return [json.loads(line) for log in logs.values() for line in log if line.startswith("{")]
