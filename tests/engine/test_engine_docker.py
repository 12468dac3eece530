"""Tests that need a real engine: applied config, counted calls, usage under load, stalled readers."""

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from controller.engine.kernel.cgroups import Cgroups, folder_of
from controller.engine.usage.cgroup import CgroupUsage
from controller.kinds.observed.observed import Container
from controller.kinds.observed.usage import Usage
from controller.kinds.planning.action import PullImage, RemoveContainer, SignalContainer, StartContainer, UpdateLimits
from controller.kinds.planning.outcome import Terminal, Transient, Waiting
from controller.kinds.runtime.container import Tmpfs
from controller.policy.attest.attest import differing, facts
from controller.policy.images import ImageRules
from controller.ports import ImageError, StreamError
from tests.contract.engine_hosts import (
    SMALL,
    CountingMeter,
    DockerHand,
    EngineHost,
    docker_host,
    ok,
    read_all,
)
from tests.daemon import remove_image

pytestmark = pytest.mark.docker


@pytest.fixture
def meter() -> CountingMeter:
    return CountingMeter()


@pytest.fixture
def host(meter: CountingMeter) -> Iterator[EngineHost]:
    with docker_host(meter=meter) as created:
        yield created.settled()


@pytest.fixture
def uid(host: EngineHost) -> str:
    return host.new_uid()


def hand(host: EngineHost) -> DockerHand:
    assert isinstance(host.hand, DockerHand)
    return host.hand


def output(host: EngineHost, sandbox: Container, script: str) -> str:
    return read_all(host.streams.exec(sandbox.id, ["sh", "-c", script]))[0].decode().strip()


