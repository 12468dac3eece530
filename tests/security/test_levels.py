"""The probes of every level, by a process inside a real sandbox of it, in the lab, against the level table.

One lab and one daemon for all: the sandboxes differ by their level alone. What a sealed sandbox's proxy lets through,
and what becomes of it when things break, is in test_sealed.py.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controller.kinds.common.labels import container_name, local_name, public_name
from controller.kinds.runtime import agent
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.policy.attest.attest import mask_of
from controller.policy.levels.levels import BUILT_IN
from controller.policy.levels.seccomp import MINIMAL
from paddock._client.errors import Refused
from tests.daemon import ROOT, RunningDaemon, wait_for
from tests.lab import inet
from tests.lab.internet import HOST_SIDE, Lab, impossible
from tests.lab.sandboxes import CPU_MILLICORES, IMAGE, LEVELS, PIDS, SECRET, SIBLING_PORT, LabSandbox, document, spec
from tests.lab.tricks import TRICKY, WHEN_OPENED, binding, host_root, refused_at_the_door, tricked, tricky_image
from tests.mounts import unmount_below
from tests.raw_client import Paddock
from tests.security.test_container_bench import LEFT_OPEN, left_open

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]

CLOSED = {"silent", "unreachable", "refused"}
AGENT = "write /.paddock"
DENIED = {"EPERM", "EACCES", "ENOSYS", "EROFS", "EAFNOSUPPORT", "EINVAL", "EPROTONOSUPPORT", "ENOENT"}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with host_root() as created:
        yield created


@pytest.fixture(scope="module")
def daemon(place: Lab, root: Path) -> Iterator[RunningDaemon]:
    place.load(IMAGE)
    secrets = place.folder / "secrets-of-levels"
    for folder in (secrets, secrets / "default"):
        folder.mkdir(mode=0o700)
    (secrets / "default" / "token").write_text(SECRET)
    (secrets / "default" / "token").chmod(0o600)
    created = place.daemon(
        place.folder / "levels",
        {"canary": 1},
        PADDOCK_SECRETS_DIR=str(secrets),
        PADDOCK_HOST_ROOTS=json.dumps([{"path": str(root)}]),
        PADDOCK_RESYNC_SECONDS="2",
        PADDOCK_LOCAL_NETWORK="true",
        PADDOCK_PACKAGE_SOURCES="[]",
        PADDOCK_CANARY_SECONDS="5",
        PADDOCK_PACKAGE_HOSTS='["other.example.org"]',
    )
    yield created
    created.stop()
    place.remove_containers()
    unmount_below(Path("/run/paddock/mounts") / created.instance_id())


@pytest.fixture(scope="module")
def sandboxes(place: Lab, daemon: RunningDaemon) -> Mapping[str, LabSandbox]:
    for level in LEVELS:
        daemon.apply(spec(level))
    for name in LEVELS:
        for condition in ("Ready", "Secured", "NetworkReady"):
            daemon.paddock("wait", f"--for=condition={condition}", "--timeout=90s", f"sandbox/{name}")
    return {entry: LabSandbox(place, daemon, entry) for entry in LEVELS}


@pytest.fixture(params=LEVELS)
def sandbox(request: pytest.FixtureRequest, sandboxes: Mapping[str, LabSandbox]) -> LabSandbox:
    return sandboxes[request.param]


def test_what_a_process_is_inside(sandbox: LabSandbox, daemon: RunningDaemon) -> None:
    """Probe 1."""
    its_own = daemon.get(sandbox.name)["status"]["user"].partition(":")[0]
    mask = f"{mask_of(sandbox.level.capabilities):016x}"
    root = sandbox.name != "full-isolation"
    probes = sandbox.probes("bounding", "effective", "no-new-privileges", "seccomp", "uid")
    assert probes == {
        "bounding": mask,
        "effective": mask if root else "0" * 16,
        "no-new-privileges": "1",
        "seccomp": "2",
        "uid": "0" if root else its_own,
    }
    assert root or int(its_own) >= 2_000_000


DENIED_TO_ALL = ("vsock", "alg", "packet", "raw", "mtu", "write /proc/sys", "write /sys", "make a cgroup", "mknod")
DENIED_TO_ALL += ("mount", "umount", "remount", "unshare", "setns", "open_by_handle_at", "bpf", "perf_event_open")
DENIED_TO_ALL += ("userfaultfd", "keyctl", "io_uring_setup", "clone", "clone3", "ptrace others")


def test_what_no_sandbox_may_do(sandbox: LabSandbox) -> None:
    """Probes 6, 12, 13."""
    probes = sandbox.probes(*DENIED_TO_ALL)
    assert {name: word for name, word in probes.items() if word not in DENIED} == {}
    assert sandbox.probes("ipv6", "int 0x80", "x32") == {"ipv6": "0", "int 0x80": "SIGSYS", "x32": "SIGSYS"}


def test_where_it_may_write_and_what_else_its_level_lets_it_do(sandbox: LabSandbox) -> None:
    """Probes 11 to 13."""
    text = "EROFS" if sandbox.level.read_only_root else "ok"
    runs = "EACCES" if any(tmpfs.path == "/tmp" and tmpfs.noexec for tmpfs in sandbox.level.tmpfs) else "ok"
    probes = sandbox.probes("write /", "write /etc", "write /usr", "exec /tmp", "ld.so /tmp", "chroot", "ptrace", AGENT)
    assert probes == {
        "write /": text,
        "write /etc": text,
        "write /usr": text,
        AGENT: "ENOENT" if sandbox.name == "local" else "EROFS",
        "exec /tmp": runs,
        "ld.so /tmp": runs,
        "chroot": "ok" if "SYS_CHROOT" in sandbox.level.capabilities else "EPERM",
        "ptrace": "EPERM" if sandbox.level.seccomp == MINIMAL else "ok",
    }


def test_its_limits_hold(sandbox: LabSandbox) -> None:
    """Probe 14."""
    probes = sandbox.probes("forks", "memory", "descriptors")
    why, _, count = probes["forks"].partition(" ")
    assert (why, int(count) < PIDS) == ("EAGAIN", True)
    assert (probes["memory"], probes["descriptors"]) == ("killed", "EMFILE")
    if sandbox.level.tmpfs:
        assert sandbox.probes("fill /tmp", "names") == {"fill /tmp": "ENOSPC", "names": "ENOSPC"}


def test_none_takes_more_of_the_processors_or_of_the_disk_for_its_log(sandboxes: Mapping[str, LabSandbox]) -> None:
    """Probe 14, of all at once: over two seconds, and by 30 MB of output."""
    with ThreadPoolExecutor() as pool:
        observed = dict(
            zip(sandboxes, pool.map(lambda each: each.probes("cpu", "say"), sandboxes.values()), strict=True)
        )
    assert {name: entry["say"] for name, entry in observed.items()} == dict.fromkeys(sandboxes, "ok")
    # At either end of the two seconds there is a period of a tenth of one, of which all may fall within.
    assert {name: entry["cpu"] for name, entry in observed.items() if int(entry["cpu"]) > CPU_MILLICORES * 1.1} == {}
    config = ContainerConfig(image="", name="", limits=Limits(0, 0, 0), hostname="")
    most = config.log_max_bytes * config.log_files
    for name, sandbox in sandboxes.items():
        log = Path(sandbox.inspect()["LogPath"])
        assert 0 < sum(path.stat().st_size for path in log.parent.glob(f"{log.name}*")) < most + 100_000, name


def test_its_disk_is_held_to_its_limit_or_it_says_that_it_is_not(sandbox: LabSandbox) -> None:
    """Probe 15; that a soft limit stops the sandbox is a test of its own (tests/e2e/test_disk.py)."""
    condition = sandbox.daemon.condition(sandbox.name, "DiskQuotaEnforced")
    if sandbox.level.read_only_root:
        assert (condition["status"], condition["reason"]) == ("True", "InMemory")
    elif host_condition(sandbox.daemon, "DiskQuotaEnforceable")[0] == "True":
        assert (condition["status"], condition["reason"]) == ("True", "StorageOption")
        assert sandbox.probes("fill /") in ({"fill /": "EDQUOT"}, {"fill /": "ENOSPC"})
    else:
        assert (condition["status"], condition["reason"]) == ("False", "Soft")
        assert "soft" in condition["message"]


def test_nothing_of_the_host_is_in_there(sandbox: LabSandbox) -> None:
    """Probe 16."""
    probes = sandbox.probes("host's things", "own processes", "variables")
    assert probes == {"host's things": "none", "own processes": "True", "variables": "none"}


@pytest.fixture(scope="module")
def paddock(daemon: RunningDaemon) -> Iterator[Paddock]:
    with Paddock(f"unix://{daemon.socket}") as created:
        yield created


def says(paddock: Paddock, name: str, words: str) -> None:
    """Wait until a sandbox that is not started says why."""

    def said() -> bool:
        conditions = paddock.get("sandboxes", name).get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and words in condition.get("message", "") for condition in conditions)

    wait_for(f"{name}: {words}", said, 90)


def test_what_an_image_brings_along_is_refused_covered_or_idle(
    place: Lab, daemon: RunningDaemon, paddock: Paddock
) -> None:
    """Probe 17: a VOLUME, labels that pass for ours, a variable of the loader's, a setuid program."""
    tricky_image(place)
    created = {name: entry for level in BUILT_IN for name, entry in tricked(level).items()}
    paddock.apply("\n---\n".join(created.values()))
    covered = [f"covered-{level}" for level in BUILT_IN]
    daemon.paddock("wait", "--for=condition=Secured", "--timeout=90s", *(f"sandbox/{entry}" for entry in covered))
    for name in covered:
        uid = paddock.get("sandboxes", name)["metadata"]["uid"]
        (inspected,) = json.loads(place.docker("inspect", container_name(name, uid)))
        user = inspected["Config"]["User"].partition(":")[0] or "20000"  # its own, or the image's
        assert place.docker("exec", inspected["Id"], "gain", "-u") == user
        labels = inspected["Config"]["Labels"]
        assert (labels["paddock.uid"], labels["paddock.name"], labels["paddock.made-up"]) == (uid, name, "")
        assert not [mount for mount in inspected["Mounts"] if mount["Type"] == "volume"]
    for level in BUILT_IN:
        says(paddock, f"plain-{level}", "VOLUME /data")
        says(paddock, f"plain-{level}", "sets LD_PRELOAD")
    of_it = place.docker("ps", "-a", "--filter", f"ancestor={TRICKY}", "--format", "{{.Names}}").split()
    assert not [entry for entry in of_it if "plain" in entry]
    for name in created:
        paddock.delete("sandboxes", name)


