"""Usage of the sandboxes of all hosts: the daemon that is asked asks the others, and names those that don't answer."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from controller.api.app import create_app
from controller.api.fleet import collect
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.links import Links
from controller.api.fleet.tls import FleetTls
from controller.api.listeners import ListenerRules, Listeners
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.ports.fleet import ManyHosts
from controller.service.fleet.locations import Locations, OtherHost
from controller.service.sandbox.usage import Usages
from paddock import Paddock
from tests.api.listeners import client, token
from tests.api.test_fleet import Leased, Place, announce, ask, identity, replace_listeners
from tests.fleet_files import Authority
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.metrics.made_up import USAGE

ALL = "/apis/paddock/v1alpha1/sandboxes/-/metrics"
DEFAULT = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/-/metrics"


@dataclass
class Samples:
    """Usage of the sandboxes that run on one host."""

    api: ApiStack
    names: Sequence[str] = ()
    read: int = 0

    def __call__(self) -> Mapping[str, UsageSample]:
        self.read += 1
        document = {}
        for name in self.names:
            uid = self.api.sandbox(name).uid
            running = Container(id=name, name=name, uid=uid, state=State.RUNNING)
            document[uid] = UsageSample(running, USAGE, self.api.clock.now(), 0.25, 5.0)
        return document


@dataclass
class Hosts:
    """Hosts a, which is asked, and b; sandbox `one` runs on a and `two` on b."""

    a: Place
    b: Place
    leased: Leased
    samples: Mapping[str, Samples]

    def answer(self, path: str = ALL, text: str = "") -> dict[str, Any]:
        with client(self.a.api, text) as created:
            answer = created.get(path)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def listed(self, path: str = ALL, text: str = "") -> list[tuple[str, str]]:
        return [(entry["host"], entry["metadata"]["name"]) for entry in self.answer(path, text)["items"]]

    def missing(self) -> dict[str, str]:
        answer = self.answer()
        assert [entry["host"] for entry in answer["items"]] == ["a"], "what answers is shown"
        return {entry["host"]: entry["message"] for entry in answer["missing"]}


def place(api: ApiStack, name: str, samples: Samples, leased: Leased, tls: FleetTls) -> Place:
    """Return a host's listeners, not started."""
    api.services = replace(api.services, usages=Usages(api.services.objects, samples, name))
    forwarding = Forwarding(Locations(leased, name, ""), Links(tls))  # type: ignore[arg-type]

    def make(who: Any) -> Any:
        return create_app(api.services, ready=list, meter=api.meter, who=who, forwarding=forwarding)

    rules = ListenerRules(api.socket, fleet=("127.0.0.1", 0), fleet_tls=tls, stall_seconds=60)
    return Place(api, Listeners(rules, api.store.tokens, api.clock, make), forwarding)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def hosts(tmp_path: Path, authority: Authority, quiet: None) -> Iterator[Hosts]:
    first = make_api(tmp_path / "a", place=ManyHosts("a"))
    second = make_api(tmp_path / "b", place=ManyHosts("b"), store=first.store)
    first.apply("---\n".join(QUICKSTART.replace("name: quickstart", f"name: {name}") for name in ("one", "two")))
    leased = Leased(first.store, "ab")
    samples = {"a": Samples(first, ["one"]), "b": Samples(second, ["two"])}
    places = [
        place(api, name, samples[name], leased, authority.tls(name)) for api, name in ((first, "a"), (second, "b"))
    ]
    try:
        for name, entry in zip("ab", places, strict=True):
            entry.listeners.start()
            announce(first, name, entry.listeners.fleet_address)
        yield Hosts(places[0], places[1], leased, samples)
    finally:
        for one_place in places:
            one_place.forwarding.links.close()
            one_place.listeners.stop()
            one_place.api.services.recorder.flush()
            one_place.api.services.watches.close()
            one_place.api.files.close()
        first.store.close()


@pytest.mark.parametrize("path", [ALL, DEFAULT, f"{ALL}?maxAgeSeconds=5"])
def test_the_usage_of_all_hosts_is_one_list(hosts: Hosts, path: str) -> None:
    for _ in range(3):  # also over a connection that was kept
        assert hosts.listed(path) == [("a", "one"), ("b", "two")]
    assert hosts.answer(path)["missing"] == []
    assert hosts.samples["b"].read == (1 if "maxAge" in path else 4), "the query goes along"


def test_the_client_names_hosts_and_missing_ones(hosts: Hosts) -> None:
    with Paddock(f"unix://{hosts.a.api.socket}") as paddock:
        assert [(metric.host, metric.name) for metric in paddock.sandboxes.metrics().items] == [
            ("a", "one"),
            ("b", "two"),
        ]
        hosts.leased.held.remove("b")
        metrics = paddock.sandboxes.metrics()
    assert [metric.name for metric in metrics.items] == ["one"]
    assert list(metrics.missing) == ["b"]


def test_one_namespace_is_asked_of_all(hosts: Hosts) -> None:
    assert hosts.listed(DEFAULT.replace("default", "other")) == []


