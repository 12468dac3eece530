"""Compose projects: up applies a file's services as one set, down deletes exactly them."""

from dataclasses import replace

import pytest

from controller.documents.compose.compose import Project, apply_set_name
from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.apply_set import LABEL
from controller.service import errors
from controller.service.access.access import acting
from controller.service.objects.apply import Source
from controller.service.objects.apply_set import ApplySet
from tests.helpers_api import ApiStack

FILE = """\
name: shop
services:
  web: {image: "tiny:${TAG:-1}", networks: [default], x-paddock: {securityLevel: development}}
  db: {image: "tiny:1", volumes: ["data:/data"]}
volumes: {data: {}}
"""
ONE = FILE.replace('  db: {image: "tiny:1", volumes: ["data:/data"]}\n', "")


def results(api: ApiStack, text: str = FILE, **options: object) -> list[str]:
    upped = api.services.compose.up(text, **options)  # type: ignore[arg-type]
    return [f"{applied.obj.namespace}/{applied.obj.name} {applied.result}" for applied in upped.applied]


def down(api: ApiStack, text: str = FILE, **options: object) -> list[str]:
    return [stored.name for stored in api.services.compose.down(text, **options)]  # type: ignore[arg-type]


def test_up_applies_and_down_deletes_exactly_its_own(api: ApiStack) -> None:
    api.apply()
    assert results(api) == ["default/shop-web created", "default/shop-db created"]
    assert results(api, namespace="other") == ["other/shop-web created", "other/shop-db created"]
    assert results(api, project="second") == ["default/second-web created", "default/second-db created"]
    assert results(api) == ["default/shop-web unchanged", "default/shop-db unchanged"]
    assert down(api) == ["shop-db", "shop-web"]
    assert api.sandbox().deleted_at is None
    assert api.sandbox("second-web").deleted_at is None
    assert api.sandbox("shop-web", "other").deleted_at is None
    assert down(api, "", project="second") == ["second-db", "second-web"]
    assert down(api, project="never") == []


def test_a_dry_run_writes_nothing_and_notes_are_told(api: ApiStack) -> None:
    upped = api.services.compose.up(FILE, dry_run=True)
    assert [applied.result for applied in upped.applied] == ["created", "created"]
    assert ["volume gets 1Gi" in str(note) or "no security level" in str(note) for note in upped.notes] == [True, True]
    assert api.store.list("Sandbox")[0] == []


def test_orphans_go_only_when_asked(api: ApiStack) -> None:
    results(api)
    assert results(api, ONE) == ["default/shop-web configured"]  # it knows one peer less
    assert results(api, ONE, remove_orphans=True) == ["default/shop-web unchanged", "default/shop-db pruned"]
    assert api.sandbox("shop-db").deleted_at is not None


def test_orphans_are_those_of_the_projects_namespace(api: ApiStack) -> None:
    results(api)
    mine = {LABEL: apply_set_name("default", "shop")}
    results(api, namespace="other")
    with api.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "other", "shop-web")
        assert sandbox is not None
        transaction.put(replace(sandbox, labels={**sandbox.labels, **mine}))
    assert results(api, ONE, remove_orphans=True) == ["default/shop-web configured", "default/shop-db pruned"]
    assert api.sandbox("shop-web", "other").deleted_at is None


def test_a_sandbox_of_no_project_is_taken_over_only_when_asked(api: ApiStack) -> None:
    own_text = FILE.replace("name: shop", "name: own")
    results(api, own_text)
    labels = api.sandbox("own-web").labels
    api.apply(
        "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: shop-web}\nspec: {template: {image: tiny:1}}\n"
    )
    with pytest.raises(errors.Conflict, match=r"compose\.yaml:3:3: metadata\.name: sandbox/shop-web exists and is not"):
        results(api)
    down(api)
    assert api.sandbox("shop-web").deleted_at is None
    assert api.sandbox("own-web").labels == labels
    name = apply_set_name("default", "shop")
    source = Source("compose.yaml", FILE, Project())
    answer = api.services.apply.apply([source], as_set=ApplySet(name, take_over=True))
    assert [applied.result for applied in answer] == ["configured", "created"]
    assert down(api) == ["shop-db", "shop-web"]


