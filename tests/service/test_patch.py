"""PATCH as a use-case: the two formats, what may be touched, preconditions, and what an apply makes of it."""

from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, discover
from controller.service import errors
from tests.helpers_api import QUICKSTART, World


def kind() -> Kind:
    name = discover().by_name("Sandbox")
    assert name is not None
    return name


def patch(world: World, body: Any, **options: Any) -> StoredObject:
    return world.services.patch.patch(kind(), "default", "quickstart", body, **options)


def test_a_merge_patch_changes_the_spec_and_moves_the_generation(world: World) -> None:
    world.apply()
    answer = patch(world, {"spec": {"resources": {"limits": {"memory": "1Gi", "cpu": None}}}})
    assert answer.spec["resources"]["limits"] == {"memory": "1Gi"}
    assert (answer.generation, world.sandbox()) == (2, answer)
    assert world.woken == [1, 1]


def test_labels_and_annotations_move_no_generation(world: World) -> None:
    world.apply()
    answer = patch(world, {"metadata": {"labels": {"tier": "db", "app": None}, "annotations": {"a/b": "c"}}})
    assert (answer.labels, answer.annotations, answer.generation) == ({"tier": "db"}, {"a/b": "c"}, 1)


def test_an_equal_patch_writes_nothing(world: World) -> None:
    world.apply()
    before, revision = world.sandbox(), world.store.revision()
    assert patch(world, {"spec": {"resources": {"limits": {"cpu": "0.5"}}}}) == before
    assert (world.store.revision(), world.woken) == (revision, [1])


def test_a_dry_run_answers_and_writes_nothing(world: World) -> None:
    world.apply()
    assert patch(world, {"spec": {"runState": "Paused"}}, dry_run=True).spec["runState"] == "Paused"
    assert world.sandbox().spec["runState"] == "Running"


def test_a_json_patch_is_carried_out_whole(world: World) -> None:
    world.apply()
    operations = [
        {"op": "test", "path": "/spec/template/image", "value": "paddock/python:1"},
        {"op": "replace", "path": "/spec/template/image", "value": "paddock/python:2"},
        {"op": "add", "path": "/spec/template/command/-", "value": "now"},
        {"op": "add", "path": "/metadata/annotations/example.org~1by", "value": "test"},
        {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/name"},
        {"op": "copy", "from": "/metadata/labels/name", "path": "/metadata/labels/again"},
        {"op": "remove", "path": "/spec/resources/limits/cpu"},
    ]
    answer = patch(world, operations, type_="json")
    assert answer.spec["template"]["command"] == ["sleep", "infinity", "now"]
    assert answer.spec["resources"]["limits"] == {"memory": "512Mi"}
    assert answer.labels == {"name": "demo", "again": "demo"}
    assert answer.annotations == {"example.org/by": "test"}


def test_a_failed_test_operation_is_a_conflict(world: World) -> None:
    world.apply()
    operations = [
        {"op": "replace", "path": "/spec/runState", "value": "Paused"},
        {"op": "test", "path": "/spec/template/image", "value": "other:1"},
    ]
    with pytest.raises(errors.Conflict, match=r"operation 2 \(test\): /spec/template/image does not have"):
        patch(world, operations, type_="json")
    assert world.sandbox().generation == 1


def test_preconditions(world: World) -> None:
    world.apply()
    version = str(world.sandbox().resource_version)
    answer = patch(world, {"metadata": {"resourceVersion": version}, "spec": {"runState": "Paused"}})
    with pytest.raises(errors.Conflict, match=f"it is at {answer.resource_version}"):
        patch(world, {"metadata": {"resourceVersion": version}, "spec": {"runState": "Running"}})
    with pytest.raises(errors.Conflict, match="deleted and recreated"):
        patch(world, {"metadata": {"uid": "other"}})
    world.change(deleted_at=1.0)
    with pytest.raises(errors.Conflict, match="is being deleted"):
        patch(world, {"spec": {"runState": "Running"}})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"metadata": {"name": "other"}}, "metadata.name: can't be patched"),
        ({"metadata": {"generation": 7}}, "metadata.generation: can't be patched"),
        ({"status": {"restartCount": 0}}, "status: can't be patched"),
        ({"kind": "Pool"}, "kind: can't be patched"),
        ({"colour": "red"}, "colour: can't be patched"),
        ({"spec": None}, "must keep its metadata and its spec"),
        ({"spec": []}, "must keep its metadata and its spec"),
        ({"spec": {"memroy": 1}}, "spec.memroy: unknown field; "),
        ({"spec": {"template": {"image": None}}}, "spec.template.image: is required"),
        (
            {"spec": {"runState": "running"}},
            "spec.runState: must be Running, Suspended, Paused or Hibernated, not `running`",
        ),
        (
            {"spec": {"resources": {"limits": {"memory": "512m"}}}},
            "spec.resources.limits.memory: `512m` is 0.512 bytes",
        ),
        ({"metadata": {"labels": {"a b": "c"}}}, "metadata.labels[a b]"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a: must be text"),
        ({"metadata": {"labels": "a"}}, "metadata.labels: must be a mapping"),
    ],
)
def test_invalid_patches_are_refused(world: World, body: Any, said: str) -> None:
    world.apply()
    world.set_ready()
    before = world.sandbox()
    with pytest.raises(errors.Invalid) as raised:
        patch(world, body)
    assert said in str(raised.value)
    assert world.sandbox() == before


