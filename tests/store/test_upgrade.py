"""Upgrades from commit c656c01: its store opens, every object reads back as it was, and no container is recreated.

`upgrade/` was recorded by that commit's own services and reconcile loop over its fake engine: the store as SQL text,
the engine's containers, and the config hashes of the example specs.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from controller.kinds.meta import StoredObject
from controller.kinds.planning.action import CreateContainer, RemoveContainer, SignalContainer, StartContainer
from controller.kinds.registry import discover
from controller.kinds.runtime.mount import HostRoot, Mount
from controller.kinds.runtime.network import Network
from controller.kinds.sandbox import SandboxSpec
from controller.kinds.sandboxtemplate import SandboxTemplateSpec
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render
from controller.service.access.authenticate import Identify, Names
from controller.service.errors import Unauthorized
from controller.store import migrate
from controller.store.sql_store import SqlStore
from tests.conftest import HandClock
from tests.fakes.engine import FakeContainer
from tests.loop.harness import LoopHarness

RECORDED = Path(__file__).parent / "upgrade"
SPECS = Path(__file__).parents[2] / "specs"
POLICY = Policy(host_roots=(HostRoot(path="/srv/projects"),))
_UID = "00000001-0000-4000-8000-000000000000"
_CHANGED = {
    "sandbox/volumes.yaml volumes",  # the example has a volume of its own since
    "sandbox/full.yaml full",  # and this one a size of /dev/shm
}
_DISRUPTIVE = (CreateContainer, RemoveContainer, SignalContainer, StartContainer)
_OBJECTS = "SELECT kind, namespace, name, uid, generation, labels, annotations, spec, finalizers FROM objects"
_INSTANCES = "SELECT name, uid, parent_uid, role FROM instances"


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RECORDED / "engine_c656c01.json").read_text())
    return document


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The store's file as commit c656c01 left it."""
    path = tmp_path / "paddock.db"
    with closing(sqlite3.connect(path)) as created:
        created.executescript((RECORDED / "store_c656c01.sql").read_text())
    return path


@pytest.fixture
def store(database: Path) -> Iterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{database}")
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def harness(store: SqlStore) -> Iterator[LoopHarness]:
    """Today's daemon over that store, and over the containers that ran."""
    harness = LoopHarness(store, policy=POLICY)
    document = recorded()
    engine = harness.engine
    harness.clock.advance(document["now"] + 30.0 - harness.clock.now())
    engine.images.update(document["images"])
    sandboxes = TypeAdapter(list[FakeContainer]).validate_python(document["containers"], strict=False)
    engine._containers.update({sandbox.id: sandbox for sandbox in sandboxes})
    engine.networks.update(TypeAdapter(dict[str, Network]).validate_python(document["networks"]))
    engine.places.update(TypeAdapter(dict[str, dict[str, Mount]]).validate_python(document["places"]))
    engine.volumes.update({(namespace, name): size for namespace, name, size in document["volumes"]})
    engine.answers.update({(sandbox.name, 8500): 200 for sandbox in sandboxes})
    engine.execs["test"] = 0
    engine.observe_now(full=True)
    yield harness
    harness.close()


def rows(database: Path, query: str) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as observed:
        return set(observed.execute(query).fetchall())


def test_the_store_opens_and_is_migrated(database: Path) -> None:
    before = rows(database, _OBJECTS), rows(database, _INSTANCES)
    assert len(before[0]) > 20
    store = SqlStore(f"sqlite:///{database}")
    store.open()
    assert store.ping() == ""
    store.close()
    assert rows(database, "SELECT version_num FROM alembic_version") == {(migrate.head(),)}
    assert rows(database, _INSTANCES) == before[1]
    assert specs_of(rows(database, _OBJECTS)) == {
        key: with_what_was(spec) if key[0] == "Sandbox" else spec for key, spec in specs_of(before[0]).items()
    }


