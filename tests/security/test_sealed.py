"""Probes 2 to 5 and 7 to 10 of the sealed levels, from the network namespace of a real sandbox, in the lab.

The lab's Internet logs every packet and every name: what must not leave is looked for there, not only at the sandbox.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.common.labels import container_name, egress_name
from controller.policy.addresses import SPECIAL_RANGES
from tests.daemon import RunningDaemon, wait_for
from tests.lab import inet, probe
from tests.lab.internet import HOST_SIDE, Lab, impossible

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]

HOSTS = ["git.example.org", "*.wild.example.net", "private.example.org", "lan.example.org"]
HOSTS += ["metadata.example.org", "loop.example.org", "zero.example.org"]
CLOSED = ("silent", "unreachable", "refused")


class SealedSandbox:
    """A sandbox of a sealed level that is Ready, and what its network lets it do."""

    def __init__(self, lab: Lab, daemon: RunningDaemon, name: str) -> None:
        self.lab, self.daemon, self.name = lab, daemon, name

    @property
    def uid(self) -> str:
        return str(self.daemon.get(self.name)["metadata"]["uid"])

    @property
    def container(self) -> str:
        return container_name(self.name, self.uid)

    @property
    def egress(self) -> str:
        return egress_name(self.uid)

    def inspect(self, container: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.lab.docker("inspect", container))[0]
        return document

    @property
    def proxy(self) -> str:
        """The address that its environment says."""
        env = dict(entry.split("=", 1) for entry in self.inspect(self.container)["Config"]["Env"])
        return env["HTTPS_PROXY"].removeprefix("http://").rpartition(":")[0]

    def command(self) -> list[str]:
        pid = self.inspect(self.container)["State"]["Pid"]
        return ["nsenter", f"--target={pid}", "--net", sys.executable, probe.__file__]

    def tries(self, *attempts: list[Any], seconds: float = 15) -> list[str]:
        """Return the outcome of each attempt; `seconds` for each answer of a proxy."""
        command = [*self.command(), str(seconds)]
        done = subprocess.run(command, input=json.dumps(attempts), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        document: list[str] = json.loads(done.stdout.splitlines()[-1])
        return document

    def until_proxied(self) -> None:
        """Wait until its proxy listens. A packet to one that is away is lost: it is soon sent again."""
        request = ["get", self.proxy, "http://git.example.org/"]
        wait_for("the proxy answers", lambda: self.tries(request, seconds=3) == ["200"], 60)


def spec(name: str, hosts: list[str]) -> str:
    body = {
        "template": {
            "image": "paddock/test-tiny:1",
            "command": ["sleep", "100000"],
            "securityLevel": "development",
            "resources": {"limits": {"memory": "256Mi", "cpu": "250m"}},
        },
        "network": {"allowedHosts": hosts},
        "lifecycle": {"shutdownGracePeriodSeconds": 0},
    }
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": body})


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    created = place.daemon(place.folder / "sealed", {"egress": 2}, PADDOCK_RESYNC_SECONDS="2")
    yield created
    created.stop()


def ready(place: Lab, daemon: RunningDaemon, name: str, hosts: list[str]) -> SealedSandbox:
    daemon.apply(spec(name, hosts))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
    daemon.paddock("wait", "--for=condition=NetworkReady", "--timeout=60s", f"sandbox/{name}")
    sandbox = SealedSandbox(place, daemon, name)
    sandbox.until_proxied()
    return sandbox


@pytest.fixture(scope="module")
def sandbox(place: Lab, daemon: RunningDaemon) -> SealedSandbox:
    return ready(place, daemon, "dev", HOSTS)


@pytest.fixture(scope="module")
def sibling(place: Lab, daemon: RunningDaemon) -> SealedSandbox:
    return ready(place, daemon, "sibling", ["git.example.org", "other.example.org"])


def gateway(sandbox: SealedSandbox) -> str:
    """The address that the engine sets aside for the host on the sandbox's bridge."""
    return sandbox.proxy.rpartition(".")[0] + "." + str(int(sandbox.proxy.rpartition(".")[2]) - 1)


