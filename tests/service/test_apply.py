"""Apply: all or nothing, merged with what others set, counted by generation."""

import pytest

from controller.kinds.registry import discover
from controller.service import errors
from controller.service.objects.apply import Source
from tests.helpers_api import QUICKSTART, World

OTHER = QUICKSTART.replace("name: quickstart", "name: other")


def test_a_new_object_gets_defaults_and_server_fields(world: World) -> None:
    assert world.apply() == ["created"]
    stored = world.sandbox()
    assert stored.uid == "00000000-0000-4000-8000-000000000001"
    assert (stored.generation, stored.created_at) == (1, world.clock.now())
    assert stored.finalizers == ("paddock/container",)
    assert stored.spec["lifecycle"] == {
        "shutdownGracePeriodSeconds": 10,
        "idleTimeoutSeconds": 1800,
        "keepRunning": False,
        "onSuspend": "KeepFiles",
    }
    assert stored.spec["resources"] == {"limits": {"cpu": "500m", "memory": "512Mi"}}
    assert stored.last_applied is not None
    assert "lifecycle" not in stored.last_applied["spec"]
    assert world.woken == [1]


def test_the_same_again_writes_nothing_and_wakes_nobody(world: World) -> None:
    world.apply()
    revision = world.store.revision()
    assert world.apply() == ["unchanged"]
    assert world.store.revision() == revision
    assert world.woken == [1]


@pytest.mark.parametrize(
    ("before", "after"),
    [("cpu: 500m", 'cpu: "0.5"'), ("512Mi", "0.5Gi"), ("  resources:", "  runState: Running\n  resources:")],
)
def test_an_equal_spec_keeps_the_generation(world: World, before: str, after: str) -> None:
    world.apply()
    assert world.apply(QUICKSTART.replace(before, after)) == ["unchanged"]
    assert world.sandbox().generation == 1


def test_only_a_changed_spec_increments_the_generation(world: World) -> None:
    world.apply()
    assert world.apply(QUICKSTART.replace("512Mi", "1Gi")) == ["configured"]
    assert world.sandbox().generation == 2
    assert world.apply(QUICKSTART.replace("512Mi", "1Gi").replace("app: demo", "app: other")) == ["configured"]
    assert (world.sandbox().generation, world.sandbox().labels) == (2, {"app": "other"})


def test_apply_keeps_foreign_fields_and_resets_dropped_ones(world: World) -> None:
    world.apply(QUICKSTART + "  restartPolicy: Never\n")
    spec = dict(world.sandbox().spec)
    spec["resources"] = {"limits": {**spec["resources"]["limits"], "pids": 99}}
    world.change(spec=spec, labels={"app": "demo", "by": "panel"}, generation=2)
    assert world.apply(QUICKSTART) == ["configured"]
    stored = world.sandbox()
    assert stored.spec["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi", "pids": 99}
    assert stored.spec["restartPolicy"] == "Always"
    assert stored.labels == {"app": "demo", "by": "panel"}


def test_null_takes_a_field_of_others_away(world: World) -> None:
    world.apply()
    world.change(labels={"app": "demo", "by": "panel"})
    world.apply(QUICKSTART.replace("{app: demo}", "{app: demo, by: null}").replace("cpu: 500m", "cpu: null"))
    assert world.sandbox().labels == {"app": "demo"}
    assert world.sandbox().spec["resources"]["limits"] == {"memory": "512Mi"}


def test_fields_of_a_newer_version_survive(world: World) -> None:
    world.apply()
    spec = dict(world.sandbox().spec)
    spec["template"] = {**spec["template"], "telepathy": {"on": True}}
    world.change(spec={**spec, "futureField": [1]})
    assert world.apply(QUICKSTART.replace("512Mi", "1Gi")) == ["configured"]
    stored = world.sandbox().spec
    assert (stored["futureField"], stored["template"]["telepathy"]) == ([1], {"on": True})
    assert stored["resources"]["limits"]["memory"] == "1Gi"


def test_one_bad_document_and_nothing_is_written(world: World) -> None:
    with pytest.raises(errors.Invalid) as caught:
        world.apply(f"{OTHER}---\n{QUICKSTART.replace('512Mi', '512m')}")
    assert [cause["field"] for cause in caught.value.causes] == ["spec.resources.limits.memory"]
    assert world.store.list("Sandbox")[0] == []
    assert not world.woken


def test_problems_of_all_files_come_at_once(world: World) -> None:
    bad = QUICKSTART.replace("512Mi", "512m")
    with pytest.raises(errors.Invalid) as caught:
        world.services.apply.apply([Source("a.yaml", bad), Source("b.yaml", "kind: Sandbx\n"), Source("c.yaml", OTHER)])
    text = str(caught.value)
    assert text.startswith("4 problems; nothing was changed\n")
    assert "a.yaml:11:33: spec.resources.limits.memory: `512m`" in text
    assert "b.yaml:1:7: kind: `Sandbx` is not a known kind; did you mean `Sandbox`?" in text


