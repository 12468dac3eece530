"""Runtimes besides runc: crun, chosen after a trial, as runc inside, and missed once it is gone; gVisor."""

import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.engine.docker.client import Client
from controller.engine.observe.runtime_trial import RuntimeTrials, run_trial
from controller.kinds.planning.action import SignalContainer, StartContainer
from controller.kinds.planning.outcome import Waiting
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.runtime_choice import RuntimeChoice
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import differing, facts, hides_processes
from controller.policy.host.host import fitted
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render
from controller.ports import NullMeter
from tests.contract.engine_hosts import SOCKET, TINY, DockerHand, EngineHost, docker_host, read_all
from tests.daemon import docker, running, wait_for
from tests.lab.engine import PrivateEngine, lab_namespaces

pytestmark = [pytest.mark.docker, pytest.mark.skipif(not shutil.which("crun"), reason="needs crun")]
RUNSC = shutil.which("runsc")
UNIFIED = Path("/sys/fs/cgroup/unified")


@contextmanager
def engine_with_crun(*, hybrid: bool = False, wrapper: str = "") -> Iterator[PrivateEngine]:
    """An engine that has crun, or a wrapper of it, on a host that mixes cgroups v1 and v2 or not."""
    folder = Path(tempfile.mkdtemp(prefix="pdk-"))
    namespaces = lab_namespaces()
    if UNIFIED.is_dir() and not hybrid:
        namespaces.run("umount", str(UNIFIED))
    register(folder, "crun")
    if wrapper:
        (folder / "crun").write_text(wrapper.format(folder=folder, crun=shutil.which("crun")))
        (folder / "crun").chmod(0o755)
        settings = {"runtimes": {"crun": {"path": str(folder / "crun")}}}
        (folder / "daemon.json").write_text(json.dumps(settings))
    engine = PrivateEngine(folder, "--config-file", str(folder / "daemon.json"), namespaces=namespaces)
    try:
        engine.start()
        engine.load(TINY)
        yield engine
    finally:
        engine.close()
        namespaces.close()
        shutil.rmtree(folder)


def register(folder: Path, *names: str) -> None:
    """Write the engine's settings with these runtimes beside its own."""
    runtimes: dict[str, Any] = {name: {"path": shutil.which(name)} for name in names}
    if RUNSC:
        runtimes["runsc"] = {"path": RUNSC, "runtimeArgs": ["--platform=ptrace", "--network=none"]}
    (folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))


def choice(host: EngineHost) -> RuntimeChoice | None:
    return host.engine.observe().facts.runtime_choice


def rendered(host: EngineHost, level: str) -> ContainerConfig:
    """Return the config of a sandbox of that level that names no runtime, for this host."""
    spec = SandboxSpec.model_validate({"template": {"image": TINY, "securityLevel": level}})
    assert spec.template is not None
    policy = fitted(Policy(), host.engine.observe().facts)
    return render(spec, spec.template, name="box", uid="a", policy=policy).config


@pytest.fixture(scope="module")
def private_cgroups() -> None:
    if not UNIFIED.is_dir() and not Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("on cgroup v2 the host's own engine has crun")  # systemd gives this one no cgroups


@pytest.fixture(scope="module")
def engine(private_cgroups: None) -> Iterator[PrivateEngine]:
    with engine_with_crun() as private:
        yield private


@contextmanager
def choosing(base_url: str) -> Iterator[EngineHost]:
    with docker_host(base_url, hand=DockerHand(base_url), default_runtime="auto") as created:
        yield created.settled()


@pytest.fixture
def host(engine: PrivateEngine) -> Iterator[EngineHost]:
    with choosing(engine.base_url) as created:
        yield created


@pytest.fixture
def any_host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    """The host's own engine if it has crun, else a private one."""
    if (
        "crun" in docker("info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}")
        and not UNIFIED.is_dir()
    ):
        with choosing(SOCKET) as created:
            yield created
    else:
        yield request.getfixturevalue("host")


@pytest.mark.parametrize("level", ["full-isolation", "production"])
def test_crun_is_chosen_and_confines_as_runc(any_host: EngineHost, level: str) -> None:
    host = any_host
    # A trial that a slow host had no time for is made again after a minute.
    host.until(lambda: (trial := choice(host)) is not None and trial.runtime, 90)
    chosen = choice(host)
    assert chosen is not None
    assert chosen.message == "crun: a sandbox was started with it in a trial"
    assert (chosen.runtime, chosen.reason) == ("crun", "TrialPassed")
    config, uid = rendered(host, level), host.new_uid()
    assert config.host_runtime == "crun"
    fields = ("user", "tmpfs", "seccomp", "sysctls", "shm_bytes", "capabilities", "read_only_root", "host_runtime")
    sandbox = host.running(uid, **{name: getattr(config, name) for name in fields})
    assert (sandbox.runtime, sandbox.limits) == ("crun", host.create(uid).config.limits)
    assert sandbox.inside is not None
    assert differing(facts(config, sandbox.inside)) == ""
    assert read_all(host.streams.exec(sandbox.id, ["echo", "done"]))[0] == b"done\n"


