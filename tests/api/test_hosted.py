"""Volumes and images of all hosts through one daemon: lists, a request for one, and hosts that give no answer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from controller.api.app import create_app
from controller.api.fleet.forwarding import Forwarding
from controller.api.fleet.links import Links
from controller.api.fleet.tls import FleetTls
from controller.api.listeners import ListenerRules, Listeners
from controller.cli.main import cli
from controller.kinds.common.labels import INSTANCE, UID
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.plan import Writes
from controller.kinds.runtime.container import Limits
from controller.kinds.volume import HostVolume
from controller.ports import VolumesUnreachable
from controller.ports.fleet import ManyHosts
from controller.service.fleet.locations import Locations
from controller.service.images.context import pack_files
from tests.api.listeners import API, client, token
from tests.api.test_fleet import Leased, Place, announce, ask, identity
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine, FakeVolumes
from tests.fleet_files import Authority
from tests.helpers_api import ApiStack, make_api

VOLUMES = f"{API}/namespaces/team/volumes"
IMAGES = f"{API}/images"
TABLE = {"Accept": "application/json;as=Table"}
AWAY = "its daemon, the host or its network is away; look at that host"
TOOL = "registry.example/tool:1"
TAR = {"Content-Type": "application/octet-stream"}
SIZE = 8 << 20
USER = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: app, namespace: team}
spec: {host: b, template: {image: "a:1", volumes: [{name: both, mountPath: /both, size: 8Mi}]}}
"""


def place(api: ApiStack, name: str, leased: Leased, tls: FleetTls) -> Place:
    """Return a host's listeners, not started."""
    forwarding = Forwarding(Locations(leased, name, ""), Links(tls))  # type: ignore[arg-type]

    def make(who: Any) -> Any:
        return create_app(api.services, ready=list, meter=api.meter, who=who, forwarding=forwarding)

    rules = ListenerRules(api.socket, fleet=("127.0.0.1", 0), fleet_tls=tls, stall_seconds=60)
    return Place(api, Listeners(rules, api.store.tokens, api.clock, make), forwarding)


