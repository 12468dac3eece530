"""Attestation compares: what is inside as it was rendered differs in nothing, and each way to be wider is told."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.observed.inside import InsideState, ObservedMount
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BoundMount, Mount
from controller.kinds.runtime.user_ids import IdRange
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import CAPABILITIES, differing, facts, hides_processes, mask_of, names_of
from controller.policy.attest.mounted import missing
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.sandbox import render
from tests.fakes.inside import inside_of


def rendered(level: str = "full-isolation", **template: Any) -> ContainerConfig:
    sandbox_spec = SandboxSpec.model_validate({"template": {"image": "a:1", "securityLevel": level, **template}})
    assert sandbox_spec.template is not None
    return render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=Policy()).config


CONFIG = rendered()
INSIDE = inside_of(CONFIG, ("none",), {})


def mounts(**changes: Any) -> tuple[ObservedMount, ...]:
    """The mounts inside, with fields of some of them changed: by path, or a new one at a path that is not there."""
    document = {mount.path: mount for mount in INSIDE.mounts}
    for path, fields in changes["at"].items():
        document[path] = replace(document.get(path, ObservedMount(path, "ext4", writable=True)), **fields)
    return tuple(observed_mount for path, observed_mount in document.items() if path not in changes.get("without", ()))


@pytest.mark.parametrize("level", sorted(BUILT_IN))
@pytest.mark.parametrize("user", ["20000:20000", "0:0"])
def test_a_sandbox_as_rendered_has_no_differences(level: str, user: str) -> None:
    config = rendered(level, user=user, tmpfs=[{"mountPath": "/data", "size": "4Ki"}])
    assert differing(facts(config, inside_of(config, (config.network_mode,), {}))) == ""


def test_comparisons_are_cached_with_their_observation() -> None:
    """One is compared often, and its comparison is kept for that; those of thousands that are gone are not."""
    inside = replace(INSIDE, uid=1)
    assert facts(CONFIG, inside) is facts(replace(CONFIG), inside)
    assert differing(facts(CONFIG, inside, networks=False)) == differing(facts(CONFIG, inside))
    ref = weakref.ref(inside)
    del inside
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uid": 0}, "user: found 0:20000, wanted 20000:20000"),
        ({"gid": 0}, "user: found 20000:0, wanted 20000:20000"),
        ({"groups": (0, 27, 20000)}, "groups of the host's users: found 0, 27, wanted none"),
        ({"bounding": 1 << 21}, "capabilities that programs can gain: found SYS_ADMIN, wanted none"),
        ({"capabilities": 1}, "capabilities held: found CHOWN, wanted none"),
        ({"no_new_privileges": False}, "no new privileges: found no, wanted yes"),
        ({"seccomp": 0}, "seccomp: found none, wanted filter"),
        ({"mounts": mounts(at={"/": {"writable": True}})}, "read-only root: found no, wanted yes"),
        ({"mounts": mounts(at={"/dev/nvidia0": {}, "/dev/nvidiactl": {}})}, "GPUs: found /dev/nvidia0, wanted none"),
        ({"mounts": mounts(at={}, without=["/tmp"])}, "/tmp: found no mount, wanted tmpfs 64Mi nosuid nodev noexec"),
        ({"mounts": mounts(at={"/tmp": {"size_bytes": 0}})}, "/tmp: found tmpfs without a size nosuid nodev noexec"),
        ({"mounts": mounts(at={"/tmp": {"size_bytes": 65 << 20}})}, "/tmp: found tmpfs 65Mi"),
        ({"mounts": mounts(at={"/tmp": {"noexec": False}})}, "/tmp: found tmpfs 64Mi nosuid nodev, wanted"),
        ({"mounts": mounts(at={"/workspace": {"nosuid": False}})}, "/workspace: found tmpfs 64Mi nodev"),
        ({"mounts": mounts(at={"/dev/shm": {"size_bytes": 64 << 20}})}, "/dev/shm: found 64Mi, wanted 16Mi"),
        ({"mounts": mounts(at={"/proc/sys": {"writable": True}})}, "kernel settings writable: found /proc/sys"),
        ({"mounts": mounts(at={"/sys/fs/cgroup": {}})}, "kernel settings writable: found /sys/fs/cgroup"),
        ({"mounts": mounts(at={}, without=["/proc/sys"])}, "kernel settings writable: found /proc/sys"),
        ({"mounts": mounts(at={"/srv/host": {}})}, "other writable mounts: found /srv/host, wanted none"),
        ({"mounts": mounts(at={"/etc/hosts": {}})}, "other writable mounts: found /etc/hosts"),
        ({"mounts": mounts(at={"/proc/x": {}})}, "other writable mounts: found /proc/x"),
        ({"shared": ("net", "pid")}, "namespaces shared with the host: found net, pid, wanted none"),
        ({"interfaces": ("eth0",)}, "network interfaces: found eth0, wanted none"),
        ({"ipv6": ("eth1",)}, "network interfaces: found eth1, wanted none"),
    ],
)
def test_each_wider_setting_is_reported(changes: dict[str, Any], message: str) -> None:
    assert message in differing(facts(CONFIG, replace(INSIDE, **changes)))


def test_an_images_user_may_be_any_but_another_sandboxs() -> None:
    own_number, owned = 1_700_001, IdRange(1_700_000, 1_700_009)
    sandbox_spec = SandboxSpec.model_validate({"template": {"image": "a:1", "securityLevel": "development"}})
    assert sandbox_spec.template is not None
    policy = Policy(user_ids=owned)
    config = render(sandbox_spec, sandbox_spec.template, name="a", uid="a", policy=policy, user_id=own_number).config
    inside = inside_of(config, (config.network_mode,), {})
    assert (inside.uid, inside.gid) == (own_number, own_number)
    for ids in ((own_number, own_number), (0, 0), (1000, 1000), (20000, 20000), (own_number, 0)):
        assert differing(facts(config, replace(inside, uid=ids[0], gid=ids[1]))) == ""
    for ids in ((own_number + 1, own_number + 1), (owned.first, 0), (1000, owned.last)):
        message = f"user: found {ids[0]}:{ids[1]}, wanted the image's, and not another sandbox's"
        assert message == differing(facts(config, replace(inside, uid=ids[0], gid=ids[1])))


def test_cgroups_are_out_of_reach_of_mapped_users() -> None:
    """Engines that map users mount them writable; the map lacks the host's root, to whom they belong."""
    writable = mounts(at={"/sys/fs/cgroup/pids": {"kind": "cgroup"}, "/sys/fs/cgroup/x": {"kind": "cgroup2"}})
    text = differing(facts(CONFIG, replace(INSIDE, mounts=writable)))
    assert text == "kernel settings writable: found /sys/fs/cgroup/pids, /sys/fs/cgroup/x, wanted none"
    assert differing(facts(CONFIG, replace(INSIDE, mounts=writable, own_users=True))) == ""
    observed_mounts = mounts(at={"/proc/sys": {"writable": True}})
    assert "/proc/sys" in differing(facts(CONFIG, replace(INSIDE, mounts=observed_mounts, own_users=True)))