def direct(sandbox: SealedSandbox, sibling: SealedSandbox) -> list[list[Any]]:
    """Probes 2 to 4: the Internet, metadata, this host by each of its addresses, another sandbox, two LANs."""
    networks = sibling.inspect(sibling.container)["NetworkSettings"]["Networks"].values()
    addresses = [network["IPAddress"] for network in networks]
    internet = [["tcp", inet.GIT, port] for port in (80, 443, 22)]
    present = [["tcp", name, inet.HOST_PORT] for name in (HOST_SIDE, "172.17.0.1", gateway(sandbox), "10.213.0.1")]
    siblings = [["tcp", entry, port] for entry in (*addresses, sibling.proxy) for port in (3128, 53, 80)]
    lans = [["tcp", name, 80] for name in (inet.METADATA, inet.LAN10, inet.LAN192)]
    return [*internet, *present, *siblings, *lans]


def names(sandbox: SealedSandbox, tag: str) -> list[list[Any]]:
    """Probe 5: a name by the engine's resolver, by the sink, and by resolvers outside, over UDP and TCP."""
    servers = ("127.0.0.11", sandbox.proxy, inet.DNS, HOST_SIDE, gateway(sandbox), "127.0.0.1")
    return [["ask", server, f"{tag}.leak.example.org", how] for server in servers for how in ("udp", "tcp")]


def nothing_leaves(place: Lab, sandbox: SealedSandbox, sibling: SealedSandbox, tag: str) -> None:
    """2 to 5 all at once, and at the Internet's end not one packet or name of them."""
    before = place.mark()
    tries = sandbox.tries(*direct(sandbox, sibling))
    assert set(tries) <= set(CLOSED), list(zip(direct(sandbox, sibling), tries, strict=True))
    answers = sandbox.tries(*names(sandbox, tag))
    assert set(answers) <= {*CLOSED, "nxdomain", "failed", "cut"}, list(zip(names(sandbox, tag), answers, strict=True))
    assert not [name for name in place.names() if tag in name]
    assert place.packets(before) == set()


def test_a_sealed_sandbox_reaches_nothing_by_itself(place: Lab, sandbox: SealedSandbox, sibling: SealedSandbox) -> None:
    nothing_leaves(place, sandbox, sibling, "plain")


def test_its_resolver_knows_no_name_and_says_so_at_once(sandbox: SealedSandbox) -> None:
    assert sandbox.tries(["ask", sandbox.proxy, "git.example.org", "udp"]) == ["nxdomain"]
    assert sandbox.tries(["ask", "127.0.0.11", "git.example.org", "udp"]) == ["nxdomain"]


def test_listed_names_are_reached_through_the_proxy(sandbox: SealedSandbox) -> None:
    assert sandbox.tries(
        ["get", sandbox.proxy, "http://git.example.org/"],
        ["tls", sandbox.proxy, "git.example.org", 443, "git.example.org"],
        ["tls", sandbox.proxy, "deep.wild.example.net", 443, "deep.wild.example.net"],
    ) == ["200", "tunnelled", "tunnelled"]


UNLISTED = [
    "other.example.org",
    "sub.git.example.org",
    "evilgit.example.org",
    "git.example.org.evil.example",
    "wild.example.net",
    "unlisted-tag.example.org",
]
LITERALS = [inet.GIT, "3325256784", "0xc6336450", "[::ffff:198.51.100.80]", "198.51.25680"]
INSIDE = ["private.example.org", "lan.example.org", "metadata.example.org", "loop.example.org", "zero.example.org"]


