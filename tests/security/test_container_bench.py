"""Section 5 of the CIS Docker Benchmark (as docker-bench-security asks it), of a container of every level, by inspect.

What a level leaves open by intent is in the table below; all else has to pass, on the real engine's own answer. What
the benchmark asks of running processes (sshd, exec) is asked by the probes in the lab.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.sandbox import SandboxSpec
from controller.policy.host.host import fitted
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.sandbox import render
from tests.contract.engine_hosts import TINY, DockerHand, docker_host

pytestmark = pytest.mark.docker

# Restarts and health are Paddock's own (back-off, probes); Docker's policy and health check stay off at every level.
ALWAYS = {"5.15", "5.27"}
WRITABLE_ROOT = {"5.13"}
LEFT_OPEN = {
    "full-isolation": ALWAYS,
    "development": ALWAYS | WRITABLE_ROOT | {"5.4"},
    "build": ALWAYS | WRITABLE_ROOT | {"5.4"},
    "production": ALWAYS | WRITABLE_ROOT | {"5.4"},
}
SENSITIVE = ("/", "/boot", "/dev", "/etc", "/lib", "/proc", "/sys", "/usr", "/var/run/docker.sock")
Host = Mapping[str, Any]


def _sources(found: Host) -> list[str]:
    return [bind.split(":")[0] for bind in found.get("Binds") or ()] + [
        str(mount.get("Source")) for mount in found.get("Mounts") or () if mount.get("Type") == "bind"
    ]


def _options(found: Host) -> list[str]:
    return list(found.get("SecurityOpt") or ())


CHECKS: dict[str, Callable[[Host], bool]] = {
    "5.4": lambda found: not found["CapAdd"] and found["CapDrop"] == ["ALL"],
    "5.5": lambda found: not found["Privileged"],
    "5.6": lambda found: not set(_sources(found)) & set(SENSITIVE),
    "5.8": lambda found: not found["PortBindings"] and not found["PublishAllPorts"],
    "5.10": lambda found: found["NetworkMode"] != "host",
    "5.11": lambda found: found["Memory"] > 0,
    "5.12": lambda found: found["CpuShares"] > 0 or found["NanoCpus"] > 0,
    "5.13": lambda found: bool(found["ReadonlyRootfs"]),
    "5.15": lambda found: found["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 5},
    "5.16": lambda found: found["PidMode"] != "host",
    "5.17": lambda found: found["IpcMode"] == "private",
    "5.18": lambda found: not found["Devices"],
    "5.20": lambda found: "shared" not in str(found.get("Binds")) + str(found.get("Mounts")),
    "5.21": lambda found: found["UTSMode"] != "host",
    "5.22": lambda found: any(option.startswith("seccomp={") for option in _options(found)),
    "5.26": lambda found: "no-new-privileges:true" in _options(found),
    "5.29": lambda found: (found["PidsLimit"] or 0) > 0,
    "5.30": lambda found: found["NetworkMode"] not in ("default", "bridge"),
    "5.31": lambda found: found["UsernsMode"] != "host",
    "5.32": lambda found: not any("docker.sock" in source for source in _sources(found)),
}


def left_open(inspected: Host) -> set[str]:
    """The numbers of the checks that a container does not pass."""
    failed = {number for number, holds in CHECKS.items() if not holds(inspected["HostConfig"])}
    if inspected["Config"].get("Healthcheck", {}).get("Test") in (None, ["NONE"]):
        failed.add("5.27")
    return failed


@pytest.mark.parametrize("level", sorted(BUILT_IN))
def test_only_what_the_level_leaves_open_fails(level: str) -> None:
    hand = DockerHand()
    with docker_host(hand=hand) as host:
        host.until(lambda: host.engine.observe().facts.cpus)
        uid, facts = host.new_uid(), host.settled().engine.observe().facts
        spec = SandboxSpec.model_validate({"template": {"image": TINY, "securityLevel": level}})
        assert spec.template is not None
        config = render(spec, spec.template, name="box", uid=uid, policy=fitted(Policy(), facts)).config
        created = host.create(uid)
        create_container = replace(created, config=replace(config, name=created.config.name))
        host.engine.act(create_container)
        inspected = hand.inspect(created.config.name)
    failed = left_open(inspected)
    confined = {security_option.split(",")[0] for security_option in facts.security_options}
    if "name=apparmor" in confined and inspected["AppArmorProfile"] in ("", "unconfined"):
        failed.add("5.2")
    assert failed == LEFT_OPEN[level]