def test_an_item_names_the_host_that_answered(hosts: Hosts) -> None:
    usages = Usages(hosts.b.api.services.objects, hosts.samples["b"], "a")  # it claims another's name
    hosts.b.listeners.stop()
    hosts.b.api.services = replace(hosts.b.api.services, usages=usages)
    observed = place(hosts.b.api, "b", hosts.samples["b"], hosts.leased, hosts.b.forwarding.links.tls)  # type: ignore[arg-type]
    observed.listeners.start()
    try:
        announce(hosts.a.api, "b", observed.listeners.fleet_address)
        assert hosts.listed() == [("a", "one"), ("b", "two")]
    finally:
        observed.listeners.stop()


def test_the_caller_s_grants_go_along(hosts: Hosts) -> None:
    own_text = token(hosts.a.api, "viewer", "default")
    assert hosts.listed(DEFAULT, own_text) == [("a", "one"), ("b", "two")]
    with client(hosts.a.api, own_text) as created:
        assert created.get(ALL).status_code == 403
    assert hosts.samples["b"].read == 1


def test_a_forwarded_request_is_answered_for_its_host_only(hosts: Hosts, authority: Authority) -> None:
    requested = hosts.samples["a"].read
    tls = authority.tls("a", folder="again")
    assert ask(hosts.b, tls, [identity("a", "")], ALL, "GET") == 200
    assert hosts.samples["a"].read == requested, "nobody asks around twice"
    assert ask(hosts.b, tls, [identity("b", "")], ALL, "GET") == 403, "a host that claims another's name"


def test_the_only_host_answers_as_ever(hosts: Hosts) -> None:
    with hosts.a.api.store.transaction() as transaction:
        host = transaction.get("Host", "", "b")
        assert host is not None
        transaction.remove(host)
    assert "missing" not in hosts.answer()


def test_a_host_that_is_away_is_named_at_once(hosts: Hosts) -> None:
    hosts.leased.held.remove("b")
    assert hosts.missing() == {"b": "its daemon, the host or its network is away; look at that host"}
    assert not hosts.samples["b"].read, "nobody waits for it"


def test_a_host_that_refuses_connections_is_missing(hosts: Hosts) -> None:
    announce(hosts.a.api, "b", "127.0.0.1:1")
    assert hosts.missing() == {"b": "127.0.0.1:1: connection refused"}
    announce(hosts.a.api, "b", "")
    assert hosts.missing() == {"b": "its daemon reports no address; set fleet_address there"}


def test_a_silent_host_is_missing(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "COLLECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        announce(hosts.a.api, "b", address)
        assert hosts.missing() == {"b": f"{address}: no answer in time"}


def test_a_host_with_a_wrong_certificate_is_missing(hosts: Hosts, authority: Authority) -> None:
    away = replace_listeners(hosts.b, authority.tls("c"))
    try:
        announce(hosts.a.api, "b", away.listeners.fleet_address)
        assert "certificate is" in hosts.missing()["b"]
    finally:
        away.listeners.stop()


def test_without_certificates_every_host_is_missing(hosts: Hosts) -> None:
    hosts.a.forwarding.links.tls = None
    assert "set fleet_cert_file" in hosts.missing()["b"]


def test_a_refused_certificate_of_ones_own_is_said_so(hosts: Hosts, authority: Authority, tmp_path: Path) -> None:
    files = Authority(tmp_path / "other").files("a", trusts=authority.file)
    hosts.a.forwarding.links.tls = FleetTls("a", files)
    assert "it refuses this host's certificate" in hosts.missing()["b"]


def test_any_host_can_be_asked_if_it_answers(hosts: Hosts, authority: Authority) -> None:
    tls, address = authority.tls("a", folder="again"), hosts.b.listeners.fleet_address
    other_hosts = [OtherHost("b", address), OtherHost("c", address), OtherHost("d", "127.0.0.1:1")]
    unreachable = collect.unreachable(tls, "a", other_hosts)
    assert set(unreachable) == {"c", "d"}
    assert "certificate is" in unreachable["c"]
    assert "set fleet_cert_file" in collect.unreachable(None, "a", other_hosts)["b"]


_ITEM = {"metadata": {"namespace": "default", "name": "x"}}


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        ("200 OK", b"not json", "can't be read"),
        ("200 OK", b"[]", "can't be read"),
        ("200 OK", json.dumps({"kind": "Other", "items": []}).encode(), "can't be read"),
        ("200 OK", json.dumps({"kind": "SandboxMetricsList", "items": [_ITEM, {}]}).encode(), "can't be read"),
        ("200 OK", b"x" * 2000, "its answer is larger than"),
        ("503 No", b'{"message": "the store is away"}', "it answers 503: the store is away"),
        ("403 No", b"no", "it answers 403"),
    ],
)
def test_an_answer_that_is_none_is_missing(
    hosts: Hosts, authority: Authority, monkeypatch: pytest.MonkeyPatch, status: str, body: bytes, why: str
) -> None:
    monkeypatch.setattr(collect, "_ANSWER_BYTES", 1000)
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with AnsweringHost(authority, head + body) as address:
        announce(hosts.a.api, "b", address)
        assert why in hosts.missing()["b"]


class AnsweringHost:
    """A host b that gives the same bytes to everybody who asks, once a connection."""

    def __init__(self, authority: Authority, answer: bytes) -> None:
        self._tls, self._answer = authority.tls("b", folder="answering").current().server, answer

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            with self._tls.wrap_socket(plain, server_side=True) as wrap_socket:
                wrap_socket.recv(65536)
                wrap_socket.sendall(self._answer)
