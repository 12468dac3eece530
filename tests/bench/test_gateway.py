"""The model gateway: added time to requests and first bytes, 20 streams, memory, and the return of a killed one."""

import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.daemon import ROOT
from tests.gateway.conftest import KEY, World

pytestmark = [pytest.mark.bench]
_ROUNDS, _STREAMS = 200, 20
_BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x" * 2000}]})


def one(connection: http.client.HTTPConnection, body: str) -> tuple[float, float]:
    """Return the seconds to the first byte of the answer's body, and to its end."""
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    first = answer.read(1)
    at = time.perf_counter() - began
    answer.read()
    assert first
    return at, time.perf_counter() - began


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def streams(world: World) -> list[float]:
    """Run all streams at once; return the seconds that each took."""
    took: list[float] = []

    def follow() -> None:
        began = time.monotonic()
        stream = world.stream("box", "ticking")
        body, ended = stream.rest()
        stream.close()
        assert (body.count(b'"tick"'), ended) == (250, True), (stream.answer.status, body[-400:])
        took.append(time.monotonic() - began)

    threads = [threading.Thread(target=follow) for _ in range(_STREAMS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return took


def test_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    script = [sys.executable, str(ROOT / "tests" / "gateway" / "scripted_model.py"), "0", KEY]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        world = World(int(provider.stdout.readline()))
        world.target("local")
        world.start()
        try:
            world.listen("box", "local")
            lines = _figures(world)
        finally:
            assert world.child is not None
            world.child.stop()
            for each in world.sockets.values():
                each.close()
            provider.kill()
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _figures(world: World) -> list[str]:
    assert world.child is not None
    direct = http.client.HTTPConnection("127.0.0.1", world.provider, timeout=60)
    through = world.connection("box")
    lines = []
    for name, body in (("request", _BODY), ("stream", json.dumps({**json.loads(_BODY), "stream": True}))):
        found = [(one(direct, body), one(through, body)) for _ in range(_ROUNDS)]
        for at, what in ((0, "first byte"), (1, "whole")):
            before = [each[0][at] * 1000 for each in found]
            after = [each[1][at] * 1000 for each in found]
            added = statistics.median(after) - statistics.median(before)
            lines.append(
                f"{name}, {what}: direct p50 {statistics.median(before):.2f} ms, through the gateway "
                f"{statistics.median(after):.2f} ms, added {added:.2f} ms"
            )
    for each in (direct, through):
        each.close()
    began, used = time.monotonic(), processor_seconds(world.child.pid)
    took = streams(world)
    cores = (processor_seconds(world.child.pid) - used) / (time.monotonic() - began)
    lines.append(f"{_STREAMS} streams of 50 parts/s: {cores:.2f} of a core, the longest took {max(took):.2f} s of 5")
    lines.append(f"memory of the process: {resident_mib(world.child.pid):.0f} MiB")
    waiting = world.connection("box")
    began = time.monotonic()
    os.kill(world.child.pid, signal.SIGKILL)
    world.child.stop()
    world.start()
    waiting.request("GET", "/v1/models")
    assert waiting.getresponse().status == 200
    lines.append(f"killed, and answering again: {time.monotonic() - began:.2f} s")
    waiting.close()
    return lines