def test_every_other_name_and_address_is_refused(place: Lab, sandbox: SealedSandbox) -> None:
    """Probe 7; that an unlisted name is not resolved for the refusal is seen at the DNS."""
    hosts = [*UNLISTED, *LITERALS, *INSIDE]
    before = place.mark()
    gets = [["get", sandbox.proxy, f"http://{host}/"] for host in hosts]
    tunnels = [["tls", sandbox.proxy, host, 443, "git.example.org"] for host in hosts]
    for attempts in (gets, tunnels):
        document = dict(zip(hosts, sandbox.tries(*attempts), strict=True))
        assert set(document.values()) <= {"403", "400"}, document
    requested = place.names()
    assert not requested & set(UNLISTED) - {"other.example.org"}
    assert not {to for to, _ in place.packets(before)} & {inet.METADATA, inet.LAN10, inet.LAN192, inet.OTHER}


def test_ports_and_tricks_are_refused(sandbox: SealedSandbox) -> None:
    proxy = sandbox.proxy
    attempts = [
        ["tls", proxy, "git.example.org", 22, "git.example.org"],
        ["tls", proxy, "git.example.org", 80, "git.example.org"],
        ["get", proxy, "http://git.example.org:22/"],
        ["raw", proxy, "GET http://git.example.org@other.example.org/ HTTP/1.1\r\nHost: git.example.org\r\n\r\n"],
        ["raw", proxy, "GET http://other.example.org/ HTTP/1.1\r\nHost: git.example.org\r\n\r\n"],
        ["raw", proxy, "GET ftp://git.example.org/ HTTP/1.1\r\nHost: git.example.org\r\n\r\n"],
        ["tls", proxy, "git.example.org.", 22, "git.example.org"],
    ]
    tries = sandbox.tries(*attempts)
    assert set(tries) <= {"403", "400"}, list(zip(attempts, tries, strict=True))


def test_what_is_inside_a_tunnel_has_to_be_tls_for_a_listed_name(place: Lab, sandbox: SealedSandbox) -> None:
    """Probe 8."""
    proxy = sandbox.proxy
    before = place.mark()
    tries = sandbox.tries(
        ["tls", proxy, "git.example.org", 443, "other.example.org"],
        ["garble", proxy, "git.example.org", 443],
        ["tls", proxy, "git.example.org", 443, None],
    )
    assert set(tries) <= {"cut", "403"}, tries
    assert not {to for to, _ in place.packets(before)} - {inet.GIT, inet.DNS}
    assert sandbox.tries(["tls", proxy, "git.example.org", 443, "git.example.org"]) == ["tunnelled"]
    refusal = sandbox.tries(
        ["raw", proxy, "GET /squid-internal-mgr/info HTTP/1.1\r\nHost: localhost\r\n\r\n"],
        ["raw", proxy, "GET cache_object://localhost/info HTTP/1.0\r\n\r\n"],
        ["raw", proxy, "GET http://egress:3128/squid-internal-mgr/info HTTP/1.1\r\nHost: egress:3128\r\n\r\n"],
        ["raw", proxy, "GET / HTTP/1.1\r\nHost: git.example.org\r\n\r\n"],
    )
    assert set(refusal) <= {"400", "403", "404"}, refusal


def audited(daemon: RunningDaemon, sandbox: SealedSandbox, verdict: str, host: str) -> bool:
    """Return True if the audit log has the outcome for a host that this sandbox asked its proxy for."""
    items = json.loads(daemon.paddock("audit", "-o", "json").stdout)["items"]
    details = [
        entry["detail"] for entry in items if entry["verb"] == "egress" and entry["object"]["uid"] == sandbox.uid
    ]
    return any(host in detail.get(verdict, {}) for detail in details)


def test_what_the_proxy_did_is_told_and_in_the_audit_log(daemon: RunningDaemon, sandbox: SealedSandbox) -> None:
    assert sandbox.tries(["get", sandbox.proxy, "http://git.example.org/"]) == ["200"]
    assert sandbox.tries(["get", sandbox.proxy, "http://refused-tag.example.org/"]) == ["403"]
    output = daemon.paddock("logs", sandbox.name, "--egress").stdout
    assert " allowed GET git.example.org:80 " in output
    assert " refused GET refused-tag.example.org:80 " in output
    wait_for("it is in the audit log", lambda: audited(daemon, sandbox, "refused", "refused-tag.example.org"), 90)