def holds(condition: Callable[[], object], seconds: float = 15.0) -> None:
    """Wait for something no event tells of."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        pause.wait(0.02)


# The config, as applied


def test_engine_and_kernel_apply_the_config(host: EngineHost, uid: str) -> None:
    sandbox = host.running(
        uid,
        user="10001:10002",
        env=(("GREETING", "hello there"),),
        tmpfs=(Tmpfs("/tmp", 1 << 20), Tmpfs("/work", 2 << 20, noexec=False)),
        working_dir="/work",
        limits=replace(SMALL, cpu_shares=512),
    )
    inspect = hand(host).inspect(sandbox.id)
    host_config: dict[str, Any] = inspect["HostConfig"]
    assert host_config["Init"] is True
    assert host_config["Privileged"] is False
    assert host_config["CapDrop"] == ["ALL"]
    assert not host_config["CapAdd"]
    assert host_config["SecurityOpt"] == ["no-new-privileges:true"]
    assert host_config["ReadonlyRootfs"] is True
    assert host_config["NetworkMode"] == "none"
    assert host_config["RestartPolicy"]["Name"] == "no"
    assert (host_config["IpcMode"], host_config["CgroupnsMode"]) == ("private", "private")
    assert host_config["OomScoreAdj"] == 500
    assert host_config["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "2", "max-size": "10485760"}}
    assert (host_config["Memory"], host_config["MemorySwap"]) == (SMALL.memory_bytes, SMALL.memory_bytes)
    assert (host_config["NanoCpus"], host_config["PidsLimit"], host_config["CpuShares"]) == (500_000_000, 32, 512)
    assert host_config["ShmSize"] == 16 << 20
    assert not host_config["Binds"]
    assert inspect["Config"]["Healthcheck"] == {"Test": ["NONE"]}
    assert inspect["Config"]["Hostname"] == "box"
    assert inspect["Config"]["Cmd"] is None or inspect["Config"]["Cmd"] == []

    status = dict(line.split(":\t", 1) for line in output(host, sandbox, "cat /proc/self/status").splitlines())
    assert status["CapBnd"] == status["CapEff"] == "0" * 16
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Uid"].split()[0] == "10001"
    assert status["Gid"].split()[0] == "10002"
    assert output(host, sandbox, "echo $GREETING; pwd") == "hello there\n/work"
    assert output(host, sandbox, "ulimit -c; ulimit -n") == "0\n16384"
    assert output(host, sandbox, "touch /etc/x 2>/dev/null || echo read-only") == "read-only"
    mounts = output(host, sandbox, "grep -E ' (/tmp|/work) ' /proc/mounts").splitlines()
    assert all("nosuid,nodev" in mount and "uid=10001,gid=10002" in mount for mount in mounts)
    assert ["noexec" in mount for mount in sorted(mounts)] == [True, False]
    assert output(host, sandbox, "touch /tmp/x /work/x && echo writable") == "writable"
    assert "nameserver 127.0.0.1" in output(host, sandbox, "cat /etc/resolv.conf")


def test_kernel_files_of_the_host_are_masked(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    for path in ("/proc/cmdline", "/proc/config.gz", "/sys/kernel/notes", "/proc/kcore", "/proc/keys"):
        assert output(host, sandbox, f"cat {path} 2>/dev/null | wc -c") == "0", path
    masked = hand(host).inspect(sandbox.id)["HostConfig"]["MaskedPaths"]
    process = subprocess.run(["docker", "create", "paddock/test-tiny:1"], check=True, capture_output=True, text=True)
    try:
        plain = hand(host).inspect(process.stdout.strip())["HostConfig"]["MaskedPaths"]
        assert set(plain) <= set(masked), "what the engine masks by itself"
    finally:
        subprocess.run(["docker", "rm", process.stdout.strip()], check=True, capture_output=True)
    config = replace(host.create(uid).config, name=sandbox.name)
    container = host.only(uid)
    assert container.inside is not None
    assert differing(fact for fact in facts(config, container.inside)) == ""


def test_a_command_leaves_nothing_of_the_images_own(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo $0 $1; sleep 1000"))
    assert hand(host).inspect(sandbox.id)["Config"]["Entrypoint"][:2] == ["sh", "-c"]
    assert hand(host).inspect(sandbox.id)["Path"] == "sh"


def test_args_follow_the_images_entrypoint(host: EngineHost, uid: str) -> None:
    image = f"paddock/test-entrypoint-{uid[:8]}"
    recipe = b'FROM paddock/test-tiny:1\nENTRYPOINT ["sh", "-c", "exit $(($1 + $2))", "entry"]\nCMD ["1", "1"]\n'
    subprocess.run(["docker", "build", "-q", "-t", image, "-"], input=recipe, check=True, capture_output=True)
    try:
        sandbox = host.running(uid, image=image, command=None, args=("40", "2"))
        host.until(lambda: host.state(uid) == "exited")
        assert host.only(uid).exit_code == 42
        host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test"))
    finally:
        remove_image(image)


def test_a_start_that_fails_says_why(host: EngineHost, uid: str) -> None:
    sandbox = host.made(uid, user="nobody-there")
    outcome = host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "StartFailed"
    assert "nobody-there" in outcome.message


def pulled(image: str, **options: Any) -> Transient:
    """Return the outcome of a pull that fails."""
    with docker_host(**options) as host:
        outcome = host.settled().engine.act(PullImage(image, "a test"))
    assert isinstance(outcome, Transient)
    assert outcome.reason == "ImagePullFailed"
    return outcome


def test_a_failed_pull_says_what_to_do() -> None:
    outcome = pulled("127.0.0.1:1/paddock/nowhere:1", images=ImageRules(local_registries=("127.0.0.1:1",)))
    assert "`paddock image pull 127.0.0.1:1/paddock/nowhere:1`" in outcome.message
    assert "the registry refused the connection" in outcome.message


PUBLIC = "93.184.216.34"


def failure(registry: str, *addresses: str, **options: Any) -> str:
    """Return the message of a pull that fails, without the registry's name; it resolves to these addresses."""
    resolve = {"resolve": lambda *_: addresses} if addresses else {}
    return pulled(f"{registry}/x:1", **resolve, **options).message.replace(registry, "REGISTRY")


def test_a_registry_inside_is_not_asked() -> None:
    observed: list[str] = []
    with answering(403, b"", observed) as port:
        registry = f"{socket.gethostname().lower()}:{port}"
        inside = ("127.0.0.1", "10.0.0.7", "169.254.169.254", "100.64.0.1", "fd00::1")
        messages = {failure(registry, PUBLIC, address) for address in inside}
        assert observed == [], "the engine was not sent there"
        messages.add(failure(registry, PUBLIC))
        assert observed, "the engine was sent to a public address"
        assert len(messages) == 1, messages
        assert "local_registries" in messages.pop()
        observed.clear()
        failure(registry, "127.0.0.1", images=ImageRules(local_registries=(registry,)))
        assert observed, "the operator listed it"


