"""Contract of every engine's report on the inside of a sandbox: as rendered, and otherwise once somebody changed it."""

from collections.abc import Iterator

import pytest

from controller.kinds.common.quantity import format_bytes
from controller.kinds.observed.inside import InsideState
from controller.kinds.planning.action import SignalContainer
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.user_ids import IdRange
from controller.kinds.sandbox import SandboxSpec
from controller.policy.attest.attest import differing, facts, mask_of, names_of
from controller.policy.attest.report import REFUSED, report
from controller.policy.levels.levels import BUILT_IN, Policy
from controller.policy.levels.seccomp import name_of
from controller.policy.sandbox import render
from tests.contract.engine_hosts import TINY, EngineHost, docker_host, fake_host, ok


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


OWN = IdRange(1_700_000, 1_700_009)


def rendered(level: str, own: int = 0, **fields: str) -> ContainerConfig:
    sandbox_spec = SandboxSpec.model_validate({"template": {"image": TINY, "securityLevel": level, **fields}})
    assert sandbox_spec.template is not None
    policy = Policy(user_ids=OWN if own else None)
    return render(sandbox_spec, sandbox_spec.template, name="box", uid="a", policy=policy, user_id=own).config


def run(host: EngineHost, uid: str, wanted: ContainerConfig) -> InsideState:
    fields = ("user", "own_id", "tmpfs", "seccomp", "sysctls", "shm_bytes", "capabilities", "read_only_root")
    inside = host.running(uid, **{name: getattr(wanted, name) for name in fields}).inside
    assert inside is not None
    return inside


@pytest.mark.parametrize("level", ["full-isolation", "development", "build", "production"])
def test_a_sandbox_is_inside_as_its_level_was_rendered(host: EngineHost, level: str) -> None:
    config = rendered(level)
    inside = run(host, host.new_uid(), config)
    assert inside.unread == ""
    assert differing(facts(config, inside)) == ""
    if level != "full-isolation":
        assert "read-only root: found no" in differing(facts(rendered("full-isolation"), inside))


@pytest.mark.parametrize("size", ["1Mi", "40000000"])
def test_shared_memory_is_as_large_as_asked(host: EngineHost, size: str) -> None:
    config = rendered("full-isolation", shmSize=size)
    inside = run(host, host.new_uid(), config)
    assert differing(facts(config, inside)) == ""
    shm = next(mount for mount in inside.mounts if mount.path == "/dev/shm")
    assert 0 <= shm.size_bytes - config.shm_bytes < 64 << 10
    assert ("/dev/shm: found" in differing(facts(rendered("full-isolation"), inside))) == (size != "1Mi")


@pytest.mark.parametrize("level", ["full-isolation", "production"])
def test_an_image_that_fits_any_user_gets_the_own_id(host: EngineHost, level: str) -> None:
    uid, config = host.new_uid(), rendered(level, OWN.first)
    inside = run(host, uid, config)
    assert (inside.uid, inside.gid, host.only(uid).user) == (OWN.first, OWN.first, f"{OWN.first}:{OWN.first}")
    assert differing(facts(config, inside)) == ""
    second = differing(facts(rendered(level, OWN.last), inside))
    assert f"user: found {OWN.first}:{OWN.first}, wanted" in second


def test_it_is_known_with_the_start_and_gone_with_the_end(host: EngineHost) -> None:
    uid = host.new_uid()
    assert host.made(uid).inside is None
    sandbox = host.running(uid)
    assert sandbox.inside is not None
    ok(host.engine.act(SignalContainer(uid, sandbox.name, sandbox.id, "KILL", "a test")))
    host.until(lambda: host.state(uid) == "exited")
    assert host.only(uid).inside is None


def test_what_somebody_did_to_it_is_seen_at_the_next_look_at_it(host: EngineHost) -> None:
    config, uid = rendered("full-isolation"), host.new_uid()
    run(host, uid, config)
    sandbox = host.only(uid)
    host.hand.open_root(sandbox.name)
    assert host.engine.observe_container(sandbox.id) == ""
    inside = host.only(uid).inside
    assert inside is not None
    assert differing(facts(config, inside)) == "read-only root: found no, wanted yes"


def test_a_container_that_is_not_there_can_not_be_looked_at(host: EngineHost) -> None:
    assert "no such container" in host.engine.observe_container("0" * 64).lower()


@pytest.mark.parametrize("level", sorted(BUILT_IN))
def test_the_report_of_a_sandbox_is_as_the_table_of_levels_says(host: EngineHost, level: str) -> None:
    config, table = rendered(level), BUILT_IN[level]
    inside = run(host, host.new_uid(), config)
    observeds = {row.name: row.observed for row in report(config, inside, "runc")}
    assert observeds["runtime"] == "runc"
    assert observeds["user"].split()[0] == (table.default_user or "20000:20000")  # the test image's own
    assert observeds["capabilities bounding"] == names_of(mask_of(table.capabilities))
    assert observeds["capabilities held"] in ("none", observeds["capabilities bounding"])
    assert observeds["no new privileges"] == "yes"
    assert observeds["seccomp"] == f"filter, profile {name_of(table.seccomp)}"
    refusal = REFUSED[name_of(table.seccomp)]
    assert observeds["calls refused"].startswith(f"{len(refusal)}: ")
    assert observeds["own namespaces"] == "cgroup, ipc, mnt, net, pid, uts"
    assert observeds["namespaces of the host"] in ("user", "none")  # none: the engine maps users
    assert observeds["mount /proc/sys"].startswith("proc read-only")
    assert ("read-only" in observeds["mount /"]) == table.read_only_root
    for tmpfs in table.tmpfs:
        noexec = " noexec" if tmpfs.noexec else ""
        assert (
            observeds[f"mount {tmpfs.path}"]
            == f"tmpfs {format_bytes(tmpfs.size_bytes)} read-write nosuid nodev{noexec}"
        )
