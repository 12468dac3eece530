"""The probes of every level, by a process inside a real box of it, in the lab; the level table says what is expected.

One lab and one daemon for all: the boxes differ by their level alone. What a sealed box's proxy lets through, and what
becomes of it when things break, is test_sealed.py's.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.labels import container_name, local_name, public_name
from controller.policy.attest import mask_of
from controller.policy.levels import BUILT_IN, Level
from tests.daemon import RunningDaemon, wait_for
from tests.lab import inet, inside, probe
from tests.lab.internet import HOST_SIDE, Lab, impossible, lab

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]

IMAGE = "paddock/python:1"
PIDS, MEMORY_MIB = 40, 128
SIBLING_PORT = 8080
CLOSED = {"silent", "unreachable", "refused"}
LEVELS = ("full-isolation", "development", "build", "production", "local")
DENIED = {"EPERM", "EACCES", "ENOSYS", "EROFS", "EAFNOSUPPORT", "EINVAL", "EPROTONOSUPPORT", "ENOENT"}


@dataclass(frozen=True)
class Box:
    """A box of that level; `local` is `production` with the local network."""

    place: Lab
    daemon: RunningDaemon
    name: str

    @property
    def level(self) -> Level:
        return BUILT_IN["production" if self.name == "local" else self.name]

    @property
    def uid(self) -> str:
        return str(self.daemon.get(self.name)["metadata"]["uid"])

    @property
    def container(self) -> str:
        return container_name(self.name, self.uid)

    def inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.place.docker("inspect", self.container))[0]
        return found

    def address(self) -> str:
        networks = self.inspect()["NetworkSettings"]["Networks"].values()
        return next((each["IPAddress"] for each in networks if each["IPAddress"]), "")

    def run(self, source: Path, *arguments: str, stdin: str = "") -> Any:
        """The JSON that the program says, run by python in the box."""
        command = ["docker", "-H", self.place.engine.base_url, "exec", "-i", self.container]
        command += ["python3", "-c", source.read_text(), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    def tries(self, *attempts: list[Any]) -> list[str]:
        found: list[str] = self.run(Path(probe.__file__), stdin=json.dumps(attempts))
        return found

    def probes(self, *names: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self.run(Path(inside.__file__), *names)
        return found


def spec(name: str) -> str:
    template: dict[str, Any] = {
        "image": IMAGE,
        "command": ["python3", "-m", "http.server", str(SIBLING_PORT)],
        "securityLevel": "production" if name == "local" else name,
    }
    if name != "full-isolation":
        template["user"] = "0:0"  # whoever is root in there tries harder
    body: dict[str, Any] = {
        "template": template,
        "resources": {"limits": {"memory": f"{MEMORY_MIB}Mi", "cpu": "500m", "pids": PIDS}},
        "lifecycle": {"keepRunning": True},
    }
    if name == "local":
        body["network"] = {"localNetwork": "Allowed"}
    if name == "development":
        body["network"] = {"allowedHosts": ["git.example.org"]}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": body})


@pytest.fixture(scope="module")
def place() -> Iterator[Lab]:
    with lab("paddock/egress:1", IMAGE) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    made = place.daemon(
        place.folder / "state",
        PADDOCK_RESYNC_SECONDS="2",
        PADDOCK_LOCAL_NETWORK="true",
        PADDOCK_PACKAGE_SOURCES="[]",
        PADDOCK_CANARY_SECONDS="20",
        PADDOCK_PACKAGE_HOSTS='["other.example.org"]',
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def boxes(place: Lab, daemon: RunningDaemon) -> Mapping[str, Box]:
    for each in LEVELS:
        daemon.apply(spec(each))
    for each in LEVELS:
        for condition in ("Ready", "Secured", "NetworkReady"):
            daemon.paddock("wait", f"--for=condition={condition}", "--timeout=90s", f"sandbox/{each}")
    return {each: Box(place, daemon, each) for each in LEVELS}


@pytest.fixture(params=LEVELS)
def box(request: pytest.FixtureRequest, boxes: Mapping[str, Box]) -> Box:
    return boxes[request.param]


def test_what_a_process_is_inside(box: Box) -> None:
    """Probe 1."""
    mask = f"{mask_of(box.level.capabilities):016x}"
    root = box.name != "full-isolation"
    found = box.probes("bounding", "effective", "no-new-privileges", "seccomp", "uid")
    assert found == {
        "bounding": mask,
        "effective": mask if root else "0" * 16,
        "no-new-privileges": "1",
        "seccomp": "2",
        "uid": "0" if root else box.level.default_user.partition(":")[0],
    }


DENIED_TO_ALL = ("vsock", "alg", "packet", "raw", "mtu", "write /proc/sys", "write /sys", "make a cgroup", "mknod")
DENIED_TO_ALL += ("mount", "umount", "remount", "unshare", "setns", "open_by_handle_at", "bpf", "perf_event_open")
DENIED_TO_ALL += ("userfaultfd", "keyctl", "io_uring_setup")


def test_what_no_box_may_do(box: Box) -> None:
    """Probes 6, 12, 13."""
    found = box.probes(*DENIED_TO_ALL)
    assert {name: word for name, word in found.items() if word not in DENIED} == {}
    assert box.probes("ipv6") == {"ipv6": "0"}


def test_where_it_may_write_and_what_else_its_level_lets_it_do(box: Box) -> None:
    """Probes 11 and 12."""
    wanted = "EROFS" if box.level.read_only_root else "ok"
    found = box.probes("write /", "write /etc", "write /usr", "exec /tmp", "chroot")
    assert found == {
        "write /": wanted,
        "write /etc": wanted,
        "write /usr": wanted,
        "exec /tmp": "EACCES" if any(each.path == "/tmp" and each.noexec for each in box.level.tmpfs) else "ok",
        "chroot": "ok" if "SYS_CHROOT" in box.level.capabilities else "EPERM",
    }


def test_its_limits_hold(box: Box) -> None:
    """Probe 14."""
    found = box.probes("forks", "memory", "files")
    why, _, count = found["forks"].partition(" ")
    assert (why, int(count) < PIDS) == ("EAGAIN", True)
    assert found["memory"] == "killed"
    assert int(found["files"]) <= 16384
    if box.level.tmpfs:
        assert box.probes("fill /tmp") == {"fill /tmp": "ENOSPC"}


def test_nothing_of_the_host_is_in_there(box: Box) -> None:
    """Probe 16."""
    found = box.probes("host's things", "own processes", "variables")
    assert found == {"host's things": "none", "own processes": "True", "variables": "none"}


def expected(box: Box) -> Mapping[str, set[str]]:
    """What becomes of a connection by where it goes: probes 2 to 4."""
    internet = box.level.network == "public"
    none = {"unreachable"} if box.level.network == "none" else CLOSED
    dropped = {"silent", "unreachable"} if internet else none
    return {
        "internet": {"open"} if internet else none,
        "metadata": dropped,
        "host": dropped,
        "sibling": dropped,
        "lan": {"open"} if box.name == "local" else dropped,
    }


def targets(boxes: Mapping[str, Box], box: Box) -> Mapping[str, list[tuple[str, int]]]:
    others = [each for each in boxes.values() if each.name not in (box.name, "full-isolation")]
    gateways = [each["Gateway"] for each in box.inspect()["NetworkSettings"]["Networks"].values() if each["Gateway"]]
    host = [HOST_SIDE, "172.17.0.1", "10.213.0.1", *gateways]
    return {
        "internet": [(inet.GIT, port) for port in (80, 443, 22)],
        "metadata": [(inet.METADATA, 80)],
        "host": [(each, inet.HOST_PORT) for each in host],
        "sibling": [(each.address(), SIBLING_PORT) for each in others],
        "lan": [(inet.LAN10, 80), (inet.LAN192, 80)],
    }


def differing(boxes: Mapping[str, Box], box: Box, *, but: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """What a box reaches otherwise than its level says, by where it is."""
    aims, wanted = targets(boxes, box), expected(box)
    attempts = [["tcp", address, port] for aim in aims.values() for address, port in aim]
    found = iter(box.tries(*attempts))
    became = {name: [next(found) for _ in aim] for name, aim in aims.items()}
    return {name: each for name, each in became.items() if name not in but and not set(each) <= wanted[name]}


def test_what_it_reaches(place: Lab, boxes: Mapping[str, Box], box: Box) -> None:
    """Probes 2 to 4; what must not leave is not seen at the Internet's end, either."""
    before = place.mark()
    assert differing(boxes, box) == {}
    arrived = {to for to, _ in place.packets(before)}
    private = {inet.LAN10, inet.LAN192} if box.name != "local" else set()
    assert not arrived & {inet.METADATA, *private}
    if box.level.network != "public":
        assert arrived == set()


