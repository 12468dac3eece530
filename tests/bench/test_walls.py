"""Cost of a sandbox's guards, in the lab of two networks: time to start, to attest, and the memory of proxies."""

import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker as docker_py
import pytest

from controller.engine.docker.create_config import create_body
from controller.engine.docker.seccomp import profile
from controller.engine.kernel.inside import read_inside
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import facts
from controller.policy.levels.levels import Policy
from controller.policy.network.egress import sealed
from controller.policy.sandbox import render
from tests.bench.test_claims import Eyes, eyes_on
from tests.daemon import wait_for
from tests.lab.internet import Lab, impossible, lab

pytestmark = [
    pytest.mark.bench,
    pytest.mark.docker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]
TINY, EGRESS = "paddock/test-tiny:1", "paddock/egress:1"
ROUNDS, READ_OPERATIONS, PROXIES = 10, 200, 40
_ALLOWED_BYTES = (11 << 30) // 10 // 40  # of each proxy, its shim included
TEMPLATE = """\
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: %s}
spec:
  image: "paddock/test-tiny:1"
  command: [sleep, "1000000"]
  securityLevel: %s
  resources: {limits: {memory: 64Mi, cpu: "1", pids: 32}}
"""
HOSTS = ", network: {allowedHosts: [git.example.org]}"


@pytest.fixture(scope="module")
def place() -> Iterator[Lab]:
    with lab(TINY, EGRESS) as created:
        yield created


@pytest.fixture
def engine(place: Lab) -> Iterator[docker_py.DockerClient]:
    client = docker_py.DockerClient(base_url=place.engine.base_url, timeout=60)
    yield client
    client.close()


def bare(engine: docker_py.DockerClient, network: str) -> float:
    """Seconds to create and start one container that is as confined as full-isolation, by docker-py."""
    host = engine.api.create_host_config(
        network_mode=network,
        mem_limit=64 << 20,
        memswap_limit=64 << 20,
        nano_cpus=1_000_000_000,
        pids_limit=32,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        init=True,
        tmpfs={"/tmp": "size=64m", "/workspace": "size=64m"},
    )
    start = time.perf_counter()
    container = engine.api.create_container(TINY, command=["sleep", "1000000"], user="20000:20000", host_config=host)
    engine.api.start(container["Id"])
    took = time.perf_counter() - start
    engine.api.remove_container(container["Id"], force=True)
    return took


def test_a_cold_start_behind_each_wall(
    place: Lab, engine: docker_py.DockerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = place.daemon(place.folder / "state")
    levels = {"isolated": ("full-isolation", "none", 0.03), "sealed": ("development", "bridge", 1.0)}
    try:
        daemon.apply("---\n".join(TEMPLATE % (name, level) for name, (level, *_) in levels.items()))
        with eyes_on(daemon) as eyes, capsys.disabled():
            for name, (level, network, permitted) in levels.items():
                hosts = HOSTS if name == "sealed" else ""
                _start(eyes, name, "first", hosts)  # the guard is tried, and the bridge of all proxies is made
                ours, second = [], []
                for turn in range(ROUNDS):
                    ours.append(_start(eyes, name, str(turn), hosts))
                    second.append(bare(engine, network))
                median, number = statistics.median(ours), statistics.median(second)
                print(
                    f"\n{level}, apply to Ready, p50 of {ROUNDS}: {median * 1000:.0f} ms; bare docker-py ({network}): "
                    f"{number * 1000:.0f} ms; {(median - number) * 1000:+.0f} ms (wanted: {permitted * 1000:+.0f} ms), "
                    f"ratio {median / number:.2f}"
                )
    finally:
        daemon.stop()


def _start(eyes: Eyes, template: str, turn: str, more: str) -> float:
    return eyes.start(f"{template}-{turn}", template, "Never", more)


def test_attestation(engine: docker_py.DockerClient, capsys: pytest.CaptureFixture[str]) -> None:
    spec = SandboxSpec.model_validate({"template": {"image": TINY, "command": ["sleep", "1000000"]}})
    assert spec.template is not None
    config = render(spec, spec.template, name="attested", uid="a", policy=Policy()).config
    sandbox = _run(engine, "attested", create_body(config, {}, TINY, profile(config.seccomp)))
    pid = int(engine.api.inspect_container(sandbox)["State"]["Pid"])
    wait_for("it is the box's own process", lambda: not read_inside(pid, sandbox).unread)
    ours = _median(lambda: facts(config, read_inside(pid, sandbox)))
    median = _median(lambda: engine.api.inspect_container(sandbox))
    engine.api.remove_container(sandbox, force=True)
    with capsys.disabled():
        print(
            f"\nattestation, p50 of {READ_OPERATIONS}: {ours * 1000:.2f} ms (wanted: at most 15 ms); one inspect: "
            f"{median * 1000:.2f} ms; ratio {ours / median:.2f}"
        )


def _median(run: Callable[[], object]) -> float:
    took = []
    for _ in range(READ_OPERATIONS):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def _run(engine: docker_py.DockerClient, name: str, body: dict[str, object]) -> str:
    answer = engine.api.post(engine.api._url("/containers/create"), json=body, params={"name": name})  # type: ignore[attr-defined]
    assert answer.status_code == 201, answer.text
    text = str(answer.json()["Id"])
    engine.api.start(text)
    return text


def test_the_memory_of_proxies(engine: docker_py.DockerClient, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(sealed("abcdef01", ["git.example.org"]).egress, network_mode="bridge")
    body = create_body(config, {}, EGRESS, profile(config.seccomp))
    running = [_run(engine, f"proxy-{number}", body) for number in range(PROXIES)]
    for name in running:
        wait_for("it listens", lambda each=name: b"Accepting" in engine.api.logs(each, stdout=False), 120)
    charged = [_cgroup_bytes(engine, entry) for entry in running]
    shims = [_shim_bytes(entry) for entry in running]
    for text in running:
        engine.api.remove_container(text, force=True)
    mib, total = 1 << 20, sum(charged) + sum(shims)
    proxies, reserved = PROXIES * _ALLOWED_BYTES, PROXIES * config.limits.memory_bytes
    with capsys.disabled():
        print(
            f"\n{PROXIES} egress containers: {sum(charged) / mib:.0f} MiB, their shims {sum(shims) / mib:.0f} MiB, "
            f"together {total / mib:.0f} MiB (wanted: at most {proxies / mib:.0f} MiB), ratio {total / proxies:.2f}; "
            f"reserved by quota: {reserved / mib:.0f} MiB"
        )


def _cgroup_bytes(engine: docker_py.DockerClient, sandbox: str) -> int:
    """Return the bytes its cgroup holds, but for files' pages that the kernel may take back at once."""
    figures = engine.api.stats(sandbox, stream=False, one_shot=True)["memory_stats"]
    inactive = figures["stats"].get("total_inactive_file", figures["stats"].get("inactive_file", 0))
    return int(figures["usage"]) - int(inactive)


def _shim_bytes(sandbox: str) -> int:
    """Its shim's memory; what shims share is divided among them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parts = path.read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in parts[0] and sandbox in parts:
                match = re.search(r"^Pss:\s+(\d+) kB", (path.parent / "smaps_rollup").read_text(), re.MULTILINE)
                assert match is not None
                return int(match[1]) << 10
        except OSError:
            continue
    raise AssertionError(f"no shim of {sandbox}")