def test_one_boxs_list_is_not_anothers(sandbox: SealedSandbox, sibling: SealedSandbox) -> None:
    assert sibling.tries(["get", sibling.proxy, "http://other.example.org/"]) == ["200"]
    assert sandbox.tries(["get", sandbox.proxy, "http://other.example.org/"]) == ["403"]


def test_a_killed_proxy_leaves_the_sandbox_closed_and_comes_back(
    place: Lab, sandbox: SealedSandbox, sibling: SealedSandbox
) -> None:
    """Probe 9. While it is frozen nobody answers; killed, it is replaced."""
    place.docker("pause", sandbox.egress)
    nothing_leaves(place, sandbox, sibling, "paused")
    before = sandbox.inspect(sandbox.container)["Id"]
    sandbox.until_proxied()
    place.docker("kill", sandbox.egress)
    nothing_leaves(place, sandbox, sibling, "killed")
    sandbox.until_proxied()
    assert sandbox.inspect(sandbox.container)["Id"] == before


def test_another_list_cuts_open_tunnels(place: Lab, daemon: RunningDaemon) -> None:
    sandbox = ready(place, daemon, "changing", ["git.example.org"])
    with subprocess.Popen(sandbox.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as open_:
        assert open_.stdin is not None
        assert open_.stdout is not None
        open_.stdin.write(json.dumps([["stay", sandbox.proxy, "git.example.org"]]))
        open_.stdin.close()
        assert open_.stdout.readline() == "open\n"
        assert sandbox.tries(["get", sandbox.proxy, "http://last-tag.example.org/"]) == ["403"]
        daemon.apply(spec("changing", ["other.example.org"]))
        assert json.loads(open_.stdout.read()) == ["cut"]
    wait_for(
        "the new list is in force",
        lambda: sandbox.tries(["get", sandbox.proxy, "http://other.example.org/"]) == ["200"],
        60,
    )
    assert sandbox.tries(["get", sandbox.proxy, "http://git.example.org/"]) == ["403"]
    # The log of the proxy before is gone with it; what it did last is not.
    assert audited(daemon, sandbox, "refused", "last-tag.example.org")
    assert audited(daemon, sandbox, "asked", "git.example.org")
    daemon.paddock("delete", "sandbox", "changing")


def test_a_network_joined_by_hand_is_left_again(place: Lab, sandbox: SealedSandbox) -> None:
    place.docker("network", "connect", "bridge", sandbox.container)
    wait_for(
        "it is taken off",
        lambda: list(sandbox.inspect(sandbox.container)["NetworkSettings"]["Networks"]) == [f"pdx-{sandbox.uid[:8]}"],
    )


def test_flushed_rules_leave_the_sandbox_closed_and_the_host_says_so(
    place: Lab, daemon: RunningDaemon, sandbox: SealedSandbox, sibling: SealedSandbox
) -> None:
    """Probe 10, but for the restart of the engine."""

    def guarded() -> str:
        observed = daemon.objects("hosts", "")[0]
        return next(
            condition["status"] for condition in observed["status"]["conditions"] if condition["type"] == "NetworkGuard"
        )

    saved = place.host.run("iptables-save")
    for message in (("-F",), ("-P", "FORWARD", "ACCEPT"), ("-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")):
        place.host.run("iptables", *message)
    nothing_leaves(place, sandbox, sibling, "flushed")
    place.host.run("nft", "flush", "ruleset")
    nothing_leaves(place, sandbox, sibling, "ruleset")
    wait_for("the host says so", lambda: guarded() == "False")
    output = daemon.paddock("apply", "-f", "-", stdin=spec("late", ["git.example.org"]), check=False)
    assert "can't be enforced here now" in output.stderr
    assert not daemon.get("late")
    place.guard()
    restore = place.host.enter("iptables-restore")
    subprocess.run(restore, input=saved, text=True, check=True, capture_output=True)
    wait_for("the host is guarded", lambda: guarded() == "True")
    sandbox.until_proxied()


def test_an_engine_that_restarts_opens_nothing_on_the_way(
    place: Lab, sandbox: SealedSandbox, sibling: SealedSandbox
) -> None:
    before = place.mark()
    place.engine.end()
    place.engine.start()
    wait_for(
        "it runs again", lambda: sandbox.daemon.condition(sandbox.name, "NetworkReady").get("status") == "True", 90
    )
    # An engine that was told to stop in the middle of a removal may take minutes to finish it when it is back.
    sandbox.daemon.paddock("wait", "--for=condition=Ready", "--timeout=110s", f"sandbox/{sandbox.name}")
    sibling.daemon.paddock("wait", "--for=condition=Ready", "--timeout=110s", f"sandbox/{sibling.name}")
    sandbox.until_proxied()
    sent = {to for to, _ in place.packets(before)}
    assert sent <= {inet.GIT, inet.DNS}, sent
    nothing_leaves(place, sandbox, sibling, "restarted")


def test_the_guard_holds_even_where_the_proxy_is_asked_to_break_it(place: Lab, sandbox: SealedSandbox) -> None:
    """The second wall by itself: from the egress container's place nothing private or special is reached."""
    pid = sandbox.inspect(sandbox.egress)["State"]["Pid"]
    attempts = [["tcp", name, 80] for name in (inet.METADATA, inet.LAN10, inet.LAN192)]
    attempts += [["tcp", name, inet.HOST_PORT] for name in (HOST_SIDE, "172.17.0.1", "10.213.0.1")]
    command = ["nsenter", f"--target={pid}", "--net", sys.executable, probe.__file__]
    done = subprocess.run(command, input=json.dumps(attempts), capture_output=True, text=True, timeout=60, check=True)
    assert set(json.loads(done.stdout)) == {"silent"}


def test_all_of_it_goes_with_the_sandbox(place: Lab, daemon: RunningDaemon) -> None:
    sandbox = ready(place, daemon, "gone", ["git.example.org"])
    uid = sandbox.uid
    daemon.paddock("delete", "sandbox", "gone")
    wait_for("it is gone", lambda: not daemon.get("gone"))
    assert place.docker("ps", "-aq", "--filter", "label=paddock.name=gone") == ""
    assert f"pdx-{uid[:8]}" not in place.docker("network", "ls", "--format", "{{.Name}}").split()


def test_the_guard_and_the_proxy_refuse_the_same_ranges() -> None:
    text = Path("deploy/paddock-guard.nft").read_text()
    assert all(special_range in text for special_range in SPECIAL_RANGES)


def test_what_it_sends_and_receives_is_measured(sandbox: SealedSandbox) -> None:
    """By its own interface, in a scrape; sandboxes of full isolation have no such figures."""
    url = sandbox.daemon.metrics_url()
    observe_now = ["nsenter", f"--target={sandbox.daemon.process.pid}", "--net", sys.executable, "-c"]
    program = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=30).read().decode())"

    def figures() -> list[float]:
        text = subprocess.run([*observe_now, program], capture_output=True, text=True, check=True, timeout=60).stdout
        lines = [line for line in text.splitlines() if f'sandbox="{sandbox.name}"' in line]
        texts = [f"paddock_container_network_{way}_bytes_total{{" for way in ("receive", "transmit")]
        return [float(line.rsplit(" ", 1)[1]) for name in texts for line in lines if line.startswith(name)]

    before = wait_for("figures of its network", figures)
    assert sandbox.tries(*[["get", sandbox.proxy, "http://git.example.org/"]] * 5) == ["200"] * 5
    after = figures()
    assert len(before) == len(after) == 2
    # Five requests and answers with their headers, and the packets around them.
    assert all(500 < now - later < 100_000 for later, now in zip(before, after, strict=True))