def test_open_closed_and_refusing_registries_look_alike() -> None:
    name, messages = socket.gethostname().lower(), set()
    for status in (200, 401, 403, 404, 500):
        with answering(status, b"{}", []) as port:
            messages.add(failure(f"{name}:{port}", PUBLIC))
    messages |= {failure(f"{name}:1", PUBLIC), failure("nowhere.invalid:2"), failure(f"{name}:1", "127.0.0.1")}
    assert len(messages) == 1, messages


def test_operators_are_told_what_a_registry_answered() -> None:
    with docker_host(resolve=lambda *_: ["10.0.0.7"]) as host, pytest.raises(ImageError) as refusal:
        host.images.pull("registry.example.org/x:1", seconds=60)
    assert "10.0.0.7" not in str(refusal.value)
    assert "10.0.0.7" in refusal.value.detail


@pytest.mark.parametrize("status", [200, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("as_error", [True, False])
def test_what_a_registry_answers_is_never_told(status: int, as_error: bool) -> None:
    """It may be any server of the host's, and the image's name of anybody's choice."""
    secret = b"body-4711-of-a-private-service"
    body = (
        b'{"errors": [{"code": "DENIED", "message": "%s", "detail": "%s"}]}' % (secret, secret) if as_error else secret
    )
    with answering(status, body, []) as port:
        listed = ImageRules(local_registries=(f"127.0.0.1:{port}",))
        outcome = pulled(f"127.0.0.1:{port}/x:1", images=listed)
    assert secret.decode() not in outcome.message
    assert "the registry" in outcome.message


@contextmanager
def answering(status: int, body: bytes, seen: list[str]) -> Iterator[int]:
    """A server on this host that answers so to everything; its port. `seen` gets who connected."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        def verify_request(self, _request: Any, client_address: Any) -> bool:
            seen.append(str(client_address[0]))
            return True

    server = Server(("", 0), Door)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_an_uncovered_image_volume_is_refused(host: EngineHost, uid: str) -> None:
    """It would be writable, and unlimited, under a read-only root."""
    image = f"paddock/test-volume-{uid[:8]}"
    recipe = b"FROM paddock/test-tiny:1\nVOLUME /data /more\n"
    subprocess.run(["docker", "build", "-q", "-t", image, "-"], input=recipe, check=True, capture_output=True)
    try:
        outcome = host.engine.act(host.create(uid, image=image, tmpfs=(Tmpfs("/data", 1 << 20),)))
        assert isinstance(outcome, Transient)
        assert outcome.reason == "ImageRefused"
        assert "`volumeClaimTemplates: [{name: image-data, mountPath: /more, size: 1Gi}]`" in outcome.message
        assert host.engine.observe().containers == {}
        covered = host.running(uid, image=image, tmpfs=(Tmpfs("/data", 1 << 20), Tmpfs("/more", 1 << 20)))
        mounts = output(host, covered, "grep -E ' (/data|/more) ' /proc/mounts").splitlines()
        assert [mount.split()[2] for mount in mounts] == ["tmpfs", "tmpfs"]
        mounts_of_ours = {mount["Destination"] for mount in hand(host).inspect(covered.id)["Mounts"]}
        assert mounts_of_ours <= {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}, "no volume of the image's"
        host.engine.act(RemoveContainer(uid, covered.name, covered.id, "a test"))
    finally:
        remove_image(image)


@pytest.mark.parametrize(
    ("tricks", "words", "own"),
    [
        ("WORKDIR /proc/self/fd/8", "has the WORKDIR /proc/self/fd/8", {"working_dir": "/"}),
        ('ENTRYPOINT ["{}"]'.format("a" * 4097), "has 4097 bytes, more than the maximum of 4096", {}),
    ],
)
def test_bad_workdir_or_entrypoint_of_an_image_is_refused(
    host: EngineHost, uid: str, tricks: str, words: str, own: dict[str, str]
) -> None:
    image = f"paddock/test-workdir-{uid[:8]}"
    recipe = f"FROM paddock/test-tiny:1\n{tricks}\n".encode()
    subprocess.run(["docker", "build", "-q", "-t", image, "-"], input=recipe, check=True, capture_output=True)
    try:
        bare = host.create(uid, image=image, command=("sleep", "1000") if own else None)
        outcome = host.engine.act(bare)
        assert isinstance(outcome, Terminal)
        assert (outcome.reason, words in outcome.message) == ("ImageRefused", True), outcome.message
        assert host.engine.observe().containers == {}
        sandbox = host.running(uid, image=image, command=("sleep", "1000"), **own)
        host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test"))
    finally:
        remove_image(image)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH", "GLIBC_TUNABLES"])
def test_image_labels_and_loader_variables_are_neutralised(host: EngineHost, uid: str, name: str) -> None:
    image = f"paddock/test-tricks-{uid[:8]}"
    labels = "paddock.uid=other paddock.role=egress paddock.more=1 paddock.dev/recipe=2"
    tricks = f"LABEL {labels}\nENV {name}=/x.so LD_ORIGIN_PATH=\n"
    recipe = f"FROM paddock/test-tiny:1\n{tricks}".encode()
    subprocess.run(["docker", "build", "-q", "-t", image, "-"], input=recipe, check=True, capture_output=True)
    try:
        outcome = host.engine.act(host.create(uid, image=image))
        assert isinstance(outcome, Transient)
        assert (outcome.reason, f"sets {name}," in outcome.message) == ("ImageRefused", True)
        sandbox = host.running(uid, image=image, env=((name, ""),))
        labels = hand(host).inspect(sandbox.id)["Config"]["Labels"]
        assert (labels["paddock.uid"], labels["paddock.role"], labels["paddock.more"]) == (uid, "sandbox", "")
        assert output(host, sandbox, f"echo =${name}=") == "=="
        host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test"))
    finally:
        remove_image(image)


# Looking


def test_a_settled_observation_is_one_list_call(host: EngineHost, meter: CountingMeter) -> None:
    sandboxes = [host.running(host.new_uid()) for _ in range(4)]
    host.engine.observe_now(full=True)
    before = meter.own_calls()
    now = host.engine.observe_now()
    assert meter.own_calls_since(before) == {"containers.list": 1, "networks.list": 1}
    assert set(now.containers) == {sandbox.uid for sandbox in sandboxes}


def test_a_full_look_inspects_all(host: EngineHost, meter: CountingMeter) -> None:
    for _ in range(3):
        host.made(host.new_uid())
    before, all_before = meter.own_calls(), meter.calls()
    host.engine.observe_now(full=True)
    assert meter.own_calls_since(before) == {"containers.list": 1, "networks.list": 1}
    assert meter.calls_since(all_before)["containers.inspect"] >= 3  # side by side, in threads of their own


def test_cgroup_drift_is_observed_without_inspect(host: EngineHost, uid: str, meter: CountingMeter) -> None:
    sandbox = host.running(uid)
    folders = Cgroups().folders(Path(f"/proc/{sandbox.pid}/cgroup").read_text(), sandbox.id)
    limit = Path(folder_of(folders, "pids").path, "pids.max")
    host.engine.observe_now()
    before = meter.own_calls()
    limit.write_text("17")
    host.engine.observe_now()
    assert host.only(uid).limits == replace(SMALL, pids=17)
    assert meter.own_calls_since(before) == {"containers.list": 1, "networks.list": 1}


def test_an_out_of_band_disconnect_is_observed(host: EngineHost, uid: str, meter: CountingMeter) -> None:
    sandbox, running = host.running(uid, network_mode="bridge"), host.running(host.new_uid())
    before = meter.calls()
    hand(host).api.disconnect_container_from_network(sandbox.id, "bridge")
    holds(lambda: host.only(uid).networks == ())
    assert host.only(running.uid) == running
    assert "containers.list" not in meter.calls_since(before)


def test_an_action_costs_one_call_and_one_inspect(host: EngineHost, uid: str, meter: CountingMeter) -> None:
    host.made(uid)
    before = meter.own_calls()
    sandbox = host.running(uid)
    host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test"))
    host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test"))
    calls = meter.own_calls_since(before)
    assert {entry: calls[entry] for entry in ("containers.start", "containers.kill", "containers.remove")} == {
        "containers.start": 1,
        "containers.kill": 1,
        "containers.remove": 1,
    }
    assert calls["containers.inspect"] <= 3


def test_a_container_in_creation_is_never_gone(host: EngineHost) -> None:
    """The engine lists a container before it lets it be inspected (404)."""
    stop = threading.Event()

    def observe_now() -> None:
        while not stop.is_set():
            host.engine.observe_now(full=True)

    looking = [threading.Thread(target=observe_now) for _ in range(2)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(25):  # with ten it may not happen
            uid = host.new_uid()
            action = host.create(uid)
            name = ok(host.engine.act(action))
            assert host.only(uid).id == name
            ok(host.engine.act(RemoveContainer(uid, action.config.name, name, "a test")))
            assert host.view(uid) == ()
    finally:
        stop.set()
        for entry in looking:
            entry.join()


def test_events_are_counted(host: EngineHost, uid: str, meter: CountingMeter) -> None:
    sandbox = host.running(uid)
    host.hand.kill(sandbox.name)
    holds(lambda: meter.counts.get(("paddock_docker_events_total", "die")))
    assert meter.counts["paddock_docker_events_total", "start"] == 1
    assert meter.gauges["paddock_docker_event_stream_connected"] == 1


# Limits under use


def test_memory_in_use_is_not_taken_away(host: EngineHost, uid: str) -> None:
    fill = "head -c 20000000 /dev/zero > /tmp/x; echo filled; sleep 1000"
    sandbox = host.running(
        uid,
        command=("sh", "-c", fill),
        tmpfs=(Tmpfs("/tmp", 24 << 20),),
        limits=replace(SMALL, memory_bytes=64 << 20),
    )
    holds(lambda: read_all(host.streams.logs(sandbox.id))[0] == b"filled\n")
    outcome = host.engine.act(
        UpdateLimits(uid, sandbox.name, sandbox.id, replace(SMALL, memory_bytes=8 << 20), "a test")
    )
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "MemoryInUse"
    assert "8Mi" in outcome.message
    assert host.only(uid).limits == replace(SMALL, memory_bytes=64 << 20)
    ok(host.engine.act(UpdateLimits(uid, sandbox.name, sandbox.id, replace(SMALL, memory_bytes=40 << 20), "a test")))
    assert host.state(uid) == "running"


# Usage


def usage(sandbox: Container) -> Usage:
    reader = CgroupUsage()
    try:
        return reader.read([sandbox])[sandbox.id]
    finally:
        reader.close()


def test_cpu_and_throttling_move_with_load(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "while :; do :; done"), limits=replace(SMALL, cpu_millicores=200))
    before = usage(sandbox)
    holds(lambda: usage(sandbox).cpu_usage_seconds > before.cpu_usage_seconds + 0.2)
    after = usage(sandbox)
    assert after.cpu_periods is not None
    assert before.cpu_periods is not None
    assert after.cpu_periods > before.cpu_periods
    holds(lambda: (usage(sandbox).cpu_throttled_seconds or 0) > 0)
    assert after.cpu_limit_cores == 0.2


def test_memory_and_pids_move_with_load(host: EngineHost, uid: str) -> None:
    script = "sleep 1000 & sleep 1000 & head -c 8000000 /dev/zero > /tmp/x; echo filled; sleep 1000"
    sandbox = host.running(uid, command=("sh", "-c", script), tmpfs=(Tmpfs("/tmp", 16 << 20),))
    holds(lambda: read_all(host.streams.logs(sandbox.id))[0] == b"filled\n")
    observed = usage(sandbox)
    assert observed.memory_working_set_bytes > 8_000_000
    assert observed.memory_cache_bytes >= 7_900_000
    assert observed.pids >= 4


def test_figures_agree_with_the_engines_own(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "head -c 4000000 /dev/zero > /tmp/x; echo filled; sleep 1000"),
                        tmpfs=(Tmpfs("/tmp", 16 << 20),))  # fmt: skip
    holds(lambda: read_all(host.streams.logs(sandbox.id))[0] == b"filled\n")

    def agree() -> bool:
        """Compare both sources; they are read one after the other, so the sandbox must be idle."""
        ours, stats = usage(sandbox), hand(host).api.stats(sandbox.id, stream=False, one_shot=True)
        cpu_seconds = stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
        return (
            ours.memory_usage_bytes == pytest.approx(stats["memory_stats"]["usage"], rel=0.1)
            and ours.memory_limit_bytes == stats["memory_stats"]["limit"]
            and ours.pids == stats["pids_stats"]["current"]
            and ours.cpu_usage_seconds == pytest.approx(cpu_seconds, abs=0.1)
            and CgroupUsage().cpu_seconds([sandbox])[sandbox.id] == pytest.approx(cpu_seconds, abs=0.1)
        )

    holds(agree)


def test_network_figures_of_a_box_that_has_one(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, network_mode="bridge")
    assert sandbox.networks == ("bridge",)
    eth0 = hand(host).api.stats(sandbox.id, stream=False, one_shot=True)["networks"]["eth0"]
    network = usage(sandbox).network
    assert network is not None
    assert network.receive_bytes >= eth0["rx_bytes"] >= 0


def held_files() -> int:
    """Cgroup files and folders that this process has open."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(os.path.realpath(link).startswith("/sys/fs/cgroup/") for link in links)


def test_a_container_killed_between_readings_is_omitted(host: EngineHost, uid: str) -> None:
    """Also by a reader that holds its files, and those of the next run are its own: no figure of the run before."""
    script = "head -c 8000000 /dev/zero > /tmp/x; sleep 1000"
    sandbox = host.running(uid, command=("sh", "-c", script), tmpfs=(Tmpfs("/tmp", 16 << 20),))
    reader = CgroupUsage()
    holds(lambda: reader.read([sandbox])[sandbox.id].memory_usage_bytes > 8_000_000)
    files = held_files()
    assert files > 10
    host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test"))
    holds(lambda: reader.read([sandbox]) == {})
    assert reader.cpu_seconds([sandbox]) == {}
    assert held_files() == 0
    holds(lambda: host.state(uid) == "exited")
    ok(host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id)))
    again = host.only(uid)
    assert again.started_at > sandbox.started_at
    holds(lambda: reader.read([again])[sandbox.id].memory_usage_bytes > 8_000_000)
    assert held_files() == files
    reader.close()
    assert held_files() == 0


