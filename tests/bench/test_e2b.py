"""Overhead of E2B's protocol against the SDK: a small file, and a command by the same login shell, in the same run."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from controller.e2b.frames import frame
from paddock import Paddock
from tests.daemon import running

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(600)]
ROUNDS, MOST = 60, 1.5
LOGIN = ["/bin/bash", "-l", "-c", "true"]


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each call; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start_time = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start_time)
    return {name: statistics.median(values) for name, values in seconds.items()}


def test_overhead_against_the_sdk(tmp_path: Path) -> None:
    with running(tmp_path / "state", PADDOCK_E2B_ADDRESS="127.0.0.1:0", PADDOCK_REQUESTS_PER_SECOND="0") as daemon:
        daemon.environment["XDG_CONFIG_HOME"] = str(tmp_path)
        variables = json.loads(daemon.paddock("e2b", "env", "-o", "json").stdout)
        with (
            httpx.Client(base_url=variables["E2B_API_URL"], timeout=60) as http,
            Paddock(f"unix://{daemon.socket}") as paddock,
        ):
            key = {"X-API-KEY": variables["E2B_API_KEY"]}
            e2b_sandbox = http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 600}, headers=key).json()
            token = {"E2b-Sandbox-Id": e2b_sandbox["sandboxID"], "X-Access-Token": e2b_sandbox["envdAccessToken"]}
            stream = {**token, "content-type": "application/connect+json"}
            body = frame({"process": {"cmd": LOGIN[0], "args": LOGIN[1:]}, "stdin": False})
            plain, path = {**token, "content-type": "application/octet-stream"}, {"path": "/home/user/file"}
            sandbox = paddock.sandboxes.get(e2b_sandbox["sandboxID"])
            figures = medians(
                {
                    "run, SDK": lambda: sandbox.exec(LOGIN),
                    "run, E2B": lambda: http.post("/process.Process/Start", content=body, headers=stream).content,
                    "write, SDK": lambda: sandbox.files.write("/home/user/file", b"x"),
                    "write, E2B": lambda: http.post("/files", params=path, content=b"x", headers=plain).content,
                    "read, SDK": lambda: sandbox.files.read("/home/user/file"),
                    "read, E2B": lambda: http.get("/files", params=path, headers=token).content,
                }
            )
    for name in ("run", "write", "read"):
        ratio = figures[f"{name}, E2B"] / figures[f"{name}, SDK"]
        sdk, e2b = (figures[f"{name}, {way}"] * 1000 for way in ("SDK", "E2B"))
        print(f"{name}: {e2b:.1f} ms by E2B's protocol, {sdk:.1f} ms by the SDK: {ratio:.2f}")
        assert ratio <= MOST, (name, figures)