def test_variables_and_options_reach_the_file(api: ApiStack) -> None:
    results(api, variables={"TAG": "7"})
    assert api.sandbox("shop-web").spec["template"]["image"] == "tiny:7"
    with pytest.raises(errors.Invalid, match=r"shop\.yaml:3:9: services\.web\.privileged"):
        results(api, "name: shop\nservices:\n  web: {privileged: true, image: x}\n", file="shop.yaml")
    with pytest.raises(errors.Invalid, match="the project has no name"):
        down(api, "services: {}")


def test_refusals_of_admission_have_positions_in_the_file(api: ApiStack) -> None:
    api.refusals.append(("spec.template.securityLevel", "can't be enforced here"))
    with pytest.raises(errors.Invalid) as refusal:
        results(api)
    assert "compose.yaml:3:82: spec.template.securityLevel: can't be enforced here" in str(refusal.value)
    assert {"file", "line", "column"} <= set(refusal.value.causes[0])


def test_a_caller_needs_the_rights_of_apply_and_delete(api: ApiStack) -> None:
    results(api)
    with acting(Caller("reader", grants=(Grant(role="viewer"),))):
        with pytest.raises(errors.Forbidden):
            results(api)
        with pytest.raises(errors.Forbidden):
            down(api)
    with acting(Caller("user", grants=(Grant(role="user", namespaces=("default",)),))):
        assert results(api)[0].endswith("unchanged")
        with pytest.raises(errors.Forbidden):
            results(api, namespace="other")
        assert len(down(api)) == 2


def test_services_get_the_volumes_of_their_images(api: ApiStack) -> None:
    api.images.remote["tiny:1"] = "sha256:" + "d" * 64
    list(api.services.images.pull("tiny:1"))
    api.images.volumes["tiny:1"] = ("/cache",)
    upped = api.services.compose.up(FILE)
    assert any("the image keeps data in /cache" in note.message for note in upped.notes)
    mounts = [volume["name"] for volume in api.sandbox("shop-db").spec["template"]["volumes"]]
    assert mounts == ["shop-data", "shop-db--cache"]
    api.images.volumes["tiny:1"] = ()  # a request's own facts come first: its image may be on another host
    project = Project(image_volumes={"tiny:1": ["/cache"]})
    (*_, applied) = api.services.apply.apply([Source("compose.yaml", FILE, project)])
    assert applied.result == "unchanged"


def test_an_unreadable_image_takes_no_volume(api: ApiStack) -> None:
    api.images.remote["tiny:1"] = "sha256:" + "d" * 64
    list(api.services.images.pull("tiny:1"))
    api.images.volumes["tiny:1"] = ("/cache", "/tmp")
    results(api)
    template = api.sandbox("shop-db").spec["template"]
    api.images.away = True
    with pytest.raises(errors.ServiceUnavailable, match="tiny:1: the folders it keeps data in"):
        results(api)
    assert api.sandbox("shop-db").spec["template"] == template
    api.images.away = False
    assert api.images.delete("tiny:1") == ""
    assert results(api) == ["default/shop-web unchanged", "default/shop-db unchanged"]
    changed_text = FILE.replace("data:/data", "data:/srv")
    assert results(api, changed_text) == ["default/shop-web unchanged", "default/shop-db configured"]
    mounts = [volume["name"] for volume in api.sandbox("shop-db").spec["template"]["volumes"]]
    assert mounts == ["shop-data", "shop-db--cache"]
    assert [folder["mountPath"] for folder in api.sandbox("shop-db").spec["template"]["tmpfs"]] == ["/tmp"]