def specs_of(objects: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
    return {(*row[:7], row[8]): json.loads(row[7]) for row in objects}


def with_what_was(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "lifecycle": {"onIdle": "Suspend", **spec.get("lifecycle", {}), "onSuspend": "Discard"}}


def test_stored_sandboxes_discard_until_applied_anew(harness: LoopHarness) -> None:
    lifecycles = [stored.spec["lifecycle"] for stored in harness.store.list("Sandbox")[0]]
    assert {(lifecycle["onSuspend"], lifecycle["onIdle"]) for lifecycle in lifecycles} <= {
        ("Discard", "Suspend"),
        ("Discard", "Delete"),
    }
    harness.settle(seconds=20)
    harness.apply("grown", restartPolicy="Never")
    grown = harness.get("grown")
    assert grown is not None
    assert (grown.spec["lifecycle"]["onSuspend"], "onIdle" in grown.spec["lifecycle"]) == ("KeepFiles", False)
    assert grown.last_applied is not None
    assert "olderDefaults" not in grown.last_applied


def test_every_object_reads_back_as_it_was_written(database: Path, store: SqlStore) -> None:
    registry = discover()
    read = [stored for kind in registry for stored in store.list(kind.name)[0]]
    assert {kind.name for kind in registry} >= {stored.kind for stored in read}
    printed = {
        (stored.kind, stored.namespace, stored.name, stored.uid, stored.generation, json.dumps(dict(stored.labels)))
        for stored in read
    }
    assert printed == {(*row[:5], json.dumps(json.loads(row[5]))) for row in rows(database, _OBJECTS)}
    specs = {row[3]: json.loads(row[7]) for row in rows(database, _OBJECTS)}
    for entry in read:
        assert json.loads(json.dumps(entry.spec, default=dict)) == specs[entry.uid]
        kind = registry.by_word(entry.kind.lower())
        assert kind is not None
        kind.spec.model_validate(entry.spec)


def test_instances_keep_their_names_and_uids(store: SqlStore) -> None:
    assert {instance.name: instance.uid for instance in store.instances()} == recorded()["instances"]


def test_audit_log_and_events_are_kept(store: SqlStore) -> None:
    report = store.audit.verify()
    assert [(chain.writer, chain.entries) for chain in report.chains] == [("", report.newest.last_id)]
    assert report.problem == ""
    assert report.entries > 30
    assert store.events()


def test_running_containers_are_left_alone(harness: LoopHarness) -> None:
    before = containers(harness)
    assert len(before) > 20
    first = harness.run_pass()
    assert not [action for group in first.groups for action in group.actions if isinstance(action, _DISRUPTIVE)], str(
        first
    )
    harness.settle(seconds=20)
    assert not [entry for entry in harness.engine.calls if isinstance(entry, _DISRUPTIVE)]
    assert containers(harness) == before
    assert not [stored.name for stored in harness.store.list("Sandbox")[0] if condition(stored, "Outdated") == "True"]


def test_a_template_change_still_recreates(harness: LoopHarness) -> None:
    harness.settle(seconds=20)
    harness.apply("grown", template={"env": [{"name": "NEW", "value": "1"}]}, resources={"limits": {"memory": "96Mi"}})
    harness.settle(seconds=20)
    assert any(isinstance(entry, RemoveContainer) for entry in harness.engine.calls)


def test_tokens_still_work(store: SqlStore) -> None:
    clock = HandClock(recorded()["now"])
    names = Names(uid=lambda _: None, gid=lambda _: None, user=lambda _: None)
    identify = Identify(tokens=store.tokens, clock=clock, names=names, owners=frozenset())
    tokens = recorded()["tokens"]
    caller = identify.token(tokens["ci"], "192.0.2.1")
    assert [(grant.role, grant.namespaces) for grant in caller.grants] == [("user", ("default", "team-*"))]
    assert identify.token(tokens["boss"], "192.0.2.1").grants[0].role == "admin"
    with pytest.raises(Unauthorized):
        identify.token(tokens["gone"], "192.0.2.1")
    clock.advance(60.0)
    with pytest.raises(Unauthorized):
        identify.token(tokens["old"], "192.0.2.1")


def test_example_specs_keep_their_config_hashes() -> None:
    expected = json.loads((RECORDED / "hashes_c656c01.json").read_text())
    document = {
        f"{path.relative_to(SPECS)} {name}": value for path in SPECS.rglob("*.yaml") for name, value in hashes(path)
    }
    equal = {key: document[key] for key in expected.keys() - _CHANGED}
    assert equal == {key: expected[key] for key in equal}
    assert len(equal) > 15


def hashes(path: Path) -> Iterator[tuple[str, str]]:
    """Render each sandbox of a file with its own template or one of the same file."""
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    templates = {
        document["metadata"]["name"]: SandboxTemplateSpec.model_validate(document["spec"])
        for document in documents
        if document["kind"] == "SandboxTemplate"
    }
    for entry in documents:
        if entry["kind"] != "Sandbox":
            continue
        spec, name = SandboxSpec.model_validate(entry["spec"]), entry["metadata"]["name"]
        template = spec.template or templates[spec.template_ref.name if spec.template_ref else ""]
        if template.security_level in POLICY.levels:  # a profile of the same file is no part of this policy
            yield name, render(spec, template, name=name, uid=_UID, policy=POLICY).config_hash


def condition(obj: StoredObject, type_: str) -> str:
    return next(str(entry["status"]) for entry in obj.status["conditions"] if entry["type"] == type_)


def containers(harness: LoopHarness) -> dict[str, tuple[str, str, float]]:
    """Return each container's id, config hash and start, by name."""
    observed = (container for group in harness.engine.observe().containers.values() for container in group)
    return {container.name: (container.id, container.config_hash, container.started_at) for container in observed}