def test_what_policy_refuses_is_placed_in_the_file(world: World) -> None:
    world.refusals += [("spec.template.image", "is not allowed"), ("spec.resources.limits.pids", "is too many")]
    with pytest.raises(errors.Invalid) as caught:
        world.apply()
    assert str(caught.value).splitlines()[1:] == [
        "spec.yaml:8:12: spec.template.image: is not allowed",
        "spec.yaml:11:13: spec.resources.limits.pids: is too many",
    ]
    assert world.store.list("Sandbox")[0] == []


def test_an_invalid_merge_result_has_the_same_messages(world: World) -> None:
    world.apply()
    spec = dict(world.sandbox().spec)
    world.change(spec={**spec, "lifecycle": {"shutdownGracePeriodSeconds": 99999}})
    with pytest.raises(errors.Invalid, match="shutdownGracePeriodSeconds: must be at most 3600, not `99999`"):
        world.apply(QUICKSTART.replace("512Mi", "1Gi"))


def test_a_dry_run_says_the_same_and_writes_nothing(world: World) -> None:
    assert world.apply(dry_run=True) == ["created"]
    assert world.store.list("Sandbox")[0] == []
    world.apply()
    assert world.apply(QUICKSTART.replace("512Mi", "1Gi") + "---\n" + OTHER, dry_run=True) == ["configured", "created"]
    assert world.sandbox().generation == 1
    assert world.woken == [1]


def _with(line: str) -> str:
    return QUICKSTART.replace("  name: quickstart\n", f"  name: quickstart\n  {line}\n")


def test_a_resource_version_that_moved_on_is_a_conflict(world: World) -> None:
    world.apply()
    version = world.sandbox().resource_version
    assert world.apply(_with(f"resourceVersion: '{version}'")) == ["unchanged"]
    world.change(labels={"x": "y"})
    with pytest.raises(errors.Conflict, match=r"spec.yaml:5:20: metadata.resourceVersion: .*was changed since"):
        world.apply(_with(f"resourceVersion: '{version}'"))


@pytest.mark.parametrize("line", ["resourceVersion: '1'", "uid: gone"])
def test_a_document_of_a_deleted_object_conflicts(world: World, line: str) -> None:
    with pytest.raises(errors.Conflict, match="no longer exists"):
        world.apply(_with(line))


def test_a_document_with_another_uid_conflicts(world: World) -> None:
    world.apply()
    with pytest.raises(errors.Conflict, match="recreated since"):
        world.apply(_with("uid: another"))


def test_an_object_that_is_being_deleted_takes_no_changes(world: World) -> None:
    world.apply()
    world.services.objects.delete(_sandbox_kind(), "default", "quickstart")
    with pytest.raises(errors.Conflict, match="is being deleted; wait"):
        world.apply()


def _sandbox_kind():
    kind = discover().by_name("Sandbox")
    assert kind is not None
    return kind


def test_the_same_object_twice_in_one_apply_is_refused(world: World) -> None:
    with pytest.raises(errors.Invalid, match=r"already defined at spec\.yaml:1"):
        world.apply(f"{QUICKSTART}---\n{QUICKSTART}")


def test_no_document_at_all_is_said_so(world: World) -> None:
    with pytest.raises(errors.BadRequest, match=r"no document in spec.yaml"):
        world.apply("# nothing here\n")


def test_a_failing_store_is_unavailable_without_wake(world: World) -> None:
    world.store.close()
    with pytest.raises(errors.ServiceUnavailable, match="the store can't be used now"):
        world.apply()
    assert not world.woken


def test_the_answer_is_in_the_order_of_the_documents(world: World) -> None:
    world.apply(OTHER)
    assert world.apply(f"{QUICKSTART}---\n{OTHER}") == ["created", "unchanged"]


PROBED = QUICKSTART.replace(
    "  resources:", "    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 5}\n    args: [now]\n  resources:"
)


def test_kubernetes_spellings_merge_as_our_own_fields(world: World) -> None:
    world.apply(PROBED)
    before = world.sandbox()
    assert before.spec["template"]["liveness"]["periodSeconds"] == 5
    assert world.apply(PROBED) == world.apply(PROBED.replace("livenessProbe", "liveness")) == ["unchanged"]
    assert world.sandbox().spec["template"] == before.spec["template"]
    assert world.apply(PROBED.replace("periodSeconds: 5", "periodSeconds: 6")) == ["configured"]
    assert world.apply(QUICKSTART) == ["configured"]
    assert not {"liveness", "livenessProbe", "args"} & set(world.sandbox().spec["template"])


def test_a_nested_template_is_stored_flat(world: World) -> None:
    head = "apiVersion: paddock/v1alpha1\nkind: SandboxTemplate\nmetadata: {name: t}\nspec: "
    nested, flat = head + "{template: {image: a, user: '20000:20000'}}\n", head + "{image: a}\n"
    assert world.apply(nested) == ["created"]
    assert world.apply(nested) == ["unchanged"]
    assert world.apply(flat) == ["configured"]
    with world.store.transaction() as transaction:
        stored = transaction.get("SandboxTemplate", "default", "t")
    assert stored is not None
    assert (stored.spec["image"], stored.spec.get("user"), stored.spec.get("template")) == ("a", None, None)