def test_only_plain_folders_below_the_operators_roots_are_bound(paddock: Paddock, root: Path) -> None:
    """Probe 18: what a folder's name says, and what it leads to or holds."""
    for entry in (text for level in BUILT_IN for text in refused_at_the_door(level, root)):
        with pytest.raises(Refused):
            paddock.apply(entry)
    created = {f"{folder}-{level}": (level, folder) for level in BUILT_IN for folder in WHEN_OPENED}
    specs = [binding(name, level, str(root / folder)) for name, (level, folder) in created.items()]
    paddock.apply("\n---\n".join(specs))
    for name, (_, folder) in created.items():
        says(paddock, name, WHEN_OPENED[folder])
        paddock.delete("sandboxes", name)


def test_the_project_of_the_examples_works_in_its_folder(
    place: Lab, daemon: RunningDaemon, paddock: Paddock, root: Path
) -> None:
    folder = root / "my-app"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    example = (ROOT / "specs/sandbox/project.yaml").read_text().replace("/srv/projects/my-app", str(folder))
    paddock.apply(example.replace("1Gi", "8Mi"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/project")
    daemon.paddock("wait", "--for=condition=Secured", "--timeout=90s", "sandbox/project")
    writes = "echo own >/workspace/src/a && echo kept >/workspace/data/b && cat /workspace/data/b"
    assert daemon.paddock("exec", "project", "--", "sh", "-c", writes).stdout == "kept\n"
    assert ((folder / "a").read_text(), (folder / "a").stat().st_uid) == ("own\n", 12345)
    with paddock.sandbox("project").connect(agent.PORT) as link:
        link.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b"".join(iter(link.receive, b"")).split()[1] == b"200"
    paddock.delete("sandboxes", "project")


def files_below(folder: Path) -> list[Path]:
    """Also where folders come and go meanwhile, as the canary's containers do."""
    return [Path(above, name) for above, _, names in os.walk(folder) for name in names]


def read(file: Path) -> str:
    """Return the text of a file; empty for one that has just gone."""
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_secret_is_in_the_sandboxes_and_nowhere_else(
    place: Lab, daemon: RunningDaemon, sandboxes: Mapping[str, LabSandbox]
) -> None:
    """Probe 19."""
    containers = [sandbox.container for sandbox in sandboxes.values()]
    for container in containers:
        assert place.docker("exec", container, "cat", "/run/secrets/token") == SECRET
    answer = {
        "inspect": place.docker("inspect", *containers),
        "events": place.docker("events", "--since", "0", "--until", "0s"),
        "logs": "".join(place.docker("logs", "--tail", "1000", name) for name in containers),
        "processes": "".join(map(read, Path("/proc").glob("[0-9]*/cmdline"))),
        "environments": "".join(map(read, Path("/proc").glob("[0-9]*/environ"))),
        "the daemon's log": "".join(daemon.log),
    }
    for message in ("get sandboxes -o yaml", "describe sandbox", "events", "audit -o json"):
        answer[message] = daemon.paddock(*message.split()).stdout
    assert [name for name, text in answer.items() if not text] == []
    for folder in (place.folder / "levels", place.folder / "data" / "containers"):
        answer |= {str(path): read(path) for path in files_below(folder) if path.is_file()}
    assert [name for name, text in answer.items() if SECRET in text] == []


def test_only_what_the_level_leaves_open_fails_the_benchmark(sandbox: LabSandbox) -> None:
    """Probe 20."""
    assert left_open(sandbox.inspect()) == LEFT_OPEN[sandbox.level.name]


def expected(sandbox: LabSandbox) -> Mapping[str, set[str]]:
    """Outcomes of a connection by its target: probes 2 to 4."""
    internet = sandbox.level.network == "public"
    none = {"unreachable"} if sandbox.level.network == "none" else CLOSED
    dropped = {"silent", "unreachable"} if internet else none
    return {
        "internet": {"open"} if internet else none,
        "metadata": dropped,
        "host": dropped,
        "sibling": dropped,
        "lan": {"open"} if sandbox.name == "local" else dropped,
    }


def targets(sandboxes: Mapping[str, LabSandbox], sandbox: LabSandbox) -> Mapping[str, list[tuple[str, int]]]:
    siblings = [sibling for sibling in sandboxes.values() if sibling.name not in (sandbox.name, "full-isolation")]
    gateways = [
        network["Gateway"]
        for network in sandbox.inspect()["NetworkSettings"]["Networks"].values()
        if network["Gateway"]
    ]
    host = [HOST_SIDE, "172.17.0.1", "10.213.0.1", *gateways]
    return {
        "internet": [(inet.GIT, port) for port in (80, 443, 22)],
        "metadata": [(inet.METADATA, 80)],
        "host": [(entry, inet.HOST_PORT) for entry in host],
        "sibling": [(sibling.address(), SIBLING_PORT) for sibling in siblings],
        "lan": [(inet.LAN10, 80), (inet.LAN192, 80)],
    }


def differing(
    sandboxes: Mapping[str, LabSandbox], sandbox: LabSandbox, *, but: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """Return targets that a sandbox reaches otherwise than its level says, by their place."""
    aims, desired = targets(sandboxes, sandbox), expected(sandbox)
    attempts = [["tcp", address, port] for aim in aims.values() for address, port in aim]
    tries = iter(sandbox.tries(*attempts))
    became = {name: [next(tries) for _ in aim] for name, aim in aims.items()}
    return {name: group for name, group in became.items() if name not in but and not set(group) <= desired[name]}


def all_differing(
    sandboxes: Mapping[str, LabSandbox], names: Iterable[str] = LEVELS, *, but: tuple[str, ...] = ()
) -> dict[str, dict[str, list[str]]]:
    """Return the same of these sandboxes, by name; all are tried at once, for nobody answers what is closed."""
    with ThreadPoolExecutor() as pool:
        targets = pool.map(lambda name: differing(sandboxes, sandboxes[name], but=but), names)
        return {name: target for name, target in zip(names, targets, strict=True) if target}


def test_what_it_reaches(place: Lab, sandboxes: Mapping[str, LabSandbox], sandbox: LabSandbox) -> None:
    """Probes 2 to 4; what must not leave is not seen at the Internet's end, either."""
    before = place.mark()
    assert differing(sandboxes, sandbox) == {}
    arrived = {to for to, _ in place.packets(before)}
    private = {inet.LAN10, inet.LAN192} if sandbox.name != "local" else set()
    assert not arrived & {inet.METADATA, *private}
    if sandbox.level.network != "public":
        assert arrived == set()


def test_which_names_it_learns(place: Lab, sandbox: LabSandbox) -> None:
    """Probe 5: the host's resolver is on its loopback, as systemd's is."""
    tag = f"{sandbox.name}-tag"
    own_texts = sandbox.tries(["ask", "127.0.0.11", "git.example.org", "udp"])
    if sandbox.level.network == "public":
        assert own_texts == [inet.GIT]
        return
    assert set(own_texts) <= {*CLOSED, "nxdomain", "failed"}
    servers = ("127.0.0.11", inet.DNS, HOST_SIDE, "127.0.0.1")
    answers = sandbox.tries(
        *[["ask", server, f"{tag}.example.org", how] for server in servers for how in ("udp", "tcp")]
    )
    assert set(answers) <= {*CLOSED, "nxdomain", "failed"}
    assert not [name for name in place.names() if tag in name]


def test_build_reaches_the_operators_hosts_and_no_others(sandboxes: Mapping[str, LabSandbox]) -> None:
    """Probe 7, of another level's list."""
    for name, listed, message in (
        ("build", "other.example.org", "git.example.org"),
        ("development", "git.example.org", "other.example.org"),
    ):
        env = dict(entry.split("=", 1) for entry in sandboxes[name].inspect()["Config"]["Env"])
        proxy = env["HTTP_PROXY"].removeprefix("http://").rpartition(":")[0]
        gets = [["get", proxy, f"http://{entry}/"] for entry in (listed, message)]
        wait_for("the proxy answers", lambda sandbox=sandboxes[name], gets=gets: sandbox.tries(gets[0]) == ["200"], 60)
        assert sandboxes[name].tries(*gets) == ["200", "403"]


def test_the_network_is_its_own_and_attested(sandboxes: Mapping[str, LabSandbox], daemon: RunningDaemon) -> None:
    for name, desired in (("production", public_name), ("local", local_name)):
        assert list(sandboxes[name].inspect()["NetworkSettings"]["Networks"]) == [desired(sandboxes[name].uid)]
        assert daemon.paddock("attest", name).returncode == 0


def test_a_start_of_production_is_in_the_audit_log(daemon: RunningDaemon, sandboxes: Mapping[str, LabSandbox]) -> None:
    items = json.loads(daemon.paddock("audit", "-o", "json").stdout)["items"]
    started = [entry["object"] for entry in items if entry["verb"] == "start"]
    uids = {entry["uid"] for entry in started if entry["name"] in sandboxes}
    assert uids == {sandboxes["production"].uid, sandboxes["local"].uid}


def host_condition(daemon: RunningDaemon, type_: str) -> tuple[str, str]:
    """Status and message of a condition of the host."""
    observed = daemon.objects("hosts", "")[0]
    condition = next(entry for entry in observed["status"]["conditions"] if entry["type"] == type_)
    return condition["status"], condition.get("message", "")


def guarded(daemon: RunningDaemon) -> tuple[str, str]:
    return host_condition(daemon, "NetworkGuard")


def test_the_canary_tells_of_a_guard_that_stands_and_does_not_hold(
    place: Lab, daemon: RunningDaemon, sandboxes: Mapping[str, LabSandbox]
) -> None:
    """Probe 10: all its rules are there, and two more, which let everything in, and the local network through.

    This host's way to elsewhere leads by one of the local network's hosts.
    """
    wait_for("the guard was tried", lambda: "probed from inside" in guarded(daemon)[1], 60)
    elsewhere = ("192.0.2.0/24", "via", inet.LAN10, "dev", "up0", "onlink")
    place.host.run("ip", "route", "add", *elsewhere)
    rules = ("to_host accept", "outward ip daddr 10.0.0.0/8 accept")
    place.host.run("nft", "; ".join(f"insert rule inet paddock {rule}" for rule in rules))
    wait_for("the host says so", lambda: guarded(daemon)[0] == "False", 90)
    _, message = guarded(daemon)
    assert HOST_SIDE in message
    assert f"the local network ({inet.LAN10})" in message
    late = document("late", "development", {"image": IMAGE})
    output = daemon.paddock("apply", "-f", "-", stdin=late, check=False)
    assert "can't be enforced here now" in output.stderr
    wait_for("it is told", lambda: daemon.condition("production", "NetworkReady")["status"] == "False", 60)
    place.guard()
    place.host.run("ip", "route", "del", *elsewhere)
    wait_for("the host is guarded", lambda: guarded(daemon)[0] == "True", 90)
    wait_for("it is told", lambda: daemon.condition("production", "NetworkReady")["status"] == "True", 60)
    wait_for("nothing is left of it", lambda: not place.docker("ps", "-aq", "--filter", "label=paddock.canary"), 60)


def test_a_guard_that_is_lost_freezes_what_only_it_confines(
    place: Lab, daemon: RunningDaemon, sandboxes: Mapping[str, LabSandbox]
) -> None:
    """Probe 10: the table's sets emptied, then the table gone; sealed levels run on as they are."""
    for message in (("flush", "set", "inet", "paddock", "private"), ("delete", "table", "inet", "paddock")):
        place.host.run("nft", *message)
        for name in ("production", "local"):
            wait_for("it is frozen", lambda name=name: sandboxes[name].inspect()["State"]["Paused"], 60)
            wait_for(
                "it is told", lambda name=name: daemon.condition(name, "Ready")["reason"] == "NetworkUnguarded", 60
            )
        sealed = sorted(set(LEVELS) - {"production", "local"})
        assert not [name for name in sealed if sandboxes[name].inspect()["State"]["Paused"]]
        assert all_differing(sandboxes, sealed) == {}
        place.guard()
        for name in ("production", "local"):
            wait_for("it goes on", lambda name=name: daemon.condition(name, "Ready")["status"] == "True", 60)
        assert all_differing(sandboxes, ("production", "local"), but=("sibling",)) == {}


def test_flushed_rules_of_the_engine_leave_the_guards_part(place: Lab, sandboxes: Mapping[str, LabSandbox]) -> None:
    """Probe 10: whatever the engine's own rules were, the guard's stand."""
    saved = place.host.run("iptables-save")
    for message in (("-F",), ("-P", "FORWARD", "ACCEPT"), ("-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")):
        place.host.run("iptables", *message)
    try:
        assert all_differing(sandboxes) == {}
    finally:
        restore = place.host.enter("iptables-restore")
        subprocess.run(restore, input=saved, text=True, check=True, capture_output=True)