def test_which_names_it_learns(place: Lab, box: Box) -> None:
    """Probe 5: the host's resolver is on its loopback, as systemd's is."""
    tag = f"{box.name}-tag"
    own = box.tries(["ask", "127.0.0.11", "git.example.org", "udp"])
    if box.level.network == "public":
        assert own == [inet.GIT]
        return
    assert set(own) <= {*CLOSED, "nxdomain", "failed"}
    servers = ("127.0.0.11", inet.DNS, HOST_SIDE, "127.0.0.1")
    answers = box.tries(*[["ask", each, f"{tag}.example.org", how] for each in servers for how in ("udp", "tcp")])
    assert set(answers) <= {*CLOSED, "nxdomain", "failed"}
    assert not [each for each in place.names() if tag in each]


def test_build_reaches_the_operators_hosts_and_no_others(boxes: Mapping[str, Box]) -> None:
    """Probe 7, of another level's list."""
    for name, listed, refused in (
        ("build", "other.example.org", "git.example.org"),
        ("development", "git.example.org", "other.example.org"),
    ):
        env = dict(each.split("=", 1) for each in boxes[name].inspect()["Config"]["Env"])
        proxy = env["HTTP_PROXY"].removeprefix("http://").rpartition(":")[0]
        gets = [["get", proxy, f"http://{each}/"] for each in (listed, refused)]
        wait_for("the proxy answers", lambda box=boxes[name], gets=gets: box.tries(gets[0]) == ["200"], 60)
        assert boxes[name].tries(*gets) == ["200", "403"]


