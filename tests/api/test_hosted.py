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
from tests.helpers_api import World, make_world

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


def place(world: World, name: str, leased: Leased, tls: FleetTls) -> Place:
    """Return a host's listeners, not started."""
    forwarding = Forwarding(Locations(leased, name, ""), Links(tls))  # type: ignore[arg-type]

    def make(who: Any) -> Any:
        return create_app(world.services, ready=list, meter=world.meter, who=who, forwarding=forwarding)

    rules = ListenerRules(world.socket, fleet=("127.0.0.1", 0), fleet_tls=tls, stall_seconds=60)
    return Place(world, Listeners(rules, world.store.tokens, world.clock, make), forwarding)


@dataclass
class Hosts:
    """Hosts a, which is asked, and b; both have the volume `both`, and each one of its own."""

    a: Place
    b: Place
    leased: Leased
    engines: dict[str, FakeEngine]

    def get(self, path: str = VOLUMES, text: str = "", **more: Any) -> httpx.Response:
        with client(self.a.world, text) as made:
            return made.get(path, **more)

    def delete(self, name: str, text: str = "", **query: str) -> httpx.Response:
        with client(self.a.world, text) as made:
            return made.request("DELETE", f"{VOLUMES}/{name}", params=query, json={"kind": "DeleteOptions"})

    def listed(self, path: str = VOLUMES, **query: str) -> list[str]:
        found = self.get(path, params=query)
        assert found.status_code == 200, found.text
        return [f"{each['metadata']['name']}@{each['status']['host']}" for each in found.json()["items"]]

    def volumes(self) -> dict[str, list[str]]:
        return {host: sorted(name for _, name in each.volumes) for host, each in self.engines.items()}

    def paddock(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{self.a.world.socket}", *words])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def hosts(tmp_path: Path, authority: Authority, quiet: None) -> Iterator[Hosts]:
    engines = {name: FakeEngine(name, clock=HandClock(), images=(f"own/{name}:1", "both:1")) for name in "ab"}
    for name, engine in engines.items():
        engine.volumes = {("team", "both"): SIZE, ("team", f"only-{name}"): SIZE}
    first = make_world(tmp_path / "a", place=ManyHosts("a"), engine=engines["a"])
    second = make_world(tmp_path / "b", place=ManyHosts("b"), engine=engines["b"], store=first.store)
    leased = Leased(first.store, "ab")
    places = [place(world, name, leased, authority.tls(name)) for world, name in ((first, "a"), (second, "b"))]
    try:
        for name, each in zip("ab", places, strict=True):
            each.listeners.start()
            announce(first, name, each.listeners.fleet_address)
        yield Hosts(places[0], places[1], leased, engines)
    finally:
        for each in places:
            each.forwarding.links.close()
            each.listeners.stop()
            each.world.services.recorder.flush()
            each.world.services.watches.close()
        first.store.close()


def test_volumes_of_all_hosts_are_one_list(hosts: Hosts) -> None:
    assert hosts.listed() == ["both@a", "both@b", "only-a@a", "only-b@b"]
    assert hosts.listed(f"{API}/volumes") == hosts.listed()
    assert hosts.get().json()["missing"] == []
    assert hosts.listed(fieldSelector="status.host=b,metadata.name!=both") == ["only-b@b"]
    found = hosts.get(headers=TABLE).json()
    assert [each["name"] for each in found["columnDefinitions"]][:3] == ["NAME", "HOST", "STATUS"]
    assert [each["cells"][:2] for each in found["rows"]][1] == ["both", "b"]


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
    told = [(each.verb, each.name, each.actor) for each in hosts.a.world.store.audit.entries() if each.kind == "Volume"]
    assert [each[:2] for each in told if each[0] == "delete"] == [
        ("delete", name) for name in ("only-b", "both", "both")
    ]
    assert len({actor for *_, actor in told}) == 1, "the caller, on either host"


def test_a_sandbox_uses_the_volume_of_its_own_host(hosts: Hosts) -> None:
    hosts.a.world.apply(USER)
    phases = {each["status"]["host"]: each["status"]["phase"] for each in hosts.get().json()["items"][:2]}
    assert phases == {"a": "Released", "b": "Bound"}
    assert hosts.delete("both", host="b").status_code == 409
    assert hosts.delete("both", host="a").status_code == 200


def test_the_caller_s_grants_hold_on_the_other_host(hosts: Hosts) -> None:
    viewer = token(hosts.a.world, "viewer", "team")
    assert hosts.delete("only-b", viewer).status_code == 403
    assert hosts.get(text=token(hosts.a.world, "admin", "other")).status_code == 403
    assert hosts.delete("only-b", token(hosts.a.world, "operator", "team")).status_code == 200


def test_a_host_that_gives_no_answer_is_named(hosts: Hosts) -> None:
    hosts.leased.held.remove("b")
    assert hosts.listed() == ["both@a", "only-a@a"]
    assert hosts.get().json()["missing"] == [{"host": "b", "message": AWAY}]
    assert hosts.get(headers=TABLE).json()["missing"] == [{"host": "b", "message": AWAY}]
    assert hosts.get(f"{VOLUMES}/only-a").status_code == 200
    gone = hosts.get(f"{VOLUMES}/only-b")
    assert (gone.status_code, f"b ({AWAY})" in gone.json()["message"]) == (503, True), (
        "nobody knows that it is not there"
    )


def test_nothing_is_deleted_while_a_host_may_have_one_too(hosts: Hosts) -> None:
    hosts.leased.held.remove("b")
    refused = hosts.delete("only-a")
    assert (refused.status_code, "may be on one that gives no answer" in refused.json()["message"]) == (409, True)
    assert hosts.delete("only-a", host="a").status_code == 200


def test_the_own_host_may_be_missing(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    found = FakeVolumes.list

    def list_(volumes: FakeVolumes, namespace: str | None = None) -> Sequence[HostVolume]:
        if volumes._engine is hosts.engines["a"]:
            raise VolumesUnreachable("the folder is away")
        return found(volumes, namespace)

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
    shown = hosts.paddock("get", "volumes", "-n", "team").stdout
    assert [line.split()[:2] for line in shown.splitlines()] == [
        *(["NAME", "HOST"], ["both", "a"], ["both", "b"], ["only-a", "a"], ["only-b", "b"])
    ]
    both = hosts.paddock("get", "volume", "both", "only-b", "-n", "team").stdout
    assert [line.split()[:2] for line in both.splitlines()[1:]] == [["both", "a"], ["both", "b"], ["only-b", "b"]]
    assert hosts.paddock("describe", "volume", "both", "-n", "team").stdout.count("host: ") == 2
    unclear = hosts.paddock("delete", "volume", "both", "-n", "team")
    assert (unclear.exit_code, "name one (`--host`, query `host`)" in unclear.stderr) == (1, True)
    gone = hosts.paddock("delete", "volume", "both", "--host", "b", "-n", "team")
    assert (gone.exit_code, gone.stdout) == (0, 'volume.paddock "both" deleted\n')
    assert hosts.paddock("delete", "sandbox", "x", "--host", "b").exit_code == 2
    hosts.leased.held.remove("b")
    missing = hosts.paddock("get", "volumes", "-n", "team")
    assert missing.stderr == f"Without the volumes of missing hosts: b ({AWAY}).\n"
    assert hosts.paddock("get", "volumes", "-n", "team", "-o", "json").stderr == missing.stderr


INSTANCES = f"{API}/namespaces/team/instances"
BOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {{name: on-{host}, namespace: team}}
spec: {{host: {host}, template: {{image: "both:1"}}}}
"""


@pytest.fixture
def running(hosts: Hosts) -> Hosts:
    """A sandbox on each host, whose container its daemon alone knows."""
    store = hosts.a.world.store
    for host, engine in hosts.engines.items():
        hosts.a.world.apply(BOX.format(host=host))
        obj = store.get("Sandbox", "team", f"on-{host}")
        assert obj is not None
        of = (obj.uid, obj.kind, obj.namespace, obj.name)
        made = Instance(f"pdk-{host}", *of, role="sandbox", reserves=Limits(500, SIZE, 64), created_at=7.0, host=host)
        store.record(Writes(instances=(made,)))
        engine.add_foreign(made.name, {INSTANCE: host, UID: made.uid})
        engine.observe_now(full=True)
    return hosts


def states(hosts: Hosts, **query: str) -> dict[str, str]:
    found = hosts.get(INSTANCES, params=query).json()
    assert "missing" not in found, "all are in it"
    return {each["metadata"]["name"]: each["status"]["state"] for each in found["items"]}


def test_instances_have_the_state_that_their_host_sees(running: Hosts) -> None:
    assert states(running) == {"pdk-a": "Running", "pdk-b": "Running"}
    assert states(running, fieldSelector="status.state=Running") == {"pdk-a": "Running", "pdk-b": "Running"}
    assert states(running, fieldSelector="status.state!=Running") == {}
    assert states(running, fieldSelector="status.host=b") == {"pdk-b": "Running"}
    listed = {each["metadata"]["name"]: each for each in running.get(INSTANCES).json()["items"]}
    for name, each in listed.items():
        assert running.get(f"{INSTANCES}/{name}").json() == each
        assert each["metadata"]["ownerReferences"][0]["name"] == f"on-{name[-1]}"
        assert each["status"]["containerID"]
    shown = running.paddock("get", "instances", "-n", "team").stdout
    assert [line.split()[:5] for line in shown.splitlines()] == [
        ["NAME", "HOST", "PARENT", "ROLE", "STATE"],
        ["pdk-a", "a", "sandbox/on-a", "sandbox", "Running"],
        ["pdk-b", "b", "sandbox/on-b", "sandbox", "Running"],
    ]


def test_an_instance_of_a_host_that_gives_no_answer_is_unknown(running: Hosts) -> None:
    running.leased.held.remove("b")
    assert states(running) == {"pdk-a": "Running", "pdk-b": "Unknown"}
    assert states(running, fieldSelector="status.state=Running") == {"pdk-a": "Running"}
    found = running.get(f"{INSTANCES}/pdk-b").json()
    assert (found["status"]["state"], found["status"]["message"]) == ("Unknown", f"host `b` gives no answer: {AWAY}")
    assert running.get(INSTANCES).json()["items"][1] == found


def test_another_daemon_is_told_of_own_instances_alone(running: Hosts, authority: Authority) -> None:
    tls = authority.tls("a", folder="again").current().client
    with httpx.Client(verify=tls, headers=[identity("a", "")]) as made:
        address = f"https://{running.b.listeners.fleet_address}{INSTANCES}"
        found = made.get(address, extensions={"sni_hostname": "b"})
    assert [each["metadata"]["name"] for each in found.json()["items"]] == ["pdk-b"]


def images(hosts: Hosts, **more: Any) -> list[str]:
    return [f"{each['names'][0]}@{each['host']}" for each in hosts.get(IMAGES, **more).json()["items"]]


def test_images_of_all_hosts_are_one_list(hosts: Hosts) -> None:
    assert images(hosts) == ["both:1@a", "both:1@b", "own/a:1@a", "own/b:1@b"]
    own = token(hosts.a.world, "user", "default", images=("own/*",))
    assert images(hosts, text=own) == ["own/a:1@a", "own/b:1@b"]
    hosts.engines["a"].image_store.away = True
    found = hosts.get(IMAGES).json()
    assert ([each["host"] for each in found["items"]], [each["host"] for each in found["missing"]]) == (
        ["b"] * 2,
        ["a"],
    )
    hosts.leased.held.remove("b")
    assert {each["host"] for each in hosts.get(IMAGES).json()["missing"]} == {"a", "b"}


def test_image_work_is_done_on_the_host_that_is_named(hosts: Hosts) -> None:
    for engine in hosts.engines.values():
        engine.image_store.remote[TOOL] = "sha256:" + "d" * 64
    with client(hosts.a.world) as made:
        for query in ({"image": TOOL}, {"image": TOOL, "host": "b"}):
            answer = made.post(f"{IMAGES}/pull", params=query)
            assert json.loads(answer.text.splitlines()[-1])["image"]["names"] == [TOOL]
            assert f"{TOOL}@{query.get('host', 'a')}" in images(hosts)
        files = pack_files({"Dockerfile": b"FROM both:1\n"})
        query = {"tag": "built:1", "host": "b"}
        built = made.post(
            f"{IMAGES}/build", params=query, content=files, headers={"Content-Type": "application/octet-stream"}
        )
        assert json.loads(built.text.splitlines()[-1])["image"]["names"] == ["built:1"]
        assert [each.endswith("@b") for each in images(hosts) if each.startswith("built")] == [True]
        assert made.post(f"{IMAGES}/pull", params={"image": TOOL, "host": "c"}).status_code == 404


def test_the_image_command_names_hosts(hosts: Hosts) -> None:
    hosts.engines["b"].image_store.remote[TOOL] = "sha256:" + "d" * 64
    assert hosts.paddock("image", "pull", TOOL, "--host", "b").exit_code == 0
    shown = [line.split()[:2] for line in hosts.paddock("image", "list").stdout.splitlines()]
    assert shown[0] == ["IMAGE", "HOST"]
    assert [TOOL, "b"] in shown
    hosts.leased.held.remove("b")
    assert "Without the images of missing hosts: b" in hosts.paddock("image", "list").stderr
