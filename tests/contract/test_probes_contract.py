"""Probes on the fake and on a real Docker Engine: what an answer of a sandbox comes to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import PauseContainer, RemoveContainer
from controller.kinds.runtime.probe import Probe, ProbeResult, Watch
from tests.contract.engine_worlds import World, docker_world, fake_world, ok


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with (fake_world if request.param == "fake" else docker_world)() as created:
        yield created.settled()


@pytest.fixture
def sandbox(world: World) -> Container:
    return world.running(world.new_uid())


def watch(sandbox: Container, **asked: Any) -> Watch:
    return Watch("readiness", Probe.model_validate(asked), (sandbox.id, sandbox.started_at), sandbox.pid, 0.0)


def command(world: World, sandbox: Container, *words: str, **asked: Any) -> ProbeResult:
    """In its own time, whatever else the machine does, unless a time is asked for."""
    return world.probes.probe(watch(sandbox, exec={"command": words}, **{"timeoutSeconds": 30, **asked}))


def test_a_command_that_ends_with_0_passes(world: World, sandbox: Container) -> None:
    assert command(world, sandbox, "true") == ProbeResult("success")


def test_a_command_that_fails_says_its_code_and_its_words(world: World, sandbox: Container) -> None:
    failed = command(world, sandbox, "sh", "-c", "echo not yet; exit 3")
    assert failed == ProbeResult("failure", "exit code 3: not yet")


def test_a_command_that_is_not_there_fails(world: World, sandbox: Container) -> None:
    failed = command(world, sandbox, "/no/such/command")
    assert failed.outcome == "failure"
    assert failed.message.startswith("exit code 12")


def test_a_command_that_takes_too_long_fails(world: World, sandbox: Container) -> None:
    failed = command(world, sandbox, "sleep", "1000", timeoutSeconds=1)
    assert failed == ProbeResult("failure", "no answer within 1 s; the command was killed")


def test_nobody_at_a_port_is_a_failure(world: World, sandbox: Container) -> None:
    for document in ({"tcpSocket": {"port": 8500}}, {"httpGet": {"port": 8500}}):
        assert world.probes.probe(watch(sandbox, **document)) == ProbeResult("failure", "port 8500: connection refused")


def test_a_command_in_a_frozen_sandbox_is_unknown(world: World, sandbox: Container) -> None:
    ok(world.engine.act(PauseContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
    assert command(world, sandbox, "true").outcome == "unknown"


def test_a_sandbox_that_is_gone_is_unknown(world: World, sandbox: Container) -> None:
    ok(world.engine.act(RemoveContainer(sandbox.uid, sandbox.name, sandbox.id, "a test")))
    for document in ({"tcpSocket": {"port": 1}}, {"exec": {"command": ["true"]}}):
        assert world.probes.probe(watch(sandbox, **document)).outcome == "unknown"


def test_a_container_that_is_not_ours_is_not_probed(world: World, sandbox: Container) -> None:
    foreign = world.hand.add_foreign("somebody-elses-" + world.instance_id)
    answer = command(world, replace(sandbox, id=foreign), "true")
    assert answer.outcome == "unknown"
    assert "never touched" in answer.message