def test_narrower_settings_are_accepted() -> None:
    config = rendered("production", user="0:0")
    inside = inside_of(config, ("none",), {})
    less = replace(inside, bounding=0, capabilities=0, mounts=mounts(at={}, without=["/tmp", "/workspace"]))
    assert differing(facts(config, less)) == ""


def test_a_size_is_rounded_up_to_pages() -> None:
    config = rendered(tmpfs=[{"mountPath": "/data", "size": "5Ki"}], shmSize="5Ki")
    inside = inside_of(config, ("none",), {})
    sized = ("/data", "/dev/shm")
    larger = tuple(replace(mount, size_bytes=8192) if mount.path in sized else mount for mount in inside.mounts)
    assert differing(facts(config, replace(inside, mounts=larger))) == ""


def test_changing_networks_are_not_compared() -> None:
    assert differing(facts(CONFIG, replace(INSIDE, interfaces=("eth0",)), networks=False)) == ""


@given(st.sets(st.sampled_from(CAPABILITIES)))
def test_capabilities_by_name_and_by_number(names: set[str]) -> None:
    message = names_of(mask_of(names))
    if len(names) < len(CAPABILITIES):
        assert set(message.split(", ")) == (names or {"none"})


def test_every_capability_of_a_level_has_a_number() -> None:
    masks = {name: mask_of(level.capabilities) for name, level in BUILT_IN.items()}
    assert masks == {"full-isolation": 0, "development": 0xC1, "build": 0x4C1, "production": 0x405FB}
    assert names_of((1 << 41) - 1) == "all"
    assert names_of(1 << 60) == "60"


def test_runtimes_that_hide_the_inside() -> None:
    assert [
        hides_processes(entry) for entry in ("", "runc", "crun", "runsc", "kata-runtime", "io.containerd.kata.v2")
    ] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]


def test_an_unread_sandbox_has_no_report() -> None:
    assert InsideState().unread == ""
    assert differing(facts(CONFIG, InsideState())) != ""


def test_mounts_below_var_run_are_seen_below_run() -> None:
    volumes = [{"name": "a", "mountPath": "/var/run/a", "size": "4Mi"}]
    config = rendered(tmpfs=[{"mountPath": "/var/run/x", "size": "4Ki"}], volumes=volumes)
    linked = inside_of(config, (config.network_mode,), {})
    linked = replace(
        linked, mounts=tuple(replace(mount, path=mount.path.removeprefix("/var")) for mount in linked.mounts)
    )
    volume = ObservedMount("/run/a", "ext4", writable=True, nosuid=True, nodev=True, origin="8:1 /a")
    observed_mounts = (*(mount for mount in linked.mounts if mount.path != "/run/a"), volume)
    inside = replace(linked, mounts=observed_mounts)
    mount = Mount("/var/run/a", "volume", "a", size_bytes=4 << 20)
    bound = (BoundMount(mount.path, str(mount), "8:1 /a", read_only=False),)
    assert differing(facts(config, inside, bound=bound)) == ""
    assert missing((mount,), inside, bound) == ()
    more = replace(inside, mounts=(*observed_mounts, replace(volume, path="/run/b")))
    assert "other writable mounts: found /run/b" in differing(facts(config, more, bound=bound))
    beside = replace(inside, mounts=(*observed_mounts, replace(volume, path="/var/run/a")))
    assert "other writable mounts: found /run/a" in differing(facts(config, beside, bound=bound))
