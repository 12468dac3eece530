"""Apply: all or nothing, merged with what others set, counted by generation."""

import pytest

from controller.kinds.registry import discover
from controller.service import errors
from controller.service.objects.apply import Source
from tests.helpers_api import QUICKSTART, ApiStack

OTHER = QUICKSTART.replace("name: quickstart", "name: other")


def test_a_new_object_gets_defaults_and_server_fields(api: ApiStack) -> None:
    assert api.apply() == ["created"]
    stored = api.sandbox()
    assert stored.uid == "00000000-0000-4000-8000-000000000001"
    assert (stored.generation, stored.created_at) == (1, api.clock.now())
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
    assert api.woken == [1]


def test_the_same_again_writes_nothing_and_wakes_nobody(api: ApiStack) -> None:
    api.apply()
    revision = api.store.revision()
    assert api.apply() == ["unchanged"]
    assert api.store.revision() == revision
    assert api.woken == [1]


@pytest.mark.parametrize(
    ("before", "after"),
    [("cpu: 500m", 'cpu: "0.5"'), ("512Mi", "0.5Gi"), ("  resources:", "  runState: Running\n  resources:")],
)
def test_an_equal_spec_keeps_the_generation(api: ApiStack, before: str, after: str) -> None:
    api.apply()
    assert api.apply(QUICKSTART.replace(before, after)) == ["unchanged"]
    assert api.sandbox().generation == 1


def test_only_a_changed_spec_increments_the_generation(api: ApiStack) -> None:
    api.apply()
    assert api.apply(QUICKSTART.replace("512Mi", "1Gi")) == ["configured"]
    assert api.sandbox().generation == 2
    assert api.apply(QUICKSTART.replace("512Mi", "1Gi").replace("app: demo", "app: other")) == ["configured"]
    assert (api.sandbox().generation, api.sandbox().labels) == (2, {"app": "other"})


def test_apply_keeps_foreign_fields_and_resets_dropped_ones(api: ApiStack) -> None:
    api.apply(QUICKSTART + "  restartPolicy: Never\n")
    spec = dict(api.sandbox().spec)
    spec["resources"] = {"limits": {**spec["resources"]["limits"], "pids": 99}}
    api.change(spec=spec, labels={"app": "demo", "by": "panel"}, generation=2)
    assert api.apply(QUICKSTART) == ["configured"]
    stored = api.sandbox()
    assert stored.spec["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi", "pids": 99}
    assert stored.spec["restartPolicy"] == "Always"
    assert stored.labels == {"app": "demo", "by": "panel"}


def test_null_takes_a_field_of_others_away(api: ApiStack) -> None:
    api.apply()
    api.change(labels={"app": "demo", "by": "panel"})
    api.apply(QUICKSTART.replace("{app: demo}", "{app: demo, by: null}").replace("cpu: 500m", "cpu: null"))
    assert api.sandbox().labels == {"app": "demo"}
    assert api.sandbox().spec["resources"]["limits"] == {"memory": "512Mi"}


def test_fields_of_a_newer_version_survive(api: ApiStack) -> None:
    api.apply()
    spec = dict(api.sandbox().spec)
    spec["template"] = {**spec["template"], "telepathy": {"on": True}}
    api.change(spec={**spec, "futureField": [1]})
    assert api.apply(QUICKSTART.replace("512Mi", "1Gi")) == ["configured"]
    stored = api.sandbox().spec
    assert (stored["futureField"], stored["template"]["telepathy"]) == ([1], {"on": True})
    assert stored["resources"]["limits"]["memory"] == "1Gi"


def test_one_bad_document_and_nothing_is_written(api: ApiStack) -> None:
    with pytest.raises(errors.Invalid) as caught:
        api.apply(f"{OTHER}---\n{QUICKSTART.replace('512Mi', '512m')}")
    assert [cause["field"] for cause in caught.value.causes] == ["spec.resources.limits.memory"]
    assert api.store.list("Sandbox")[0] == []
    assert not api.woken


def test_problems_of_all_files_come_at_once(api: ApiStack) -> None:
    bad = QUICKSTART.replace("512Mi", "512m")
    with pytest.raises(errors.Invalid) as caught:
        api.services.apply.apply([Source("a.yaml", bad), Source("b.yaml", "kind: Sandbx\n"), Source("c.yaml", OTHER)])
    text = str(caught.value)
    assert text.startswith("4 problems; nothing was changed\n")
    assert "a.yaml:11:33: spec.resources.limits.memory: `512m`" in text
    assert "b.yaml:1:7: kind: `Sandbx` is not a known kind; did you mean `Sandbox`?" in text


def test_what_policy_refuses_is_placed_in_the_file(api: ApiStack) -> None:
    api.refusals += [("spec.template.image", "is not allowed"), ("spec.resources.limits.pids", "is too many")]
    with pytest.raises(errors.Invalid) as caught:
        api.apply()
    assert str(caught.value).splitlines()[1:] == [
        "spec.yaml:8:12: spec.template.image: is not allowed",
        "spec.yaml:11:13: spec.resources.limits.pids: is too many",
    ]
    assert api.store.list("Sandbox")[0] == []