def test_the_network_is_the_boxs_own_and_attested(boxes: Mapping[str, Box], daemon: RunningDaemon) -> None:
    for name, wanted in (("production", public_name), ("local", local_name)):
        assert list(boxes[name].inspect()["NetworkSettings"]["Networks"]) == [wanted(boxes[name].uid)]
        assert daemon.paddock("attest", name).returncode == 0


def test_a_start_of_production_is_in_the_audit_log(daemon: RunningDaemon, boxes: Mapping[str, Box]) -> None:
    items = json.loads(daemon.paddock("audit", "-o", "json").stdout)["items"]
    started = {each["object"]["uid"] for each in items if each["verb"] == "start"}
    assert started == {boxes["production"].uid, boxes["local"].uid}


def guarded(daemon: RunningDaemon) -> tuple[str, str]:
    """Status and message of the host's condition."""
    host = json.loads(daemon.paddock("get", "host", "-o", "json").stdout)
    found = host["items"][0] if "items" in host else host
    condition = next(each for each in found["status"]["conditions"] if each["type"] == "NetworkGuard")
    return condition["status"], condition.get("message", "")


def test_the_canary_tells_of_a_guard_that_stands_and_does_not_hold(
    place: Lab, daemon: RunningDaemon, boxes: Mapping[str, Box]
) -> None:
    """Probe 10: all its rules are there, and one more that lets everything in."""
    wait_for("the guard was tried", lambda: "tried from inside" in guarded(daemon)[1], 60)
    place.host.run("nft", "insert", "rule", "inet", "paddock", "to_host", "accept")
    wait_for("the host says so", lambda: guarded(daemon)[0] == "False", 90)
    assert HOST_SIDE in guarded(daemon)[1]
    late = spec("development").replace('"development"}', '"late"}')
    refused = daemon.paddock("apply", "-f", "-", stdin=late, check=False)
    assert "can't be enforced here now" in refused.stderr
    assert daemon.condition("production", "NetworkReady")["status"] == "False"
    place.guard()
    wait_for("the host is guarded", lambda: guarded(daemon)[0] == "True", 90)
    wait_for("it is told", lambda: daemon.condition("production", "NetworkReady")["status"] == "True", 60)
    wait_for("nothing is left of it", lambda: not place.docker("ps", "-aq", "--filter", "label=paddock.canary"), 60)


def test_flushed_rules_of_the_engine_leave_the_guards_part(place: Lab, boxes: Mapping[str, Box]) -> None:
    """Probe 10: whatever the engine's own rules were, the guard's stand."""
    saved = place.host.run("iptables-save")
    for words in (("-F",), ("-P", "FORWARD", "ACCEPT"), ("-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")):
        place.host.run("iptables", *words)
    try:
        for name in LEVELS:
            assert differing(boxes, boxes[name]) == {}, name
    finally:
        restore = place.host.enter("iptables-restore")
        subprocess.run(restore, input=saved, text=True, check=True, capture_output=True)