# Streams


def stream_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "engine-stream"]


def test_closing_frees_the_connection(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo begun; sleep 1000"))
    holds(lambda: not stream_threads())
    opened = [
        host.streams.logs(sandbox.id, follow=True),
        host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"]),
    ]
    assert [next(chunk_stream).data for chunk_stream in opened] == [b"begun\n", b"begun\n"]
    assert len(stream_threads()) == 2
    for entry in opened:
        entry.close()
    holds(lambda: not stream_threads())


def test_dropping_a_stream_frees_it_too(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    holds(lambda: not stream_threads())
    next(host.streams.exec(sandbox.id, ["sh", "-c", "echo begun; sleep 1000"]))
    holds(lambda: not stream_threads())


def test_closing_a_stream_unblocks_its_reader(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    stream = host.streams.logs(sandbox.id, follow=True)
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(list(stream)))
    waiting.start()
    stream.close()
    waiting.join(60)
    assert got == [[]]


@pytest.mark.parametrize("end", ["KILL", "remove"])
def test_a_stalled_reader_blocks_neither_kill_nor_remove(host: EngineHost, uid: str, end: str) -> None:
    sandbox = host.running(uid)
    stream = host.streams.exec(sandbox.id, ["sh", "-c", "while :; do echo a line that nobody reads; done"])
    holds(lambda: stream.queue.full)  # type: ignore[attr-defined]
    start = time.monotonic()
    kill = SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")
    ok(host.engine.act(kill if end == "KILL" else RemoveContainer(uid, sandbox.name, sandbox.id, "a test")))
    assert time.monotonic() - start < 20, "a stall is given up after 30 s"
    with pytest.raises(StreamError, match="not read"):
        list(stream)


def test_logs_follow_to_the_end_of_the_container(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid, command=("sh", "-c", "echo begun; sleep 1000"))
    with contextlib.closing(host.streams.logs(sandbox.id, follow=True)) as stream:
        assert next(stream).data == b"begun\n"
        host.hand.kill(sandbox.name)
        assert list(stream) == []


def test_no_process_of_the_tests_is_left(host: EngineHost, uid: str) -> None:
    sandbox = host.running(uid)
    host.engine.act(RemoveContainer(uid, sandbox.name, sandbox.id, "a test"))
    remaining = subprocess.run(["pgrep", "-f", sandbox.id], capture_output=True, text=True, check=False).stdout
    assert remaining == ""