def test_every_reason_at_once_and_admission_is_asked(world: World) -> None:
    world.apply()
    world.refusals.append(("spec.template.user", "no root here"))
    with pytest.raises(errors.Invalid) as raised:
        patch(world, {"spec": {"template": {"user": "0:0"}}, "metadata": {"labels": {"a": "not fit!"}}})
    assert {cause["field"] for cause in raised.value.causes} == {"spec.template.user", "metadata.labels.a"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "is a list of operations"),
        ([1], "operation 1: `op` must be one of"),
        ([{"op": "launch", "path": "/spec"}], "operation 1: `op` must be one of"),
        ([{"op": "add", "path": "spec", "value": 1}], r"operation 1 \(add\): `path` must be a pointer"),
        ([{"op": "add", "path": "/spec/runState"}], "`value` is missing"),
        ([{"op": "remove", "path": "/spec/nope"}], "there is nothing at /spec/nope"),
        ([{"op": "remove", "path": ""}], "the whole object can't be removed"),
        ([{"op": "replace", "path": "/spec/nope", "value": 1}], "use `add`"),
        ([{"op": "remove", "path": "/spec/template/command/2"}], "the list has 2"),
        ([{"op": "add", "path": "/spec/template/command/01", "value": "x"}], "there is no item"),
        ([{"op": "add", "path": "/spec/runState/x", "value": "x"}], "neither a mapping nor a list"),
        ([{"op": "move", "from": "/spec", "path": "/spec/template"}], "into itself"),
        ([{"op": "test", "path": "/spec", "value": 1}] * 1001, "at most 1000"),
    ],
)
def test_invalid_operations_are_refused(world: World, body: Any, said: str) -> None:
    world.apply()
    with pytest.raises(errors.BadRequest, match=said):
        patch(world, body, type_="json")


def test_a_merge_patch_is_a_mapping_of_an_existing_object(world: World) -> None:
    world.apply()
    with pytest.raises(errors.BadRequest, match="is a mapping"):
        patch(world, [1])
    with pytest.raises(errors.NotFound):
        world.services.patch.patch(kind(), "team", "quickstart", {})


def test_stored_unknown_fields_survive_new_ones_are_refused(world: World) -> None:
    world.apply()
    spec = dict(world.sandbox().spec)
    world.change(spec={**spec, "template": {**spec["template"], "telepathy": {"on": True}}})
    answer = patch(world, {"spec": {"runState": "Paused"}})
    assert answer.spec["template"]["telepathy"] == {"on": True}
    with pytest.raises(errors.Invalid, match=r"spec\.other: unknown field"):
        patch(world, {"spec": {"other": 1}})


def test_an_apply_keeps_what_was_patched_beside_it(world: World) -> None:
    world.apply()
    patch(
        world, {"spec": {"resources": {"limits": {"pids": 9, "memory": "1Gi"}}}, "metadata": {"labels": {"by": "me"}}}
    )
    assert world.apply(QUICKSTART) == ["configured"]
    stored = world.sandbox()
    assert stored.spec["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi", "pids": 9}
    assert stored.labels == {"app": "demo", "by": "me"}


def test_patches_take_kubernetes_spellings(world: World) -> None:
    world.apply()
    probe = {"tcpSocket": {"port": 80}}
    answer = patch(world, {"spec": {"template": {"livenessProbe": probe, "args": ["now"]}}})
    assert answer.spec["template"]["liveness"]["tcpSocket"] == {"port": 80}
    stored = patch(world, {"spec": {"template": {"livenessProbe": {"periodSeconds": 7}}}})
    assert stored.spec["template"]["liveness"]["periodSeconds"] == 7
    assert "liveness" not in patch(world, {"spec": {"template": {"livenessProbe": None}}}).spec["template"]
    documents = [{"op": "add", "path": "/spec/template/livenessProbe", "value": probe}]
    assert patch(world, documents, type_="json").spec["template"]["liveness"]["tcpSocket"] == {"port": 80}
    with pytest.raises(errors.Invalid, match="livenessProbe"):
        patch(world, documents, type_="json")