def test_an_invalid_merge_result_has_the_same_messages(api: ApiStack) -> None:
    api.apply()
    spec = dict(api.sandbox().spec)
    api.change(spec={**spec, "lifecycle": {"shutdownGracePeriodSeconds": 99999}})
    with pytest.raises(errors.Invalid, match="shutdownGracePeriodSeconds: must be at most 3600, not `99999`"):
        api.apply(QUICKSTART.replace("512Mi", "1Gi"))


def test_a_dry_run_says_the_same_and_writes_nothing(api: ApiStack) -> None:
    assert api.apply(dry_run=True) == ["created"]
    assert api.store.list("Sandbox")[0] == []
    api.apply()
    assert api.apply(QUICKSTART.replace("512Mi", "1Gi") + "---\n" + OTHER, dry_run=True) == ["configured", "created"]
    assert api.sandbox().generation == 1
    assert api.woken == [1]


def _with(line: str) -> str:
    return QUICKSTART.replace("  name: quickstart\n", f"  name: quickstart\n  {line}\n")


def test_a_resource_version_that_moved_on_is_a_conflict(api: ApiStack) -> None:
    api.apply()
    version = api.sandbox().resource_version
    assert api.apply(_with(f"resourceVersion: '{version}'")) == ["unchanged"]
    api.change(labels={"x": "y"})
    with pytest.raises(errors.Conflict, match=r"spec.yaml:5:20: metadata.resourceVersion: .*was changed since"):
        api.apply(_with(f"resourceVersion: '{version}'"))


@pytest.mark.parametrize("line", ["resourceVersion: '1'", "uid: gone"])
def test_a_document_of_a_deleted_object_conflicts(api: ApiStack, line: str) -> None:
    with pytest.raises(errors.Conflict, match="no longer exists"):
        api.apply(_with(line))


def test_a_document_with_another_uid_conflicts(api: ApiStack) -> None:
    api.apply()
    with pytest.raises(errors.Conflict, match="recreated since"):
        api.apply(_with("uid: another"))


def test_an_object_that_is_being_deleted_takes_no_changes(api: ApiStack) -> None:
    api.apply()
    api.services.objects.delete(_sandbox_kind(), "default", "quickstart")
    with pytest.raises(errors.Conflict, match="is being deleted; wait"):
        api.apply()


def _sandbox_kind():
    kind = discover().by_name("Sandbox")
    assert kind is not None
    return kind


def test_the_same_object_twice_in_one_apply_is_refused(api: ApiStack) -> None:
    with pytest.raises(errors.Invalid, match=r"already defined at spec\.yaml:1"):
        api.apply(f"{QUICKSTART}---\n{QUICKSTART}")


def test_no_document_at_all_is_said_so(api: ApiStack) -> None:
    with pytest.raises(errors.BadRequest, match=r"no document in spec.yaml"):
        api.apply("# nothing here\n")


def test_a_failing_store_is_unavailable_without_wake(api: ApiStack) -> None:
    api.store.close()
    with pytest.raises(errors.ServiceUnavailable, match="the store can't be used now"):
        api.apply()
    assert not api.woken


def test_the_answer_is_in_the_order_of_the_documents(api: ApiStack) -> None:
    api.apply(OTHER)
    assert api.apply(f"{QUICKSTART}---\n{OTHER}") == ["created", "unchanged"]


PROBED = QUICKSTART.replace(
    "  resources:", "    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 5}\n    args: [now]\n  resources:"
)


def test_kubernetes_spellings_merge_as_our_own_fields(api: ApiStack) -> None:
    api.apply(PROBED)
    before = api.sandbox()
    assert before.spec["template"]["liveness"]["periodSeconds"] == 5
    assert api.apply(PROBED) == api.apply(PROBED.replace("livenessProbe", "liveness")) == ["unchanged"]
    assert api.sandbox().spec["template"] == before.spec["template"]
    assert api.apply(PROBED.replace("periodSeconds: 5", "periodSeconds: 6")) == ["configured"]
    assert api.apply(QUICKSTART) == ["configured"]
    assert not {"liveness", "livenessProbe", "args"} & set(api.sandbox().spec["template"])


def test_a_nested_template_is_stored_flat(api: ApiStack) -> None:
    head = "apiVersion: paddock/v1alpha1\nkind: SandboxTemplate\nmetadata: {name: t}\nspec: "
    nested, flat = head + "{template: {image: a, user: '20000:20000'}}\n", head + "{image: a}\n"
    assert api.apply(nested) == ["created"]
    assert api.apply(nested) == ["unchanged"]
    assert api.apply(flat) == ["configured"]
    with api.store.transaction() as transaction:
        stored = transaction.get("SandboxTemplate", "default", "t")
    assert stored is not None
    assert (stored.spec["image"], stored.spec.get("user"), stored.spec.get("template")) == ("a", None, None)