def test_a_lost_runtime_is_noticed_and_not_chosen_again(engine: PrivateEngine, host: EngineHost) -> None:
    uid, other_uid = host.new_uid(), host.new_uid()
    sandbox = host.running(uid, host_runtime="crun")
    stale = host.create(other_uid, host_runtime="crun")
    register(engine.folder)
    try:
        os.kill(engine.pid, signal.SIGHUP)
        host.until(lambda: (now := choice(host)) is not None and now.reason == "NotRegistered")
        assert (host.only(uid).pid, host.only(uid).runtime) == (sandbox.pid, "crun"), "what runs goes on"
        host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test"))
        host.until(lambda: host.state(uid) == "exited")
        failure = host.engine.act(StartContainer(uid, sandbox.name, "a test", sandbox.id))
        assert "crun" in getattr(failure, "message", "")
        outcome = host.engine.act(stale)
        assert isinstance(outcome, Waiting), outcome
        assert outcome.reason == "RuntimeGone"
    finally:
        register(engine.folder, "crun")
        os.kill(engine.pid, signal.SIGHUP)
    host.until(lambda: (now := choice(host)) is not None and now.runtime == "crun")


SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: memory}
spec: {template: {image: "paddock/test-tiny:1", command: [sleep, "1000000"]}}
"""


def test_folders_in_memory_are_secure_where_crun_is_chosen(engine: PrivateEngine, tmp_path: Path) -> None:
    """crun drops nosuid, nodev and noexec of what it binds: such a sandbox gets runc."""
    with running(tmp_path, PADDOCK_DOCKER_HOST=engine.base_url, PADDOCK_DEFAULT_RUNTIME="auto") as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/memory")
        container = daemon.get("memory")["status"]["instanceRef"]["name"]
        assert engine.docker("inspect", "--format", "{{.HostConfig.Runtime}}", container) == "runc"


# Its start waits while the file `hangs` is there, and fails while `fails` is.
UNSTEADY = """#!/bin/sh
case " $* " in *" start "*)
    while [ -e {folder}/hangs ]; do sleep 0.1; done
    [ ! -e {folder}/fails ] || {{ echo not yet >&2; exit 1; }}
esac
exec {crun} "$@"
"""


@pytest.mark.parametrize(("trouble", "message"), [("hangs", "did not end in time"), ("fails", "not yet")])
@pytest.mark.usefixtures("private_cgroups")
def test_a_passing_failure_falls_back_and_is_retried(trouble: str, message: str) -> None:
    with engine_with_crun(wrapper=UNSTEADY) as private:
        cause = private.folder / trouble
        cause.touch()
        client, retried = Client(private.base_url, meter=NullMeter(), timeout_seconds=3), threading.Event()
        trials = RuntimeTrials(client, "auto", retry=retried.set, retry_seconds=2)
        try:
            fallback = trials.with_choice(client.probe()).runtime_choice
            assert fallback is not None
            assert (fallback.runtime, fallback.reason) == ("", "TrialFailed")
            assert message in fallback.message
            cause.unlink()
            assert trials.with_choice(client.probe()).runtime_choice == fallback, "not due yet"
            assert retried.wait(30)
            passed = trials.with_choice(client.probe()).runtime_choice
            assert passed is not None
            assert passed.reason == "TrialPassed", passed
            wait_for("nothing is left", lambda: not private.docker("ps", "-aq"))
        finally:
            trials.close()
            client.close()


@pytest.mark.skipif(not RUNSC, reason="needs runsc")
def test_gvisor_runs_a_sandbox_and_attests_nothing(host: EngineHost) -> None:
    assert "runsc" in host.engine.observe().facts.runtimes
    config = rendered(host, "full-isolation")
    fields = ("user", "tmpfs", "seccomp", "sysctls", "shm_bytes", "capabilities", "read_only_root")
    larger = {"limits": Limits(cpu_millicores=1000, memory_bytes=512 << 20, pids=512)}  # its own kernel counts, too
    chosen = {name: getattr(config, name) for name in fields}
    sandbox = host.running(host.new_uid(), runtime="runsc", **larger, **chosen)
    assert b"Starting gVisor" in read_all(host.streams.exec(sandbox.id, ["dmesg"]))[0]
    assert (sandbox.runtime, hides_processes(sandbox.runtime)) == ("runsc", True)


@pytest.mark.skipif(not UNIFIED.is_dir(), reason="needs a host that mixes cgroups v1 and v2")
def test_a_host_of_mixed_cgroups_keeps_runc() -> None:
    with engine_with_crun(hybrid=True) as private:
        client = Client(private.base_url, meter=NullMeter(), timeout_seconds=60)
        try:
            error = run_trial(client, "crun").error
            choices = [
                RuntimeTrials(client, name).with_choice(client.probe()).runtime_choice for name in ("auto", "crun")
            ]
        finally:
            client.close()
        assert "cgroup" in error, "crun itself refuses"
        assert private.docker("ps", "-aq") == private.docker("images", "-q", "--filter", "dangling=true") == ""
    for is_named, chosen in enumerate(choices):
        assert chosen is not None
        assert (chosen.runtime, chosen.reason, chosen.fell_back) == ("", "TrialFailed", bool(is_named))
        assert "this host has controllers of cgroup v1 and of v2" in chosen.message
