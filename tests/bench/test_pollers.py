"""40 cold sandboxes while ten clients poll the list, against bare docker-py; and how long a reconcile pass takes then.

Two baselines: docker-py alone, and docker-py beside the same clients polling the same daemon. The first shows what ten
clients take from the machine, too; the second only what reads cost the reconcile loop.
On SQLite, and on PostgreSQL where the tests have one.
"""

import json
import re
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker as docker_py
import pytest

from tests.bench.test_cold import bare, kept
from tests.contract.store_backends import BACKENDS
from tests.daemon import ROOT, RunningDaemon, running
from tests.postgres import store_settings

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
CLIENTS, EVERY_SECONDS, ROUNDS = 10, 0.02, 5
WANTED = 1.10
# A process of its own, so that the clients' work is not this one's. Each asks again 20 ms after it has asked, or as
# soon as it is answered if that takes longer.
POLLERS = """
import http.client, json, socket, sys, threading, time

path, clients, every = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
took, refused, ending = [], [], threading.Event()


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)


def poll():
    connection = Connection("paddock")
    while not ending.is_set():
        begun = time.perf_counter()
        connection.request("GET", "/apis/paddock/v1alpha1/namespaces/default/sandboxes")
        answer = connection.getresponse()
        answer.read()
        (took if answer.status == 200 else refused).append(time.perf_counter() - begun)
        ending.wait(max(0.0, begun + every - time.perf_counter()))


threads = [threading.Thread(target=poll) for _ in range(clients)]
for each in threads:
    each.start()
sys.stdin.read()
ending.set()
for each in threads:
    each.join()
print(json.dumps({"took": took, "refused": len(refused)}))
"""


@contextmanager
def polling(daemon: RunningDaemon, clients: int) -> Iterator[dict[str, float]]:
    """So many clients poll meanwhile. Filled at the end: answers, refusals, and milliseconds of an answer."""
    document: dict[str, float] = {}
    if not clients:
        yield document
        return
    command = [sys.executable, "-c", POLLERS, str(daemon.socket), str(clients), str(EVERY_SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield document
        answer = json.loads(process.communicate(timeout=60)[0])
    document |= {"answers": len(answer["took"]), "refused": answer["refused"]}
    document["p50"] = statistics.median(answer["took"]) * 1000


def passes(daemon: RunningDaemon) -> tuple[float, float]:
    """Seconds of all reconcile passes so far, and their number."""
    with urllib.request.urlopen(daemon.metrics_url(), timeout=60) as answer:
        text = answer.read().decode()

    def figure(part: str) -> float:
        pattern = rf'^paddock_reconcile_duration_seconds_{part}{{controller="sandbox"}} (\S+)$'
        match = re.search(pattern, text, re.MULTILINE)
        return float(match[1]) if match else 0.0

    return figure("sum"), figure("count")


@pytest.mark.parametrize("backend", BACKENDS)
def test_cold_starts_beside_ten_pollers(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = docker_py.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    alone, beside = "bare alone", "bare beside as many pollers"
    ratios: dict[tuple[int, str], list[float]] = {(0, alone): [], (CLIENTS, alone): [], (CLIENTS, beside): []}
    try:
        with store_settings(backend) as settings, running(tmp_path, **settings) as daemon:
            kept(daemon)  # the first start of all is another figure
            for _ in range(ROUNDS):
                baselines = {alone: bare(client)}
                with polling(daemon, CLIENTS):
                    baselines[beside] = bare(client)
                for clients in (0, CLIENTS):
                    before = passes(daemon)
                    with polling(daemon, clients) as polled:
                        ours = kept(daemon)
                    seconds, count = (now - later for now, later in zip(passes(daemon), before, strict=True))
                    with capsys.disabled():
                        output = ", ".join(f"{name} {value:.0f}" for name, value in polled.items())
                        print(
                            f"\n{backend}, {clients} pollers: {ours:.2f} s (bare {baselines[alone]:.2f} s, beside as"
                            f" many pollers {baselines[beside]:.2f} s); a pass {seconds / max(count, 1) * 1000:.1f} ms"
                            f" on average, {count:.0f} of them; {output}"
                        )
                    for (number, name), ratio in ratios.items():
                        if number == clients:
                            ratio.append(ours / baselines[name])
    finally:
        client.close()
    with capsys.disabled():
        for (clients, name), observed in ratios.items():
            print(
                f"{backend}, {clients} pollers: median ratio to {name} {statistics.median(observed):.2f}"
                f" (wanted: at most {WANTED})"
            )
