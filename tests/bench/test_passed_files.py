"""Files of `controller/` that a request passes: who follows one through the code reads so many."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.profiled import recording
from tests.daemon import running
from tests.raw_client import Paddock

pytestmark = [pytest.mark.bench, pytest.mark.docker]
REQUESTS = 5  # what only some of them pass is the background's
# Threads that work whether there are requests or not, or that a request only wakes.
BACKGROUND = (
    *("reconcile-loop", "worker", "express", "schedule", "APScheduler", "MainThread", "engine-look", "engine-inspect"),
    *(
        "engine-events",
        "engine-guard",
        "engine-secrets",
        "leader-lease",
        "usage-history",
        "hold",
        "snapshots",
        "plugins",
    ),
    *(
        "plugins",
        "workflows",
        "gateway keeper",
        "mcp sweep",
        "mcp installs",
        "watches",
        "paddock-metrics",
        "canary",
        "prober",
    ),
)
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]%s}
  resources: {limits: {memory: 64Mi, cpu: "2"}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


def passed(path: Path, request: Callable[[], object]) -> set[tuple[str, str]]:
    """Return the files and functions that each of several requests passes."""
    calls: list[set[tuple[str, str]]] = []
    for _ in range(REQUESTS):
        recording(path, "begin")
        request()
        recorded = json.loads(recording(path, "end"))
        calls.append({(file, name) for thread, file, name in recorded if not thread.startswith(BACKGROUND)})
    return set.intersection(*calls)


@pytest.mark.timeout(300)
def test_requests_pass_few_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile"
    prefix = (sys.executable, "-m", "tests.bench.profiled", str(path))
    with running(tmp_path / "daemon", prefix=prefix) as daemon, Paddock(f"unix://{daemon.socket}") as paddock:
        daemon.apply(SANDBOX % ("plain", ""))
        daemon.apply(SANDBOX % ("agent", ", agent: {}"))
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=120s", "sandbox/plain", "sandbox/agent")
        requests: dict[str, Callable[[], object]] = {
            "exec by the engine": lambda: paddock.sandbox("plain").exec(["true"]),
            "exec by the agent": lambda: paddock.sandbox("agent").exec(["true"]),
            "GET of a sandbox": lambda: paddock.get("sandboxes", "plain"),
            "list of sandboxes": lambda: paddock.list("sandboxes"),
        }
        for request in requests.values():
            request()
        calls = {name: passed(path, request) for name, request in requests.items()}
    with capsys.disabled():
        for name, functions in calls.items():
            files = {file for file, _ in functions}
            print(f"\n{name}: {len(files)} files, {len(functions)} functions\n  {', '.join(sorted(files))}")
