"""ContainerConfig -> the engine's create body, and back. Pure."""

import pytest

from controller.engine.docker.create_config import create_body, limits_body, limits_of_body, tmpfs_options
from controller.engine.docker.errors import Fault, of_status, outcome_of
from controller.engine.docker.inspect import belongs_to, name_of, state_of, unix_seconds
from controller.kinds.common.labels import INSTANCE
from controller.kinds.observed.observed import State
from controller.kinds.planning.outcome import Terminal, Transient, Waiting
from controller.kinds.runtime.container import ContainerConfig, Limits, Tmpfs

LIMITS = Limits(cpu_millicores=1500, memory_bytes=64 << 20, pids=50)
CONFIG = ContainerConfig(
    image="paddock/test-tiny:1",
    name="pdk-a",
    limits=LIMITS,
    hostname="a",
    user="10001:10002",
    env=(("A", "1"), ("B", "x=y")),
    tmpfs=(Tmpfs("/tmp", 1 << 20), Tmpfs("/work", 2 << 20, noexec=False)),
)


def body(**changes: object) -> dict:
    values = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    return create_body(ContainerConfig(**{**values, **changes}), {"l": "1"}, "sha256:abc")


def test_what_every_container_gets() -> None:
    host = body()["HostConfig"]
    assert host["Init"] is True
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == []
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["IpcMode"] == host["CgroupnsMode"] == "private"
    assert host["OomScoreAdj"] == 500
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10485760", "max-file": "2"}}
    assert {"Name": "core", "Soft": 0, "Hard": 0} in host["Ulimits"]
    assert not {ulimit["Name"] for ulimit in host["Ulimits"]} - {"core", "nofile"}
    assert host["NetworkMode"] == "none"
    assert host["Dns"] == ["127.0.0.1"]
    assert body()["Healthcheck"] == {"Test": ["NONE"]}
    for absent in ("Binds", "Devices", "PortBindings", "Sysctls", "PidMode", "VolumesFrom", "ExtraHosts"):
        assert absent not in host


def test_who_and_what_it_is() -> None:
    created = body()
    assert (created["Image"], created["Hostname"], created["User"]) == ("sha256:abc", "a", "10001:10002")
    assert created["Env"] == ["A=1", "B=x=y"]
    assert created["Labels"] == {"l": "1"}


def test_a_command_replaces_the_entry_point_too() -> None:
    created = body(command=("sh", "-c", "true"))
    assert (created["Entrypoint"], created["Cmd"]) == (["sh", "-c", "true"], [])
    assert "Entrypoint" not in body()
    assert "Cmd" not in body()
    args = body(args=("-v",))
    assert (args["Cmd"], "Entrypoint" in args) == (["-v"], False), "the image's own entry point stays"


def test_no_swap_and_no_zero_shares_are_sent() -> None:
    created = limits_body(LIMITS)
    assert created == {"NanoCpus": 1_500_000_000, "Memory": 64 << 20, "MemorySwap": 64 << 20, "PidsLimit": 50}
    assert limits_body(Limits(10, 6 << 20, 1, cpu_shares=2))["CpuShares"] == 2


@pytest.mark.parametrize("limits", [LIMITS, Limits(10, 6 << 20, 1), Limits(2000, (64 << 20) + 5, 100, cpu_shares=512)])
def test_limits_come_back_as_they_were_sent(limits: Limits) -> None:
    assert limits_of_body(limits_body(limits)) == limits


def test_what_others_set_is_understood() -> None:
    assert limits_of_body({"CpuPeriod": 50_000, "CpuQuota": 25_000, "PidsLimit": None}) == Limits(500, 0, 0)
    assert limits_of_body({"PidsLimit": -1, "Memory": 0}) == Limits(0, 0, 0)


@pytest.mark.parametrize(
    ("mount", "user", "options"),
    [
        (Tmpfs("/tmp", 4096), "11:12", "rw,noexec,nosuid,nodev,size=4096,nr_inodes=1024,uid=11,gid=12,mode=1777"),
        (Tmpfs("/w", 4096, noexec=False), "7:8", "rw,exec,nosuid,nodev,size=4096,nr_inodes=1024,uid=7,gid=8,mode=0755"),
        (Tmpfs("/w", 4096), "7", "rw,noexec,nosuid,nodev,size=4096,nr_inodes=1024,uid=7,gid=0,mode=0755"),
        (Tmpfs("/w", 4096), "", "rw,noexec,nosuid,nodev,size=4096,nr_inodes=1024,mode=1777"),
    ],
)
def test_tmpfs_is_sized_and_belongs_to_the_user(mount: Tmpfs, user: str, options: str) -> None:
    assert tmpfs_options(mount, user) == options


def test_a_tmpfs_limits_inodes_by_its_pages() -> None:
    assert "size=67108864,nr_inodes=32768," in tmpfs_options(Tmpfs("/tmp", 64 << 20), "1:1")


def test_a_runtime_only_where_one_is_named() -> None:
    assert "Runtime" not in body()["HostConfig"]
    assert body(runtime="runsc")["HostConfig"]["Runtime"] == "runsc"


# What the engine shows


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0001-01-01T00:00:00Z", 0.0),
        ("", 0.0),
        ("nonsense", 0.0),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T22:13:20.5Z", 1_700_000_000.5),
        ("2023-11-14T23:13:20.123456789+01:00", 1_700_000_000.123456789),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert unix_seconds(text) == pytest.approx(seconds)


def test_names_states_and_labels() -> None:
    assert name_of({"Names": ["/other/alias", "/pdk-a"]}) == "pdk-a"
    assert name_of({}) == ""
    assert state_of("running") is State.RUNNING
    assert state_of("of a later engine") is State.UNKNOWN
    assert belongs_to({INSTANCE: "i"}, "i")
    assert not belongs_to({INSTANCE: "j"}, "i")
    assert not belongs_to(None, "")
    assert not belongs_to({INSTANCE: ""}, "")


# What a failed call means


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (Fault("connection", "refused"), Waiting, "EngineUnreachable"),
        (Fault("timeout", "slow"), Waiting, "EngineUnreachable"),
        (of_status(503, "shutting down"), Waiting, "EngineUnreachable"),
        (of_status(400, "no such capability"), Terminal, "InvalidConfig"),
        (of_status(409, "busy"), Transient, "Conflict"),
        (of_status(500, "out of order"), Transient, "EngineError"),
    ],
)
def test_what_the_loop_does_about_a_fault(fault: Fault, kind: type, reason: str) -> None:
    outcome = outcome_of(fault)
    assert isinstance(outcome, kind)
    assert outcome.reason == reason
    assert fault.message in outcome.message


def test_a_stray_mount_error_says_what_to_do() -> None:
    message = (
        'container 1: driver "overlay2" failed to remove root filesystem: unlinkat /x/merged: device or resource busy'
    )
    outcome = outcome_of(of_status(500, message))
    assert isinstance(outcome, Transient)
    assert outcome.message.endswith(f"{message}; stop the engine, `umount` that folder, and start the engine again")


def test_only_a_404_means_gone() -> None:
    assert of_status(404, "no such container").is_gone
    assert not any(fault.is_gone for fault in (of_status(500, "x"), of_status(409, "x"), Fault("timeout", "x")))