@dataclass
class Hosts:
    """Hosts a, which is asked, and b; both have the volume `both`, and each one of its own."""

    a: Place
    b: Place
    leased: Leased
    engines: dict[str, FakeEngine]

    def get(self, path: str = VOLUMES, text: str = "", **more: Any) -> httpx.Response:
        with client(self.a.api, text) as created:
            return created.get(path, **more)

    def delete(self, name: str, text: str = "", **query: str) -> httpx.Response:
        with client(self.a.api, text) as created:
            return created.request("DELETE", f"{VOLUMES}/{name}", params=query, json={"kind": "DeleteOptions"})

    def listed(self, path: str = VOLUMES, **query: str) -> list[str]:
        response = self.get(path, params=query)
        assert response.status_code == 200, response.text
        return [f"{entry['metadata']['name']}@{entry['status']['host']}" for entry in response.json()["items"]]

    def volumes(self) -> dict[str, list[str]]:
        return {host: sorted(name for _, name in engine.volumes) for host, engine in self.engines.items()}

    def paddock(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{self.a.api.socket}", *words])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def hosts(tmp_path: Path, authority: Authority, quiet: None) -> Iterator[Hosts]:
    engines = {name: FakeEngine(name, clock=HandClock(), images=(f"own/{name}:1", "both:1")) for name in "ab"}
    for name, engine in engines.items():
        engine.volumes = {("team", "both"): SIZE, ("team", f"only-{name}"): SIZE}
    first = make_api(tmp_path / "a", place=ManyHosts("a"), engine=engines["a"])
    second = make_api(tmp_path / "b", place=ManyHosts("b"), engine=engines["b"], store=first.store)
    leased = Leased(first.store, "ab")
    places = [place(api, name, leased, authority.tls(name)) for api, name in ((first, "a"), (second, "b"))]
    try:
        for name, entry in zip("ab", places, strict=True):
            entry.listeners.start()
            announce(first, name, entry.listeners.fleet_address)
        yield Hosts(places[0], places[1], leased, engines)
    finally:
        for one_place in places:
            one_place.forwarding.links.close()
            one_place.listeners.stop()
            one_place.api.services.recorder.flush()
            one_place.api.services.watches.close()
        first.store.close()


def test_volumes_of_all_hosts_are_one_list(hosts: Hosts) -> None:
    assert hosts.listed() == ["both@a", "both@b", "only-a@a", "only-b@b"]
    assert hosts.listed(f"{API}/volumes") == hosts.listed()
    assert hosts.get().json()["missing"] == []
    assert hosts.listed(fieldSelector="status.host=b,metadata.name!=both") == ["only-b@b"]
    document = hosts.get(headers=TABLE).json()
    assert [column_definition["name"] for column_definition in document["columnDefinitions"]][:3] == [
        "NAME",
        "HOST",
        "STATUS",
    ]
    assert [row["cells"][:2] for row in document["rows"]][1] == ["both", "b"]


def test_a_volume_is_read_where_it_is(hosts: Hosts) -> None:
    assert [hosts.get(f"{VOLUMES}/{name}").json()["status"]["host"] for name in ("only-a", "only-b")] == ["a", "b"]
    assert hosts.get(f"{VOLUMES}/only-b", headers=TABLE).json()["rows"][0]["cells"][1] == "b"
    assert hosts.get(f"{VOLUMES}/none").status_code == 404
    unclear = hosts.get(f"{VOLUMES}/both")
    assert (unclear.status_code, "is on several hosts (a, b); name one" in unclear.json()["message"]) == (409, True)
    assert hosts.get(f"{VOLUMES}/both", params={"host": "b"}).json()["status"]["host"] == "b"
    assert hosts.get(f"{VOLUMES}/only-a", params={"host": "b"}).status_code == 404
    assert (
        "host `c`: there is no host of that name"
        in hosts.get(f"{VOLUMES}/both", params={"host": "c"}).json()["message"]
    )


def test_a_volume_is_deleted_where_it_is(hosts: Hosts) -> None:
    assert hosts.delete("only-b").json()["metadata"]["name"] == "only-b"
    assert hosts.delete("both").status_code == 409
    assert hosts.volumes() == {"a": ["both", "only-a"], "b": ["both"]}
    assert hosts.delete("both", host="b").status_code == 200
    assert hosts.delete("both").status_code == 200, "one is left: it is clear which"
    assert hosts.volumes() == {"a": ["only-a"], "b": []}
    messages = [
        (entry.verb, entry.name, entry.actor) for entry in hosts.a.api.store.audit.entries() if entry.kind == "Volume"
    ]
    assert [message[:2] for message in messages if message[0] == "delete"] == [
        ("delete", name) for name in ("only-b", "both", "both")
    ]
    assert len({actor for *_, actor in messages}) == 1, "the caller, on either host"


def test_a_sandbox_uses_the_volume_of_its_own_host(hosts: Hosts) -> None:
    hosts.a.api.apply(USER)
    phases = {entry["status"]["host"]: entry["status"]["phase"] for entry in hosts.get().json()["items"][:2]}
    assert phases == {"a": "Released", "b": "Bound"}
    assert hosts.delete("both", host="b").status_code == 409
    assert hosts.delete("both", host="a").status_code == 200


def test_the_caller_s_grants_hold_on_the_other_host(hosts: Hosts) -> None:
    viewer = token(hosts.a.api, "viewer", "team")
    assert hosts.delete("only-b", viewer).status_code == 403
    assert hosts.get(text=token(hosts.a.api, "admin", "other")).status_code == 403
    assert hosts.delete("only-b", token(hosts.a.api, "operator", "team")).status_code == 200


def test_a_host_that_gives_no_answer_is_named(hosts: Hosts) -> None:
    hosts.leased.held.remove("b")
    assert hosts.listed() == ["both@a", "only-a@a"]
    assert hosts.get().json()["missing"] == [{"host": "b", "message": AWAY}]
    assert hosts.get(headers=TABLE).json()["missing"] == [{"host": "b", "message": AWAY}]
    assert hosts.get(f"{VOLUMES}/only-a").status_code == 200
    response = hosts.get(f"{VOLUMES}/only-b")
    assert (response.status_code, f"b ({AWAY})" in response.json()["message"]) == (503, True), (
        "nobody knows that it is not there"
    )


def test_nothing_is_deleted_while_a_host_may_have_one_too(hosts: Hosts) -> None:
    hosts.leased.held.remove("b")
    answer = hosts.delete("only-a")
    assert (answer.status_code, "may be on one that gives no answer" in answer.json()["message"]) == (409, True)
    assert hosts.delete("only-a", host="a").status_code == 200


def test_the_own_host_may_be_missing(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = FakeVolumes.list

    def list_(volumes: FakeVolumes, namespace: str | None = None) -> Sequence[HostVolume]:
        if volumes._engine is hosts.engines["a"]:
            raise VolumesUnreachable("the folder is away")
        return observed(volumes, namespace)

    monkeypatch.setattr(FakeVolumes, "list", list_)
    assert hosts.listed() == ["both@b", "only-b@b"]
    assert hosts.get().json()["missing"] == [{"host": "a", "message": "the folder is away"}]
    assert hosts.get(f"{VOLUMES}/only-b").status_code == 200
    assert hosts.delete("only-b").status_code == 409
    assert hosts.delete("only-b", host="b").status_code == 200


def test_a_forwarded_request_is_about_this_host_alone(hosts: Hosts, authority: Authority) -> None:
    tls = authority.tls("a", folder="again")
    assert ask(hosts.b, tls, [identity("a", "")], f"{VOLUMES}/only-b", "GET") == 200
    assert ask(hosts.b, tls, [identity("a", "")], f"{VOLUMES}/only-a", "GET") == 404
    assert ask(hosts.b, tls, [identity("a", "")], f"{VOLUMES}/both", "GET") == 200
    assert ask(hosts.b, tls, [identity("a", "")], f"{VOLUMES}/both?host=a", "GET") == 200, "nobody passes it on again"


def test_the_command_shows_and_deletes_by_host(hosts: Hosts) -> None:
    output = hosts.paddock("get", "volumes", "-n", "team").stdout
    assert [line.split()[:2] for line in output.splitlines()] == [
        *(["NAME", "HOST"], ["both", "a"], ["both", "b"], ["only-a", "a"], ["only-b", "b"])
    ]
    both = hosts.paddock("get", "volume", "both", "only-b", "-n", "team").stdout
    assert [line.split()[:2] for line in both.splitlines()[1:]] == [["both", "a"], ["both", "b"], ["only-b", "b"]]
    assert hosts.paddock("describe", "volume", "both", "-n", "team").stdout.count("host: ") == 2
    unclear = hosts.paddock("delete", "volume", "both", "-n", "team")
    assert (unclear.exit_code, "name one (`--host`, query `host`)" in unclear.stderr) == (1, True)
    outcome = hosts.paddock("delete", "volume", "both", "--host", "b", "-n", "team")
    assert (outcome.exit_code, outcome.stdout) == (0, 'volume.paddock "both" deleted\n')
    assert hosts.paddock("delete", "sandbox", "x", "--host", "b").exit_code == 2
    hosts.leased.held.remove("b")
    missing = hosts.paddock("get", "volumes", "-n", "team")
    assert missing.stderr == f"Without the volumes of missing hosts: b ({AWAY}).\n"
    assert hosts.paddock("get", "volumes", "-n", "team", "-o", "json").stderr == missing.stderr


INSTANCES = f"{API}/namespaces/team/instances"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: on-{host}, namespace: team}}
spec: {{host: {host}, template: {{image: "both:1"}}}}
"""


@pytest.fixture
def running(hosts: Hosts) -> Hosts:
    """A sandbox on each host, whose container its daemon alone knows."""
    store = hosts.a.api.store
    for host, engine in hosts.engines.items():
        hosts.a.api.apply(SANDBOX.format(host=host))
        obj = store.get("Sandbox", "team", f"on-{host}")
        assert obj is not None
        of = (obj.uid, obj.kind, obj.namespace, obj.name)
        instance = Instance(
            f"pdk-{host}", *of, role="sandbox", reserves=Limits(500, SIZE, 64), created_at=7.0, host=host
        )
        store.record(Writes(instances=(instance,)))
        engine.add_foreign(instance.name, {INSTANCE: host, UID: instance.uid})
        engine.observe_now(full=True)
    return hosts


def states(hosts: Hosts, **query: str) -> dict[str, str]:
    document = hosts.get(INSTANCES, params=query).json()
    assert "missing" not in document, "all are in it"
    return {entry["metadata"]["name"]: entry["status"]["state"] for entry in document["items"]}


def test_instances_have_the_state_that_their_host_sees(running: Hosts) -> None:
    assert states(running) == {"pdk-a": "Running", "pdk-b": "Running"}
    assert states(running, fieldSelector="status.state=Running") == {"pdk-a": "Running", "pdk-b": "Running"}
    assert states(running, fieldSelector="status.state!=Running") == {}
    assert states(running, fieldSelector="status.host=b") == {"pdk-b": "Running"}
    listed = {entry["metadata"]["name"]: entry for entry in running.get(INSTANCES).json()["items"]}
    for name, single in listed.items():
        assert running.get(f"{INSTANCES}/{name}").json() == single
        assert single["metadata"]["ownerReferences"][0]["name"] == f"on-{name[-1]}"
        assert single["status"]["containerID"]
    output = running.paddock("get", "instances", "-n", "team").stdout
    assert [line.split()[:5] for line in output.splitlines()] == [
        ["NAME", "HOST", "PARENT", "ROLE", "STATE"],
        ["pdk-a", "a", "sandbox/on-a", "sandbox", "Running"],
        ["pdk-b", "b", "sandbox/on-b", "sandbox", "Running"],
    ]


def test_an_instance_of_a_host_that_gives_no_answer_is_unknown(running: Hosts) -> None:
    running.leased.held.remove("b")
    assert states(running) == {"pdk-a": "Running", "pdk-b": "Unknown"}
    assert states(running, fieldSelector="status.state=Running") == {"pdk-a": "Running"}
    document = running.get(f"{INSTANCES}/pdk-b").json()
    assert (document["status"]["state"], document["status"]["message"]) == (
        "Unknown",
        f"host `b` gives no answer: {AWAY}",
    )
    assert running.get(INSTANCES).json()["items"][1] == document


def test_another_daemon_is_told_of_own_instances_alone(running: Hosts, authority: Authority) -> None:
    tls = authority.tls("a", folder="again").current().client
    with httpx.Client(verify=tls, headers=[identity("a", "")]) as created:
        address = f"https://{running.b.listeners.fleet_address}{INSTANCES}"
        response = created.get(address, extensions={"sni_hostname": "b"})
    assert [entry["metadata"]["name"] for entry in response.json()["items"]] == ["pdk-b"]


def images(hosts: Hosts, **more: Any) -> list[str]:
    return [f"{entry['names'][0]}@{entry['host']}" for entry in hosts.get(IMAGES, **more).json()["items"]]


def test_images_of_all_hosts_are_one_list(hosts: Hosts) -> None:
    assert images(hosts) == ["both:1@a", "both:1@b", "own/a:1@a", "own/b:1@b"]
    own_text = token(hosts.a.api, "user", "default", images=("own/*",))
    assert images(hosts, text=own_text) == ["own/a:1@a", "own/b:1@b"]
    hosts.engines["a"].image_store.away = True
    document = hosts.get(IMAGES).json()
    assert ([entry["host"] for entry in document["items"]], [entry["host"] for entry in document["missing"]]) == (
        ["b"] * 2,
        ["a"],
    )
    hosts.leased.held.remove("b")
    assert {entry["host"] for entry in hosts.get(IMAGES).json()["missing"]} == {"a", "b"}


def test_image_work_is_done_on_the_host_that_is_named(hosts: Hosts) -> None:
    for engine in hosts.engines.values():
        engine.image_store.remote[TOOL] = "sha256:" + "d" * 64
    with client(hosts.a.api) as created:
        for query in ({"image": TOOL}, {"image": TOOL, "host": "b"}):
            answer = created.post(f"{IMAGES}/pull", params=query)
            assert json.loads(answer.text.splitlines()[-1])["image"]["names"] == [TOOL]
            assert f"{TOOL}@{query.get('host', 'a')}" in images(hosts)
        files = pack_files({"Dockerfile": b"FROM both:1\n"})
        query = {"tag": "built:1", "host": "b"}
        built = created.post(
            f"{IMAGES}/build", params=query, content=files, headers={"Content-Type": "application/octet-stream"}
        )
        assert json.loads(built.text.splitlines()[-1])["image"]["names"] == ["built:1"]
        assert [image.endswith("@b") for image in images(hosts) if image.startswith("built")] == [True]
        assert created.post(f"{IMAGES}/pull", params={"image": TOOL, "host": "c"}).status_code == 404


def test_the_image_command_names_hosts(hosts: Hosts) -> None:
    hosts.engines["b"].image_store.remote[TOOL] = "sha256:" + "d" * 64
    assert hosts.paddock("image", "pull", TOOL, "--host", "b").exit_code == 0
    parts = [line.split()[:2] for line in hosts.paddock("image", "list").stdout.splitlines()]
    assert parts[0] == ["IMAGE", "HOST"]
    assert [TOOL, "b"] in parts
    hosts.leased.held.remove("b")
    assert "Without the images of missing hosts: b" in hosts.paddock("image", "list").stderr
