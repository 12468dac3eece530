"""Admission says every reason at once; rendering gives the level and nothing wider, whatever was asked."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.runtime.container import ContainerConfig, Tmpfs
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.sandbox import admit, render

POLICY = Policy(host_cpus=2)


def spec(**template: Any) -> SandboxSpec:
    resources = template.pop("resources", {})
    return SandboxSpec.model_validate({"template": {"image": "a:1", **template}, "resources": resources})


def rendered(sandbox_spec: SandboxSpec) -> ContainerConfig:
    assert sandbox_spec.template is not None
    assert admit(sandbox_spec, POLICY) == ()
    return render(sandbox_spec, sandbox_spec.template, name="box", uid="0123456789ab", policy=POLICY).config


@pytest.mark.parametrize(
    ("template_fields", "field", "message"),
    [
        ({"securityLevel": "none"}, "spec.template.securityLevel", "there is no security level"),
        ({"user": "0:0"}, "spec.template.user", "user 0 is refused"),
        ({"user": "20000"}, "spec.template.user", "gets group 0"),
        ({"user": "20000:0"}, "spec.template.user", "group 0 is refused"),
        ({"user": "1000:1000"}, "spec.template.user", "from 10000 up"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "spec.template.env[1].name", "set twice"),
        ({"env": [{"name": "A", "value": "x" * 131070}]}, "spec.template.env[0].value", "name included"),
        ({"command": ["echo", "ü" * 65536]}, "spec.template.command[1]", "less than 131072 bytes"),
        ({"args": ["x" * 131072]}, "spec.template.args[0]", "less than 131072 bytes"),
        ({"args": ["x"], "agent": {}}, "spec.template.args", "write both"),
        ({"command": ["echo"] + ["x" * 100_000] * 21}, "spec.template.env", "more than the 2Mi"),
        (
            {"tmpfs": [{"mountPath": "/a/../etc", "size": "1Mi"}]},
            "spec.template.tmpfs[0].mountPath",
            "normalized absolute",
        ),
        ({"tmpfs": [{"mountPath": "/proc/x", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "kernel"),
        ({"tmpfs": [{"mountPath": "/dev", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "kernel"),
        ({"tmpfs": [{"mountPath": "//sys", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "normalized absolute"),
        ({"tmpfs": [{"mountPath": "//a", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "normalized absolute"),
        ({"tmpfs": [{"mountPath": "/sys/", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "normalized absolute"),
        ({"tmpfs": [{"mountPath": "/a", "size": "600Mi"}]}, "spec.template.tmpfs", "count as memory"),
        ({"tmpfs": [{"mountPath": "/dev/shm", "size": "1Mi"}]}, "spec.template.tmpfs[0].mountPath", "`shmSize: 1Mi`"),
        (
            {"tmpfs": [{"mountPath": "/tmp", "size": "1Mi", "noexec": False}]},
            "spec.template.tmpfs[0].noexec",
            "nothing in /tmp can be executed at full-isolation",
        ),
        ({"shmSize": "600Mi"}, "spec.template.shmSize", "600Mi (with 600Mi of shared memory) do not fit"),
        ({"shmSize": "300Mi", "workspace": {"size": "300Mi"}}, "spec.template.shmSize", "600Mi (with 300Mi of"),
        ({"resources": {"limits": {"cpu": 3}}}, "spec.resources.limits.cpu", "this host has 2 cores"),
    ],
)
def test_unenforceable_specs_are_refused(template_fields: dict[str, Any], field: str, message: str) -> None:
    refusal = admit(spec(**template_fields), POLICY)[0]
    assert refusal.field == field
    assert message in refusal.message


@pytest.mark.parametrize(
    ("path", "options", "noexec"),
    [
        ("/data", {}, False),
        ("/data", {"noexec": True}, True),
        ("/data", {"noexec": False}, False),
        ("/tmp", {}, True),
        ("/workspace", {}, False),
        ("/workspace", {"noexec": True}, True),
    ],
)
def test_a_folder_may_take_no_programs(path: str, options: dict[str, bool], noexec: bool) -> None:
    config = rendered(spec(tmpfs=[{"mountPath": path, "size": "1Mi", **options}]))
    assert next(tmpfs for tmpfs in config.tmpfs if tmpfs.path == path).noexec is noexec


def test_every_reason_is_reported_at_once() -> None:
    twice = [{"mountPath": "/proc/a", "size": "1Mi"}] * 2
    sandbox_spec = spec(env=[{"name": "A"}, {"name": "A"}], tmpfs=twice, user="0:0")
    assert len(admit(sandbox_spec, POLICY)) == 6


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "command": st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20), min_size=1, max_size=3
        ),
        "args": st.lists(st.sampled_from(["a", "--b"]), min_size=1, max_size=2),
        "user": st.tuples(st.integers(10_000, 2**31 - 1), st.integers(10_000, 2**31 - 1)).map(
            lambda p: f"{p[0]}:{p[1]}"
        ),
        "env": st.lists(st.sampled_from("ABC"), unique=True).map(
            lambda names: [{"name": n, "value": n} for n in names]
        ),
        "tmpfs": st.lists(st.sampled_from(["/tmp", "/workspace", "/data"]), unique=True).map(
            lambda paths: [{"mountPath": path, "size": "8Mi"} for path in paths]
        ),
        "resources": st.fixed_dictionaries(
            {
                "limits": st.fixed_dictionaries(
                    {}, optional={"memory": st.sampled_from(["64Mi", "1Gi"]), "pids": st.just(9)}
                )
            }
        ),
    },
)


@given(ASKED)
def test_no_spec_widens_its_level(template_fields: dict[str, Any]) -> None:
    config = rendered(spec(**template_fields))
    assert config.network_mode == "none"
    assert config.dns == ("127.0.0.1",)
    assert config.read_only_root
    assert config.capabilities == ()
    assert config.security_options == ("no-new-privileges:true",)
    uid, gid = config.user.split(":")
    assert min(int(uid), int(gid)) >= FULL_ISOLATION.lowest_uid
    assert {"/tmp", "/workspace"} <= {tmpfs.path for tmpfs in config.tmpfs}
    assert all(tmpfs.size_bytes for tmpfs in config.tmpfs)
    assert min(config.limits.cpu_millicores, config.limits.memory_bytes, config.limits.pids) > 0


@pytest.mark.parametrize(
    ("template_fields", "command", "args"),
    [
        ({}, None, ()),
        ({"command": ["a"]}, ("a",), ()),
        ({"command": ["a"], "args": ["b", "c"]}, ("a", "b", "c"), ()),
        ({"args": ["b"]}, None, ("b",)),
    ],
)
def test_args_follow_the_command_or_the_images_entrypoint(
    template_fields: dict[str, Any], command: tuple[str, ...] | None, args: tuple[str, ...]
) -> None:
    config = rendered(spec(**template_fields))
    assert (config.command, config.args) == (command, args)
    with_agent = rendered(spec(command=["a"], args=["b"], agent={})).command
    assert with_agent is not None
    assert with_agent[-3:] == ("--", "a", "b")


def test_the_hash_covers_immutable_fields() -> None:
    base = rendered(spec())
    assert rendered(spec(resources={"limits": {"memory": "1Gi", "cpu": 2, "pids": 9}})).hash() == base.hash()
    for document in (
        {"image": "b:1"},
        {"command": ["x"]},
        {"args": ["x"]},
        {"env": [{"name": "A"}]},
        {"user": "30000:30000"},
    ):
        assert rendered(spec(**document)).hash() != base.hash()


def test_the_hash_stays_the_same_from_version_to_version() -> None:
    """A change here makes every running sandbox Outdated: raise HASH_SCHEMA when that is meant."""
    config = ContainerConfig(image="a:1", name="n", limits=rendered(spec()).limits, hostname="h", nofile=1)
    assert config.hash() == STABLE


STABLE = "7d28d33df7ff7bda"


def test_a_template_without_an_agent_hashes_as_before() -> None:
    """Sandboxes that ran before there were agents are not recreated."""
    plain = spec(command=["sleep", "9"], workspace={})
    assert plain.template is not None
    before = render(plain, plain.template, name="box", uid="0123456789ab", policy=POLICY)
    assert (before.config_hash, before.template_hash) == BEFORE_AGENTS
    sandbox_spec = spec(command=["sleep", "9"], workspace={}, agent={})
    assert sandbox_spec.template is not None
    after = render(sandbox_spec, sandbox_spec.template, name="box", uid="0123456789ab", policy=POLICY)
    assert after.template_hash != before.template_hash


BEFORE_AGENTS = ("f8e5967b358dd05c", "6e88e2fe90dce727")


def test_shared_memory_has_the_specs_size() -> None:
    assert rendered(spec()).shm_bytes == 16 << 20
    assert rendered(spec(shmSize="256Mi")).shm_bytes == 256 << 20
    assert rendered(spec(shmSize="16Mi")).hash() == rendered(spec()).hash() != rendered(spec(shmSize="17Mi")).hash()
    assert admit(spec(shmSize="64Mi", tmpfs=[{"mountPath": "/a", "size": "448Mi"}]), POLICY) == ()


def test_a_spec_folder_replaces_the_levels() -> None:
    folders = {tmpfs.path: tmpfs for tmpfs in rendered(spec(tmpfs=[{"mountPath": "/tmp", "size": "8Mi"}])).tmpfs}
    assert folders["/tmp"] == Tmpfs("/tmp", 8 << 20, noexec=True)
