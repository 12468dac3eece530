"""A rendered configuration is never wider than its level, for any spec and any policy; and the order is an order."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.runtime.container import ContainerConfig, Limits, Tmpfs
from controller.kinds.runtime.mount import HostRoot, Mount
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels import seccomp
from controller.policy.levels.levels import BUILT_IN, Level, Policy
from controller.policy.levels.order import wider
from controller.policy.sandbox import admit, render

OFFERED = {name: replace(level, offered=True) for name, level in BUILT_IN.items()}
CAPABILITIES = ("CHOWN", "SETGID", "NET_ADMIN", "SYS_ADMIN")


def levels() -> st.SearchStrategy[Level]:
    """Levels as a policy may have them: the built in ones, and others made of the same columns."""
    drawn = st.builds(
        replace,
        st.sampled_from(sorted(OFFERED.values(), key=lambda level: level.name)),
        name=st.just("drawn"),
        capabilities=st.lists(st.sampled_from(CAPABILITIES), unique=True).map(tuple),
        seccomp=st.sampled_from(sorted(seccomp.WIDTH)),
        read_only_root=st.booleans(),
        lowest_uid=st.sampled_from([0, 1000, 10_000]),
        default_user=st.sampled_from(["20000:20000", "30000:30000"]),
        most=st.builds(Limits, st.sampled_from([0, 1500]), st.sampled_from([0, 5 << 30]), st.sampled_from([0, 600])),
    )
    return st.one_of(st.sampled_from(sorted(OFFERED.values(), key=lambda level: level.name)), drawn)


def some(name: str, *values: object) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(st.just({}), st.sampled_from(values).map(lambda value: {name: value}))


LIMITS = st.builds(
    lambda *parts: {key: value for piece in parts for key, value in piece.items()},
    some("cpu", "100m", 1, 2, 64),
    some("memory", "64Mi", "2Gi", "8Gi", "64Gi"),
    some("pids", 9, 600, 100_000),
)
TMPFS = st.lists(
    st.tuples(st.sampled_from(["/tmp", "/workspace", "/data", "/etc", "/dev/x"]), st.sampled_from(["8Mi", "300Mi"])),
    unique_by=lambda pair: pair[0],
).map(lambda sizes: [{"mountPath": path, "size": size} for path, size in sizes])
TEMPLATES = st.builds(
    lambda *parts: {"image": "a:1", **{key: value for piece in parts for key, value in piece.items()}},
    some("user", "0", "0:0", "1", "1000:1000", "9999:20000", "10000:10000", "20000", "4294967295:10000"),
    some("command", ["sh"]),
    some("shmSize", "4Ki", "300Mi", "64Gi"),
    some("workingDir", "/x"),
    some("env", [{"name": "HOME", "value": "/"}]),
    TMPFS.map(lambda folders: {"tmpfs": folders}),
    LIMITS.map(lambda limits: {"resources": {"limits": limits}}),
    some("workspace", {}, {"mountPath": "/work", "size": "8Mi"}, {"mountPath": "/tmp"}),
)


def widest(level: Level, policy: Policy) -> ContainerConfig:
    """Return the config of a sandbox that asks for nothing, with the highest limits and any id of the level."""
    sandbox_spec = SandboxSpec.model_validate({"template": {"image": "a:1", "securityLevel": level.name}})
    assert sandbox_spec.template is not None
    config = render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=policy).config
    user = config.user if level.lowest_uid >= 10_000 else "0:0" if not level.lowest_uid else "1000:1000"
    folders = (Mount("/w", "host", "/srv/w"),) if level.host_folders == "read-write" else ()
    peers = level.peers and policy.peers
    return replace(config, limits=level.most, user=user, mounts=folders, joins_peers=peers)


WORKSPACES = st.sampled_from([{}, {"hostPath": "/srv/a"}, {"hostPath": "/srv/a", "readOnly": True}])


NETWORKS = some("network", {"peers": "Allowed"}, {"peers": "Blocked"})


@given(levels(), TEMPLATES, LIMITS, st.integers(0, 8), WORKSPACES, NETWORKS, st.booleans())
def test_no_spec_widens_its_level_under_any_policy(
    level: Level,
    template: Mapping[str, Any],
    limits: Mapping[str, Any],
    cpus: int,
    workspace: Mapping[str, Any],
    network: Mapping[str, Any],
    peers: bool,
) -> None:
    policy = Policy(levels={level.name: level}, host_cpus=cpus, host_roots=(HostRoot(path="/srv"),), peers=peers)
    document = {"template": {**template, "securityLevel": level.name}, "resources": {"limits": limits}}
    document |= {"workspace": workspace} if workspace else {}
    document |= network
    spec = SandboxSpec.model_validate(document)
    if admit(spec, policy):
        return
    assert spec.template is not None
    config = render(spec, spec.template, name="a", uid="a", policy=policy).config
    assert wider(config, widest(level, policy)) == ()


BASE = ContainerConfig(
    image="a",
    name="a",
    hostname="a",
    limits=Limits(500, 1 << 20, 10),
    user="20000:20000",
    tmpfs=(Tmpfs("/tmp", 1 << 20),),
    seccomp=seccomp.MINIMAL,
    sysctls=(("net.ipv4.ip_unprivileged_port_start", "1024"),),
)
WIDER: tuple[tuple[str, Any], ...] = (
    ("network_mode", "bridge"),
    ("read_only_root", False),
    ("user", "1000:20000"),
    ("user", "20000"),
    ("user", ""),
    ("capabilities", ("CHOWN",)),
    ("security_options", ()),
    ("seccomp", seccomp.STANDARD),
    ("seccomp", ""),
    ("sysctls", ()),
    ("sysctls", (*BASE.sysctls, ("kernel.msgmax", "1"))),
    ("runtime", "other"),
    ("limits", Limits(501, 1 << 20, 10)),
    ("limits", Limits(500, 1 << 21, 10)),
    ("limits", Limits(500, 1 << 20, 0)),
    ("tmpfs", (Tmpfs("/tmp", 1 << 20, noexec=False),)),
    ("tmpfs", (Tmpfs("/tmp", 1 << 20), Tmpfs("/data", 0))),
    ("shm_bytes", 17 << 20),
    ("shm_bytes", 0),
    ("nofile", 16385),
    ("oom_score_adjust", 0),
    ("log_max_bytes", 11 << 20),
    ("log_files", 3),
    ("mounts", (Mount("/w", "host", "/srv/w"),)),
    ("joins_peers", True),
)


@pytest.mark.parametrize(("field", "value"), WIDER)
def test_each_wider_field_is_reported(field: str, value: object) -> None:
    assert wider(replace(BASE, **{field: value}), BASE) == (field,)


@given(st.lists(st.sampled_from(WIDER), unique_by=lambda pair: pair[0]))
def test_all_wider_fields_are_reported(
    changes: list[tuple[str, Any]],
) -> None:
    changed = replace(BASE, **dict(changes))
    assert set(wider(changed, BASE)) == {field for field, _ in changes}
    assert wider(BASE, BASE) == ()


def test_built_in_levels_are_wider_than_full_isolation() -> None:
    policy = Policy(levels=OFFERED)
    strictest = widest(OFFERED["full-isolation"], policy)
    for name in ("development", "build", "production"):
        names = wider(widest(OFFERED[name], policy), strictest)
        assert {"read_only_root", "user", "capabilities", "seccomp"} <= set(names)
        assert wider(strictest, widest(OFFERED[name], policy)) in ((), ("sysctls",), ("limits",), ("sysctls", "limits"))
