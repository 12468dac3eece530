"""The model gateway: added time to requests and first bytes, 20 streams, memory, and the return of a killed one."""

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon import ROOT, RunningDaemon, running, wait_for
from tests.gateway.conftest import KEY, GatewayProcess

pytestmark = [pytest.mark.bench]
_ROUNDS, _STREAMS, _PASSES = 200, 20, 4
_BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x" * 2000}]})


def one(connection: http.client.HTTPConnection, body: str) -> tuple[float, float]:
    """Return the seconds to the first byte of the answer's body, and to its end."""
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    first = answer.read(1)
    at = time.perf_counter() - start
    answer.read()
    assert first
    return at, time.perf_counter() - start


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def streams(gateway: GatewayProcess) -> list[float]:
    """Run all streams at once; return the seconds that each took."""
    took: list[float] = []

    def follow() -> None:
        start = time.monotonic()
        stream = gateway.stream("box", "ticking")
        body, has_ended = stream.rest()
        stream.close()
        assert (body.count(b'"tick"'), has_ended) == (250, True), (stream.answer.status, body[-400:])
        took.append(time.monotonic() - start)

    threads = [threading.Thread(target=follow) for _ in range(_STREAMS)]
    for thread in threads:
        thread.start()
    for entry in threads:
        entry.join()
    return took


def test_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    script = [sys.executable, str(ROOT / "tests" / "gateway" / "scripted_model.py"), "0", KEY]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        gateway = GatewayProcess(int(provider.stdout.readline()))
        gateway.target("local")
        gateway.start()
        try:
            gateway.listen("box", "local")
            lines = _figures(gateway)
        finally:
            assert gateway.child is not None
            gateway.child.stop()
            for connection in gateway.sockets.values():
                connection.close()
            provider.kill()
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _figures(gateway: GatewayProcess) -> list[str]:
    assert gateway.child is not None
    direct = http.client.HTTPConnection("127.0.0.1", gateway.provider, timeout=60)
    through = gateway.connection("box")
    lines = []
    for name, body in (("request", _BODY), ("stream", json.dumps({**json.loads(_BODY), "stream": True}))):
        observed = [(one(direct, body), one(through, body)) for _ in range(_ROUNDS)]
        for at, what in ((0, "first byte"), (1, "whole")):
            before = [group[0][at] * 1000 for group in observed]
            after = [group[1][at] * 1000 for group in observed]
            median = statistics.median(after) - statistics.median(before)
            lines.append(
                f"{name}, {what}: direct p50 {statistics.median(before):.2f} ms, through the gateway "
                f"{statistics.median(after):.2f} ms, added {median:.2f} ms"
            )
    for http_connection in (direct, through):
        http_connection.close()
    start, usage = time.monotonic(), processor_seconds(gateway.child.pid)
    took = streams(gateway)
    cores = (processor_seconds(gateway.child.pid) - usage) / (time.monotonic() - start)
    lines.append(f"{_STREAMS} streams of 50 parts/s: {cores:.2f} of a core, the longest took {max(took):.2f} s of 5")
    lines.append(f"memory of the process: {resident_mib(gateway.child.pid):.0f} MiB")
    waiting = gateway.connection("box")
    started_at = time.monotonic()
    os.kill(gateway.child.pid, signal.SIGKILL)
    gateway.child.stop()
    gateway.start()
    waiting.request("GET", "/v1/models")
    assert waiting.getresponse().status == 200
    lines.append(f"killed, and answering again: {time.monotonic() - started_at:.2f} s")
    waiting.close()
    return lines


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_reconcile_pass_under_streams(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Compare the mean length of a reconcile pass while 20 streams pass through the gateway with that at rest."""
    script = [sys.executable, str(ROOT / "tests" / "gateway" / "scripted_model.py"), "0", KEY]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        url = f"127.0.0.1:{int(provider.stdout.readline())}"
        settings = {
            "PADDOCK_SECRETS_DIR": str(tmp_path / "secrets"),
            "PADDOCK_PROVIDER_HOSTS": json.dumps([url]),
            "PADDOCK_MODELS_PORT": str(port),
            "PADDOCK_RESYNC_SECONDS": "1",
        }
        with running(tmp_path / "state", **settings) as daemon:
            daemon.paddock("secret", "set", "key", stdin=KEY)
            spec = {"type": "OpenAI", "url": f"http://{url}/v1", "secretRef": {"name": "key"}}
            meta = {"apiVersion": "paddock/v1alpha1", "kind": "Provider", "metadata": {"name": "local"}}
            daemon.apply(json.dumps({**meta, "spec": spec}))
            file = tmp_path / "token"
            daemon.paddock("token", "create", "ci", "--role", "user", "-n", "default", "--out", str(file))
            headers = {"Authorization": f"Bearer {file.read_text().strip()}"}
            rests, ratios = [], []
            for _ in range(3):
                rests.append(mean_pass(daemon, list))
                loaded = mean_pass(daemon, lambda: follow_all(port, headers))
                ratios.append(loaded / rests[-1])
        provider.kill()
    with capsys.disabled():
        print(
            f"\nreconcile pass at rest {statistics.median(rests) * 1000:.2f} ms; with {_STREAMS} streams "
            f"{statistics.median(ratios):.2f} times that ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
        )


def follow_all(port: int, headers: dict[str, str]) -> list[threading.Thread]:
    """Start all streams, through the listener on the host."""
    body = json.dumps({"model": "ticking", "stream": True})

    def follow() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/default/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read().count(b'"tick"')) == (200, 250)
        connection.close()

    threads = [threading.Thread(target=follow) for _ in range(_STREAMS)]
    for thread in threads:
        thread.start()
    return threads


def mean_pass(daemon: RunningDaemon, load: Callable[[], list[threading.Thread]]) -> float:
    """Return the mean seconds of the passes of some resyncs, under that load."""
    threads, before = load(), pass_figures(daemon)
    wait_for("some passes", lambda: pass_figures(daemon)[1] >= before[1] + _PASSES, 60)
    after = pass_figures(daemon)
    for thread in threads:
        thread.join()
    return (after[0] - before[0]) / (after[1] - before[1])


def pass_figures(daemon: RunningDaemon) -> tuple[float, float]:
    """Return the sum of the passes' seconds, and their number."""
    with urllib.request.urlopen(daemon.metrics_url(), timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    total = {
        end: sum(
            float(line.split()[-1]) for line in lines if line.startswith(f"paddock_reconcile_duration_seconds_{end}")
        )
        for end in ("sum", "count")
    }
    return total["sum"], total["count"]
