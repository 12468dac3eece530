"""PATCH as a use-case: the two formats, what may be touched, preconditions, and what an apply makes of it."""

from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, discover
from controller.service import errors
from tests.helpers_api import QUICKSTART, ApiStack


def kind() -> Kind:
    name = discover().by_name("Sandbox")
    assert name is not None
    return name


def patch(api: ApiStack, body: Any, **options: Any) -> StoredObject:
    return api.services.patch.patch(kind(), "default", "quickstart", body, **options)


def test_a_merge_patch_changes_the_spec_and_moves_the_generation(api: ApiStack) -> None:
    api.apply()
    answer = patch(api, {"spec": {"resources": {"limits": {"memory": "1Gi", "cpu": None}}}})
    assert answer.spec["resources"]["limits"] == {"memory": "1Gi"}
    assert (answer.generation, api.sandbox()) == (2, answer)
    assert api.woken == [1, 1]


def test_labels_and_annotations_move_no_generation(api: ApiStack) -> None:
    api.apply()
    answer = patch(api, {"metadata": {"labels": {"tier": "db", "app": None}, "annotations": {"a/b": "c"}}})
    assert (answer.labels, answer.annotations, answer.generation) == ({"tier": "db"}, {"a/b": "c"}, 1)


def test_an_equal_patch_writes_nothing(api: ApiStack) -> None:
    api.apply()
    before, revision = api.sandbox(), api.store.revision()
    assert patch(api, {"spec": {"resources": {"limits": {"cpu": "0.5"}}}}) == before
    assert (api.store.revision(), api.woken) == (revision, [1])


def test_a_dry_run_answers_and_writes_nothing(api: ApiStack) -> None:
    api.apply()
    assert patch(api, {"spec": {"runState": "Paused"}}, dry_run=True).spec["runState"] == "Paused"
    assert api.sandbox().spec["runState"] == "Running"


def test_a_json_patch_is_carried_out_whole(api: ApiStack) -> None:
    api.apply()
    operations = [
        {"op": "test", "path": "/spec/template/image", "value": "paddock/python:1"},
        {"op": "replace", "path": "/spec/template/image", "value": "paddock/python:2"},
        {"op": "add", "path": "/spec/template/command/-", "value": "now"},
        {"op": "add", "path": "/metadata/annotations/example.org~1by", "value": "test"},
        {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/name"},
        {"op": "copy", "from": "/metadata/labels/name", "path": "/metadata/labels/again"},
        {"op": "remove", "path": "/spec/resources/limits/cpu"},
    ]
    answer = patch(api, operations, type_="json")
    assert answer.spec["template"]["command"] == ["sleep", "infinity", "now"]
    assert answer.spec["resources"]["limits"] == {"memory": "512Mi"}
    assert answer.labels == {"name": "demo", "again": "demo"}
    assert answer.annotations == {"example.org/by": "test"}


def test_a_failed_test_operation_is_a_conflict(api: ApiStack) -> None:
    api.apply()
    operations = [
        {"op": "replace", "path": "/spec/runState", "value": "Paused"},
        {"op": "test", "path": "/spec/template/image", "value": "other:1"},
    ]
    with pytest.raises(errors.Conflict, match=r"operation 2 \(test\): /spec/template/image does not have"):
        patch(api, operations, type_="json")
    assert api.sandbox().generation == 1


def test_preconditions(api: ApiStack) -> None:
    api.apply()
    version = str(api.sandbox().resource_version)
    answer = patch(api, {"metadata": {"resourceVersion": version}, "spec": {"runState": "Paused"}})
    with pytest.raises(errors.Conflict, match=f"it is at {answer.resource_version}"):
        patch(api, {"metadata": {"resourceVersion": version}, "spec": {"runState": "Running"}})
    with pytest.raises(errors.Conflict, match="deleted and recreated"):
        patch(api, {"metadata": {"uid": "other"}})
    api.change(deleted_at=1.0)
    with pytest.raises(errors.Conflict, match="is being deleted"):
        patch(api, {"spec": {"runState": "Running"}})


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
def test_invalid_patches_are_refused(api: ApiStack, body: Any, said: str) -> None:
    api.apply()
    api.set_ready()
    before = api.sandbox()
    with pytest.raises(errors.Invalid) as raised:
        patch(api, body)
    assert said in str(raised.value)
    assert api.sandbox() == before


def test_every_reason_at_once_and_admission_is_asked(api: ApiStack) -> None:
    api.apply()
    api.refusals.append(("spec.template.user", "no root here"))
    with pytest.raises(errors.Invalid) as raised:
        patch(api, {"spec": {"template": {"user": "0:0"}}, "metadata": {"labels": {"a": "not fit!"}}})
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
def test_invalid_operations_are_refused(api: ApiStack, body: Any, said: str) -> None:
    api.apply()
    with pytest.raises(errors.BadRequest, match=said):
        patch(api, body, type_="json")


def test_a_merge_patch_is_a_mapping_of_an_existing_object(api: ApiStack) -> None:
    api.apply()
    with pytest.raises(errors.BadRequest, match="is a mapping"):
        patch(api, [1])
    with pytest.raises(errors.NotFound):
        api.services.patch.patch(kind(), "team", "quickstart", {})


def test_stored_unknown_fields_survive_new_ones_are_refused(api: ApiStack) -> None:
    api.apply()
    spec = dict(api.sandbox().spec)
    api.change(spec={**spec, "template": {**spec["template"], "telepathy": {"on": True}}})
    answer = patch(api, {"spec": {"runState": "Paused"}})
    assert answer.spec["template"]["telepathy"] == {"on": True}
    with pytest.raises(errors.Invalid, match=r"spec\.other: unknown field"):
        patch(api, {"spec": {"other": 1}})


def test_an_apply_keeps_what_was_patched_beside_it(api: ApiStack) -> None:
    api.apply()
    patch(api, {"spec": {"resources": {"limits": {"pids": 9, "memory": "1Gi"}}}, "metadata": {"labels": {"by": "me"}}})
    assert api.apply(QUICKSTART) == ["configured"]
    stored = api.sandbox()
    assert stored.spec["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi", "pids": 9}
    assert stored.labels == {"app": "demo", "by": "me"}


def test_patches_take_kubernetes_spellings(api: ApiStack) -> None:
    api.apply()
    probe = {"tcpSocket": {"port": 80}}
    answer = patch(api, {"spec": {"template": {"livenessProbe": probe, "args": ["now"]}}})
    assert answer.spec["template"]["liveness"]["tcpSocket"] == {"port": 80}
    stored = patch(api, {"spec": {"template": {"livenessProbe": {"periodSeconds": 7}}}})
    assert stored.spec["template"]["liveness"]["periodSeconds"] == 7
    assert "liveness" not in patch(api, {"spec": {"template": {"livenessProbe": None}}}).spec["template"]
    documents = [{"op": "add", "path": "/spec/template/livenessProbe", "value": probe}]
    assert patch(api, documents, type_="json").spec["template"]["liveness"]["tcpSocket"] == {"port": 80}
    with pytest.raises(errors.Invalid, match="livenessProbe"):
        patch(api, documents, type_="json")
