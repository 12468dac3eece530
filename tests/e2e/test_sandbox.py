"""The main job end to end on a real engine: apply, repair, change, recreate, delete."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, docker, remove_image, running, start_daemon, wait_for

CGROUP_2 = Path("/sys/fs/cgroup/cgroup.controllers")
pytestmark = pytest.mark.docker

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %(name)s, labels: {app: e2e}}
spec:
  template:
    image: paddock/test-tiny:1
    command: %(command)s
  resources: {limits: {cpu: %(cpu)s, memory: %(memory)s, pids: %(pids)s}}
  restartPolicy: %(restart)s
  runState: %(run)s
  lifecycle: {shutdownGracePeriodSeconds: 2}
"""


def sandbox_document(name: str, **said: Any) -> str:
    filled = {"command": '["sleep", "1000000"]', "cpu": "100m", "memory": "64Mi", "pids": 32}
    return SANDBOX % {**filled, "restart": "Always", "run": "Running", "name": name, **said}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


def ready(daemon: RunningDaemon, name: str) -> None:
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=30s", f"sandbox/{name}")


def container(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    """Inspect the sandbox's container by the engine; empty if there is none."""
    observed = daemon.get(name).get("status", {}).get("instanceRef", {}).get("name", "")
    done = subprocess.run(["docker", "inspect", observed], capture_output=True, text=True, check=False)
    inspected: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return inspected[0] if inspected else {}


def named(daemon: RunningDaemon, name: str, what: str = "{{.State}}") -> str:
    """State of the container whose labels say it is this sandbox's, by the engine."""
    own_texts = ("--filter", f"label=paddock.name={name}", "--filter", f"label=paddock.instance={daemon.instance_id()}")
    return docker("ps", "-a", *own_texts, "--format", what)


def cgroup_memory_limit(pid: int) -> int:
    """The memory limit of a process as the kernel has it, found without any of Paddock's code."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
        if not controllers and Path(f"/sys/fs/cgroup{path}/memory.max").exists():
            return int(Path(f"/sys/fs/cgroup{path}/memory.max").read_text())
    raise AssertionError(f"process {pid} is in no memory cgroup")


def test_apply_makes_a_ready_isolated_sandbox(daemon: RunningDaemon) -> None:
    assert daemon.apply(sandbox_document("made")).strip() == "sandbox.paddock/made created"
    ready(daemon, "made")
    reserved = container(daemon, "made")
    assert reserved["State"]["Running"]
    host = reserved["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert reserved["Config"]["User"] == daemon.get("made")["status"]["user"] != "20000:20000"
    assert daemon.apply(sandbox_document("made")).strip() == "sandbox.paddock/made unchanged"
    table = daemon.paddock("get", "sandboxes").stdout.splitlines()
    assert table[0].split()[:3] == ["NAME", "READY", "STATUS"]
    assert ["made", "True", "Running"] in [name.split()[:3] for name in table]


def test_killed_and_removed_containers_are_recreated(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("kept"))
    ready(daemon, "kept")
    first = container(daemon, "kept")
    docker("kill", first["Id"])
    wait_for("it runs again", lambda: container_started(first["Id"]) not in ("", first["State"]["StartedAt"]))
    ready(daemon, "kept")
    docker("rm", "-f", first["Id"])
    wait_for("there is a new one", lambda: named(daemon, "kept") == "running")
    ready(daemon, "kept")
    wait_for("both are counted", lambda: daemon.get("kept")["status"]["restartCount"] == 2)
    reasons = daemon.paddock("events", "sandbox/kept").stdout
    assert "Killed: exit code 137" in reasons
    assert "ContainerMissing" in reasons


def container_started(container_id: str) -> str:
    return docker("inspect", "-f", "{{if .State.Running}}{{.State.StartedAt}}{{end}}", container_id, check=False)


def test_limits_change_in_place_and_are_read_back_from_the_kernel(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("sized"))
    ready(daemon, "sized")
    before = container(daemon, "sized")
    assert daemon.apply(sandbox_document("sized", memory="128Mi", cpu="200m", pids=48)).strip().endswith("configured")
    wait_for(
        "the status shows the new limits",
        lambda: daemon.get("sized")["status"]["resources"]["limits"] == {"cpu": "200m", "memory": "128Mi", "pids": 48},
    )
    after = container(daemon, "sized")
    assert after["Id"] == before["Id"]
    assert after["State"]["Pid"] == before["State"]["Pid"]
    assert cgroup_memory_limit(after["State"]["Pid"]) == 128 << 20
    docker("update", "--memory", "96m", "--memory-swap", "96m", after["Id"])
    wait_for("a change by hand is undone", lambda: cgroup_memory_limit(after["State"]["Pid"]) == 128 << 20)
    wait_for("that is told", lambda: daemon.condition("sized", "Resized")["status"] == "True")


def test_a_new_command_makes_a_new_container_and_says_why(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("renewed"))
    ready(daemon, "renewed")
    before = container(daemon, "renewed")["Id"]
    daemon.apply(sandbox_document("renewed", command='["sleep", "2000000"]'))
    wait_for("the new one runs", lambda: container(daemon, "renewed").get("Id", before) != before)
    ready(daemon, "renewed")
    assert container(daemon, "renewed")["Config"]["Entrypoint"] == ["sleep", "2000000"]
    assert "\n" not in named(daemon, "renewed", "{{.ID}}")
    assert "spec.template.command changed" in daemon.paddock("events", "sandbox/renewed").stdout


def test_delete_takes_the_container_with_it(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("gone"))
    ready(daemon, "gone")
    daemon.paddock("delete", "sandbox", "gone", "--timeout=30s")
    assert named(daemon, "gone") == ""
    assert daemon.get("gone") == {}


def test_foreign_containers_are_not_touched(daemon: RunningDaemon) -> None:
    """Neither a look-alike, nor a container with the labels of another store, nor one that sits on our name."""
    foreign = docker(
        "run", "-d", "--network", "none", "--label", "paddock.instance=somebody-else", "--label", "paddock.name=theirs",
        "paddock/test-tiny:1", "sleep", "1000000",
    )  # fmt: skip
    try:
        daemon.apply(sandbox_document("clash", run="Suspended"))
        uid = daemon.get("clash")["metadata"]["uid"]
        text = f"pdk-clash-{uid.replace('-', '')[:8]}"
        squatter = docker("run", "-d", "--network", "none", "--name", text, "paddock/test-tiny:1", "sleep", "1000000")
        daemon.apply(sandbox_document("clash"))
        wait_for("it says so", lambda: daemon.condition("clash", "Ready").get("reason") == "NameConflict")
        assert text in daemon.condition("clash", "Ready")["message"]
        daemon.paddock("delete", "sandbox", "clash", "--timeout=30s")
        for name in (foreign, squatter):
            assert docker("inspect", "-f", "{{.State.Running}}", name) == "true"
    finally:
        docker("rm", "-f", foreign)
        docker("rm", "-f", text, check=False)


def test_a_copy_of_a_container_is_foreign(daemon: RunningDaemon) -> None:
    """An image by `docker commit` inherits every label; a container of it is foreign."""
    daemon.apply(sandbox_document("original"))
    ready(daemon, "original")
    reserved = container(daemon, "original")["Id"]
    image = f"paddock/test-copy:{reserved[:8]}"
    docker("commit", reserved, image)
    copy = docker("run", "-d", "--network", "none", "--name", f"copy-{reserved[:8]}", image)
    try:
        docker("kill", reserved)
        wait_for("the box is back", lambda: container_started(reserved))
        ready(daemon, "original")
        assert daemon.get("original")["status"]["instanceRef"]["containerID"] == reserved
        daemon.paddock("delete", "sandbox", "original", "--timeout=30s")
        assert docker("inspect", "-f", "{{.State.Running}}", copy) == "true"
    finally:
        docker("rm", "-f", copy)
        remove_image(image)


def test_suspend_pause_and_resume(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("napping"))
    ready(daemon, "napping")
    daemon.apply(sandbox_document("napping", run="Suspended"))
    daemon.paddock("wait", "--for=condition=Suspended", "--timeout=30s", "sandbox/napping")
    assert named(daemon, "napping") == "exited"
    daemon.apply(sandbox_document("napping", run="Paused"))
    wait_for("it is frozen", lambda: named(daemon, "napping") == "paused")
    daemon.apply(sandbox_document("napping"))
    ready(daemon, "napping")
    assert daemon.get("napping")["status"]["restartCount"] == 0


def test_a_short_command_finishes_on_a_busy_host(daemon: RunningDaemon) -> None:
    """Many at a time: then the engine notes most starts after the ends."""
    names = [f"brief-{number}" for number in range(8)]
    daemon.apply("---\n".join(sandbox_document(name, command='["true"]', restart="OnFailure") for name in names))
    daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", *(f"sandbox/{name}" for name in names))
    document = json.loads(daemon.paddock("get", "sandboxes", "-o", "json").stdout)["items"]
    ends = {
        entry["metadata"]["name"]: (entry["status"]["lastTermination"]["reason"], entry["status"]["restartCount"])
        for entry in document
        if entry["metadata"]["name"] in names
    }
    assert ends == dict.fromkeys(names, ("Completed", 0))


def test_a_crashing_sandbox_backs_off(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("dying", command='["false"]'))
    wait_for("it backs off", lambda: daemon.condition("dying", "Ready").get("reason") == "CrashLoopBackOff")
    assert daemon.condition("dying", "Degraded")["status"] == "True"


def test_exec_and_logs(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("talking", command='["sh", "-c", "echo started; exec sleep 1000000"]'))
    ready(daemon, "talking")
    done = daemon.paddock("exec", "talking", "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert (done.stdout, done.stderr.strip(), done.returncode) == ("out\n", "err", 7)
    wait_for("the log line", lambda: daemon.paddock("logs", "talking").stdout == "started\n")


def test_a_restarted_daemon_finishes_interrupted_work(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply("---".join(sandbox_document(f"many-{index}") for index in range(5)))
        own_texts = ("--filter", f"label=paddock.instance={daemon.instance_id()}")
        wait_for("it is at work", lambda: "many-" in docker("ps", "-a", *own_texts))
        daemon.works_at.kill()
        daemon.works_at.start_again()
        for index in range(5):
            ready(daemon, f"many-{index}")
        assert len(docker("ps", "-a", *own_texts, "--format", "{{.Names}}").split()) == 5


def test_a_stopped_daemon_leaves_sandboxes_running(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(sandbox_document("staying"))
        ready(daemon, "staying")
        before = container(daemon, "staying")
        assert daemon.works_at.stop() == 0
        assert named(daemon, "staying") == "running"
        daemon.works_at.start_again()
        ready(daemon, "staying")
        after = container(daemon, "staying")
        assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])


def test_metrics_show_five_figures_per_sandbox(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox_document("seen", command='["sh", "-c", "while :; do :; done"]'))
    ready(daemon, "seen")

    def scrape() -> str:
        with urllib.request.urlopen(daemon.works_at.metrics_url(), timeout=60) as answer:
            return str(answer.read().decode())

    def value(text: str, name: str) -> float:
        line = next((entry for entry in text.splitlines() if entry.startswith(f"{name}{{") and '"seen"' in entry), None)
        return float(line.rsplit(" ", 1)[1]) if line else -1.0

    def seen() -> str:
        text = scrape()
        return text if value(text, "paddock_container_cpu_usage_seconds_total") >= 0 else ""

    first = wait_for("usage is exported", seen)
    assert value(first, "paddock_container_memory_working_set_bytes") > 0
    assert value(first, "paddock_container_pids") >= 1
    # With cgroup v1 recent kernels count disk bytes only while a device has a limit, be it of another test's container;
    # then there is no series, not a 0.
    assert value(first, "paddock_container_fs_reads_bytes_total") >= 0 or not CGROUP_2.exists()
    assert value(first, "paddock_container_spec_memory_limit_bytes") == 64 << 20
    spent = value(first, "paddock_container_cpu_usage_seconds_total")
    wait_for("its CPU time grows", lambda: value(scrape(), "paddock_container_cpu_usage_seconds_total") > spent)
    assert "paddock_reconcile_total" in first
    daemon.paddock("delete", "sandbox", "seen", "--timeout=30s")
    wait_for("its series are gone", lambda: '"seen"' not in scrape())


def test_a_second_daemon_is_refused_by_name(daemon: RunningDaemon, tmp_path: Path) -> None:
    second = start_daemon(daemon.folder, ready=False, PADDOCK_STANDBY="false")
    assert second.process.wait(30) == 1
    wait_for("it says who", lambda: f"pid {daemon.process.pid}" in "".join(second.log))
    other_daemon = start_daemon(tmp_path / "other", ready=False, PADDOCK_SOCKET=str(daemon.socket))
    assert other_daemon.process.wait(30) == 1
    wait_for("it says who", lambda: str(daemon.process.pid) in "".join(other_daemon.log))
    port = daemon.metrics_url().rsplit(":", 1)[1].split("/")[0]
    third = start_daemon(tmp_path / "third", ready=False, PADDOCK_METRICS_PORT=port)
    assert third.process.wait(30) == 1
    wait_for("it says who", lambda: str(daemon.process.pid) in "".join(third.log))
    daemon.paddock("get", "sandboxes")


def test_sigterm_stops_cleanly_with_work_in_flight(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply("---".join(sandbox_document(f"flight-{index}") for index in range(5)))
        daemon.works_at.process.send_signal(signal.SIGTERM)
        assert daemon.works_at.process.wait(30) == 0
        assert not daemon.works_at.socket.exists()
        daemon.works_at.start_again()
        for index in range(5):
            ready(daemon, f"flight-{index}")


def test_a_network_attached_out_of_band_is_removed(daemon: RunningDaemon) -> None:
    """A bridge would connect an isolated sandbox to the Internet, the host and its neighbours."""
    daemon.apply(sandbox_document("sealed"))
    ready(daemon, "sealed")
    reserved = container(daemon, "sealed")["Id"]
    daemon.works_at.process.send_signal(signal.SIGSTOP)  # awake, it is back on `none` before the second command
    docker("network", "disconnect", "none", reserved, check=False)  # one made without networks is on none already
    docker("network", "connect", "bridge", reserved, check=False)
    is_attached = bool(networks(reserved))
    daemon.works_at.process.send_signal(signal.SIGCONT)
    if not is_attached:
        pytest.skip("newer engines attach nothing to a container without a network")
    wait_for("it is on no network", lambda: networks(reserved) in ([], ["none"]))
    wait_for("it says so", lambda: "Disconnected" in daemon.paddock("events", "sandbox/sealed").stdout)
    assert named(daemon, "sealed") == "running"


def networks(container_id: str) -> list[str]:
    listed = json.loads(docker("inspect", "-f", "{{json .NetworkSettings.Networks}}", container_id)) or {}
    return sorted(name for name, network in listed.items() if network["EndpointID"])
