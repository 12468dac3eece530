"""Findings about made-up hosts: severity, meaning, remedy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.kinds.observed.doctor import (
    ClusterFacts,
    DaemonFacts,
    DoctorFacts,
    EngineFacts,
    FailingCondition,
    Finding,
    FolderFacts,
    HostSighting,
    KernelFacts,
    NodeSighting,
    Severity,
    SocketFacts,
    StoreFacts,
)
from controller.kinds.observed.observed import HostFacts
from controller.kinds.observed.pressure import HostUse, Supply
from controller.kinds.observed.swap import HostSwap, SwapDevice
from controller.policy.host.doctor import judge
from controller.ports.scheduler import SchedulerProblem

MUCH = Supply(900 << 30, 1000 << 30)
WELL = DoctorFacts(
    local=True,
    engine=EngineFacts(
        "unix:///var/run/docker.sock",
        facts=HostFacts(
            engine_version="26.1.0",
            api_version="1.45",
            cgroup_version="2",
            cgroup_driver="systemd",
            storage_driver="overlay2",
            root_dir="/var/lib/docker",
            security_options=("name=apparmor", "name=seccomp,profile=builtin"),
            live_restore=True,
            swap_limit=True,
        ),
        file_system="xfs",
        mount_options=("rw", "prjquota"),
        skew_seconds=0.1,
        runc_version="1.1.12",
    ),
    kernel=KernelFacts(
        root=True,
        controllers=frozenset({"cpu", "memory", "pids", "io"}),
        bridges=("docker0",),
        forwarding=True,
        clock_synchronised=True,
        use=HostUse(0.0, MUCH, MUCH, Supply(900, 1000), Supply(30_000, 32_768)),
        state_disk=MUCH,
        state_inodes=Supply(900, 1000),
    ),
    engine_socket=SocketFacts("/var/run/docker.sock", 0o660, "root", "docker"),
    daemon_socket=SocketFacts("/run/paddock/paddock.sock", 0o660, "root", "paddock"),
    store=StoreFacts("/var/lib/paddock/paddock.db", schema="0005", newest="0005"),
    daemon=DaemonFacts(True, True, "runs"),
    host_roots=(FolderFacts("/srv", 0o755, "root", "root", roots=True, file_system="ext4", maps_ids=True),),
    state=FolderFacts("/var/lib/paddock", 0o700, "root", "root", roots=True, file_system="ext4"),
    secrets=FolderFacts("/etc/paddock/secrets", 0o700, "root", "root", roots=True, file_system="ext4"),
    user_ids="2000000-2065535",
)


def engine(**changes: Any) -> DoctorFacts:
    return replace(WELL, engine=replace(WELL.engine, **changes))


def engine_facts(**changes: Any) -> DoctorFacts:
    return engine(facts=replace(WELL.engine.facts, **changes))


def kernel(**changes: Any) -> DoctorFacts:
    return replace(WELL, kernel=replace(WELL.kernel, **changes))


def use(**changes: Any) -> DoctorFacts:
    return kernel(use=replace(WELL.kernel.use, **changes))


def store(**changes: Any) -> DoctorFacts:
    return replace(WELL, store=replace(WELL.store, **changes))


def root(**changes: Any) -> DoctorFacts:
    return replace(WELL, host_roots=(replace(WELL.host_roots[0], **changes),))


def folder(name: str, **changes: Any) -> DoctorFacts:
    return replace(WELL, **{name: replace(getattr(WELL, name), **changes)})


def not_well(facts: DoctorFacts) -> list[Finding]:
    return [finding for finding in judge(facts) if finding.grade is not Severity.OK]


def test_swap_that_keeps_memory_on_a_plain_disk() -> None:
    plain = SwapDevice("/dev/sda2", "Plain", 8 << 30, 0)
    (finding,) = not_well(kernel(swap=HostSwap((plain,))))
    assert (finding.check, "not encrypted" in finding.found) == ("hibernation", True)
    assert not_well(replace(kernel(swap=HostSwap((plain,))), hibernate_to_plain_disk=True)) == []
    assert not_well(replace(kernel(swap=HostSwap((plain,))), hibernation_bytes=0)) == []


def test_a_healthy_host() -> None:
    findings = judge(WELL)
    assert {finding.grade for finding in findings} == {Severity.OK}
    assert not [finding for finding in findings if finding.meaning or finding.action or not finding.found]
    assert len({finding.check for finding in findings}) == len(findings) >= 20


W, P = Severity.WARNING, Severity.PROBLEM
CASES: list[tuple[str, Severity, Callable[[], DoctorFacts]]] = [
    ("daemon", W, lambda: replace(WELL, daemon=DaemonFacts(False, False, "nobody answers"))),
    ("daemon", P, lambda: replace(WELL, daemon=DaemonFacts(True, False, "not ready: store"))),
    ("root", W, lambda: kernel(root=False)),
    ("runc", P, lambda: engine(runc_version="1.1.11")),
    ("runc", P, lambda: engine(runc_version="1.1.5+ds1", runc_package="1.1.5+ds1-1+b1")),
    ("runc", W, lambda: engine(runc_version="of my own")),
    ("cgroups", P, lambda: kernel(controllers=frozenset({"cpu", "pids"}))),
    ("cgroups", W, lambda: kernel(controllers=frozenset())),
    ("swap", W, lambda: engine_facts(swap_limit=False)),
    ("disk-quota", W, lambda: engine(file_system="ext4")),
    ("disk-quota", W, lambda: engine(mount_options=("rw",))),
    ("seccomp", P, lambda: engine_facts(security_options=("name=apparmor",))),
    ("mandatory-access", W, lambda: engine_facts(security_options=("name=seccomp,profile=default",))),
    ("gpus", W, lambda: engine_facts(runtimes=("nvidia", "runc"))),
    ("user-namespaces", W, lambda: engine_facts(security_options=("name=seccomp", "name=selinux", "name=userns"))),
    ("user-namespaces", W, lambda: engine_facts(security_options=("name=seccomp", "name=selinux", "name=rootless"))),
    ("sandbox-users", P, lambda: replace(WELL, user_ids_held=("guest has 2000000",))),
    ("sandbox-users", W, lambda: replace(WELL, user_ids="")),
    ("sandbox-users", W, lambda: engine(shared_users=(("0", ("default/a", "default/b")),))),
    ("live-restore", W, lambda: engine_facts(live_restore=False)),
    ("guard", W, lambda: kernel(unguarded="the table can't be read; load it")),
    ("resolvers", W, lambda: kernel(resolvers=("10.0.0.2",), dropped_resolvers=("10.0.0.2",))),
    ("state", W, lambda: replace(WELL, state=FolderFacts("/var/lib/paddock", 0o750, "root", "root", roots=True))),
    ("state", P, lambda: replace(WELL, state=FolderFacts("/var/lib/paddock", 0o770, "root", "root", roots=True))),
    ("bridges", W, lambda: kernel(forwarding=False)),
    ("clock", W, lambda: kernel(clock_synchronised=False)),
    ("clock", P, lambda: engine(skew_seconds=-60.0)),
    ("disk (engine)", W, lambda: use(disk=Supply(4 << 30, 1000 << 30))),
    ("inodes (engine)", P, lambda: use(inodes=Supply(1, 1000))),
    ("disk (state)", P, lambda: kernel(state_disk=Supply(1 << 20, 1000 << 30))),
    ("inodes (state)", P, lambda: kernel(state_inodes=Supply(0, 1000))),
    ("store", P, lambda: store(trouble="store x is damaged")),
    ("store", P, lambda: store(refuses="store x can't be written")),
    ("store", P, lambda: store(schema="9999", is_supported=False)),
    ("engine-socket", P, lambda: replace(WELL, engine_socket=SocketFacts("/s", 0o666, "root", "docker"))),
    ("paddock-socket", P, lambda: replace(WELL, daemon_socket=SocketFacts("/s", 0o777, "root", "root"))),
    ("paddock-socket", W, lambda: replace(WELL, daemon_socket=SocketFacts("/s", trouble="permission denied"))),
    ("paddock-socket", P, lambda: replace(WELL, socket_group="boxes", socket_group_exists=False)),
    ("host-roots", P, lambda: root(mode=None)),
    ("host-roots", P, lambda: root(mode=None, trouble="it is not a folder")),
    ("host-roots", P, lambda: root(hosts_own="is /etc under another name; system folders are never mounted")),
    ("host-roots", W, lambda: root(mode=0o777)),
    ("host-roots", W, lambda: root(maps_ids=False)),
    ("host-roots", W, lambda: root(maps_ids=None)),
    ("secrets", P, lambda: folder("secrets", mode=0o770)),
    ("secrets", P, lambda: folder("secrets", roots=False)),
    ("secrets", P, lambda: folder("secrets", mode=None, trouble="it is not a folder")),
]


@pytest.mark.parametrize(("check", "grade", "facts"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_each_problem_is_reported_with_a_remedy(check: str, grade: Severity, facts: Callable[[], DoctorFacts]) -> None:
    [finding] = not_well(facts())
    assert (finding.check, finding.grade) == (check, grade)
    assert finding.found
    assert finding.meaning
    assert finding.action


def test_sandboxes_of_older_images_name_the_build() -> None:
    names = ("default/a", "default/b")
    [shared] = not_well(engine(shared_users=(("20000", names),)))
    assert "images/build.sh" in shared.action
    [finding] = not_well(engine(shared_users=(("1000", names),)))
    assert "images/build.sh" not in finding.action


def test_an_engine_that_maps_users_has_its_own_range() -> None:
    options = ("name=seccomp", "name=selinux", "name=userns")
    [finding] = [entry for entry in judge(engine_facts(security_options=options)) if entry.check == "sandbox-users"]
    assert "20001-65533" in finding.found


def test_optional_parts_may_be_missing() -> None:
    empty = replace(WELL, host_roots=(), secrets=FolderFacts("/s"))
    assert not not_well(empty)
    assert not not_well(root(mode=0o1777))


def test_another_storage_driver() -> None:
    assert [finding.check for finding in not_well(engine_facts(storage_driver="vfs"))] == ["storage", "disk-quota"]


def test_the_containerd_store_is_told_as_it_is() -> None:
    [finding] = not_well(engine_facts(storage_driver="overlayfs"))
    assert (finding.check, "ignores it" in finding.found) == ("disk-quota", True)


def test_an_api_that_was_not_tried_is_told() -> None:
    [finding] = not_well(engine_facts(api_version="1.60"))
    assert (finding.check, finding.grade) == ("engine", W)
    assert "tried up to 1.51" in finding.meaning


def test_engine_findings_need_the_engine() -> None:
    findings = judge(replace(WELL, engine=EngineFacts("unix:///x", trouble="no Docker Engine answers at unix:///x")))
    checks = [finding.check for finding in findings]
    assert [finding.check for finding in findings if finding.grade is P] == ["engine"]
    assert "store" in checks
    assert "guard" in checks
    assert "seccomp" not in checks
    assert "disk (engine)" not in checks


def test_a_remote_engine_is_not_judged() -> None:
    far = replace(engine(address="tcp://far:2376", file_system="", mount_options=()), local=False)
    checks = {finding.check: finding for finding in judge(far)}
    assert (checks["host"].grade, "no metrics" in checks["host"].meaning) == (W, True)
    assert "run this on its host" in checks["disk-quota"].action
    assert not {"guard", "bridges", "disk (engine)", "engine-socket", "host-roots"} & set(checks)


def test_each_other_host_is_a_finding() -> None:
    hosts = (
        HostSighting("a", "1.1", is_alive=False),
        HostSighting("b", "1.1", is_alive=True),
        HostSighting("c", "1.0", is_alive=True),
        HostSighting("d", "", is_alive=False),
    )
    doctor_facts = replace(store(hosts=hosts, skew_seconds=0.4), host="a", version="1.1")
    document = {finding.check: finding for finding in judge(doctor_facts) if finding.check.startswith("host/")}
    assert {name: finding.grade for name, finding in document.items()} == {
        "host/b": Severity.OK,
        "host/c": Severity.WARNING,
        "host/d": Severity.WARNING,
    }
    assert document["host/c"].found == "its daemon is of build 1.0, and this command of 1.1"
    assert "paddock host remove d" in document["host/d"].action
    [clocks] = not_well(store(skew_seconds=-7.0))
    assert (clocks.check, "by -7 s" in clocks.found) == ("clocks", True)


def test_a_host_that_runs_may_be_in_trouble() -> None:
    guard = FailingCondition("NetworkGuard", "NetworkGuard is False (the table is gone)")
    engine = FailingCondition("EngineReachable", "EngineReachable is False (no answer)")
    hosts = (
        HostSighting("b", "", is_alive=True, unreachable="10.0.0.2:9466: no answer in time"),
        HostSighting("c", "", is_alive=True, failing=(engine, guard)),
        HostSighting("d", "", is_alive=True, address="10.0.0.3:9466"),
        HostSighting("e", "", is_alive=True, failing=(guard,)),
    )
    findings = not_well(store(hosts=hosts))
    assert [(finding.check, finding.grade) for finding in findings] == [
        ("host/b/reach", W),
        ("host/c/conditions", W),
        ("host/e/conditions", W),
    ]
    assert "10.0.0.2:9466: no answer in time" in findings[0].found
    assert "fleet_address" in findings[0].action
    assert findings[1].found == f"{engine.message}; {guard.message}"
    guarded = "no sandbox with a network is started there; those without one are not affected"
    assert findings[1].meaning == f"sandboxes of that host don't start, and are not kept; {guarded}"
    assert findings[2].meaning == guarded


def test_images_that_a_host_lacks_are_a_finding() -> None:
    ours = frozenset({"paddock/python:1", "paddock/egress:1", "team/app:1", "paddock/mcp/x:1-a"})
    hosts = (
        HostSighting("a", "", is_alive=True, images=ours),
        HostSighting("b", "", is_alive=True, images=frozenset({"paddock/python:1"})),
        HostSighting("c", "", is_alive=True),  # of an earlier version: not known
        HostSighting("d", "", is_alive=False, images=frozenset({"paddock/old:1"})),
    )
    [finding] = [entry for entry in judge(store(hosts=hosts)) if entry.check.endswith("/images")]
    assert (finding.check, finding.grade) == ("host/b/images", W)
    assert finding.found == "it lacks images that other hosts have: paddock/egress:1"


def test_a_new_or_old_store_is_fine() -> None:
    assert not not_well(store(schema=""))
    assert not not_well(store(schema="0003"))


def nodes(*sightings: NodeSighting) -> DoctorFacts:
    hosts = tuple(HostSighting(entry, "", is_alive=True) for entry in ("a", "b"))
    return replace(store(hosts=hosts), cluster=ClusterFacts("swarm", sightings), host="a")


def test_a_slow_heartbeat_is_a_finding() -> None:
    well = nodes(NodeSighting("a", is_up=True), NodeSighting("b", is_up=True))
    for seconds, checks in ((0.0, []), (1.0, []), (5.0, ["heartbeat"])):
        cluster = ClusterFacts("swarm", well.cluster.nodes if well.cluster else (), heartbeat_seconds=seconds)
        assert [finding.check for finding in not_well(replace(well, cluster=cluster))] == checks


def test_the_nodes_of_a_swarm_are_compared_with_the_hosts() -> None:
    well = NodeSighting("a", is_up=True), NodeSighting("b", is_up=True)
    assert not not_well(nodes(*well))
    [swarm] = [finding for finding in judge(nodes(*well)) if finding.check == "swarm"]
    assert swarm.found == "it can decide; 2 of 2 nodes are up"
    assert not not_well(nodes(*well, NodeSighting("web", is_up=True))), "others may use the swarm, too"
    for wrong, message in (
        ((well[0], NodeSighting("b", is_up=False, message="no answer")), "daemon runs (no answer)"),
        (well[:1], "no node has this host's name"),
    ):
        [observed] = not_well(nodes(*wrong))
        assert (observed.check, observed.grade, message in observed.found) == ("node/b", W, True), observed
    [twice] = not_well(nodes(*well, well[1]))
    assert (twice.check, twice.grade, twice.found) == ("node/b", P, "2 nodes have this name")


def test_a_silent_scheduler_is_one_finding() -> None:
    grades = {SchedulerProblem.NOT_A_MEMBER: W}
    for reason in SchedulerProblem:
        silent = ClusterFacts("swarm", reason=reason.value, trouble="in its own words")
        [finding] = not_well(replace(WELL, cluster=silent))
        assert (finding.check, finding.grade, finding.found) == ("swarm", grades.get(reason, P), "in its own words")
        assert finding.action


def test_a_certificate_ends_with_a_warning() -> None:
    assert not not_well(replace(WELL, certificate_days=31.0))
    for days, grade in ((29.0, W), (-1.0, P)):
        [finding] = not_well(replace(WELL, certificate_days=days))
        assert (finding.check, finding.grade) == ("certificate", grade)
