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
from tests.helpers_api import World

FILE = """\
name: shop
services:
  web: {image: "tiny:${TAG:-1}", networks: [default], x-paddock: {securityLevel: development}}
  db: {image: "tiny:1", volumes: ["data:/data"]}
volumes: {data: {}}
"""
ONE = FILE.replace('  db: {image: "tiny:1", volumes: ["data:/data"]}\n', "")


def results(world: World, text: str = FILE, **options: object) -> list[str]:
    upped = world.services.compose.up(text, **options)  # type: ignore[arg-type]
    return [f"{applied.obj.namespace}/{applied.obj.name} {applied.result}" for applied in upped.applied]


def down(world: World, text: str = FILE, **options: object) -> list[str]:
    return [stored.name for stored in world.services.compose.down(text, **options)]  # type: ignore[arg-type]


def test_up_applies_and_down_deletes_exactly_its_own(world: World) -> None:
    world.apply()
    assert results(world) == ["default/shop-web created", "default/shop-db created"]
    assert results(world, namespace="other") == ["other/shop-web created", "other/shop-db created"]
    assert results(world, project="second") == ["default/second-web created", "default/second-db created"]
    assert results(world) == ["default/shop-web unchanged", "default/shop-db unchanged"]
    assert down(world) == ["shop-db", "shop-web"]
    assert world.sandbox().deleted_at is None
    assert world.sandbox("second-web").deleted_at is None
    assert world.sandbox("shop-web", "other").deleted_at is None
    assert down(world, "", project="second") == ["second-db", "second-web"]
    assert down(world, project="never") == []


def test_a_dry_run_writes_nothing_and_notes_are_told(world: World) -> None:
    upped = world.services.compose.up(FILE, dry_run=True)
    assert [applied.result for applied in upped.applied] == ["created", "created"]
    assert ["volume gets 1Gi" in str(note) or "no security level" in str(note) for note in upped.notes] == [True, True]
    assert world.store.list("Sandbox")[0] == []


def test_orphans_go_only_when_asked(world: World) -> None:
    results(world)
    assert results(world, ONE) == ["default/shop-web configured"]  # it knows one peer less
    assert results(world, ONE, remove_orphans=True) == ["default/shop-web unchanged", "default/shop-db pruned"]
    assert world.sandbox("shop-db").deleted_at is not None


def test_orphans_are_those_of_the_projects_namespace(world: World) -> None:
    results(world)
    mine = {LABEL: apply_set_name("default", "shop")}
    results(world, namespace="other")
    with world.store.transaction() as transaction:
        sandbox = transaction.get("Sandbox", "other", "shop-web")
        assert sandbox is not None
        transaction.put(replace(sandbox, labels={**sandbox.labels, **mine}))
    assert results(world, ONE, remove_orphans=True) == ["default/shop-web configured", "default/shop-db pruned"]
    assert world.sandbox("shop-web", "other").deleted_at is None


def test_a_sandbox_of_no_project_is_taken_over_only_when_asked(world: World) -> None:
    own_text = FILE.replace("name: shop", "name: own")
    results(world, own_text)
    labels = world.sandbox("own-web").labels
    world.apply(
        "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: shop-web}\nspec: {template: {image: tiny:1}}\n"
    )
    with pytest.raises(errors.Conflict, match=r"compose\.yaml:3:3: metadata\.name: sandbox/shop-web exists and is not"):
        results(world)
    down(world)
    assert world.sandbox("shop-web").deleted_at is None
    assert world.sandbox("own-web").labels == labels
    name = apply_set_name("default", "shop")
    source = Source("compose.yaml", FILE, Project())
    answer = world.services.apply.apply([source], as_set=ApplySet(name, take_over=True))
    assert [applied.result for applied in answer] == ["configured", "created"]
    assert down(world) == ["shop-db", "shop-web"]


def test_variables_and_options_reach_the_file(world: World) -> None:
    results(world, variables={"TAG": "7"})
    assert world.sandbox("shop-web").spec["template"]["image"] == "tiny:7"
    with pytest.raises(errors.Invalid, match=r"shop\.yaml:3:9: services\.web\.privileged"):
        results(world, "name: shop\nservices:\n  web: {privileged: true, image: x}\n", file="shop.yaml")
    with pytest.raises(errors.Invalid, match="the project has no name"):
        down(world, "services: {}")


def test_refusals_of_admission_have_positions_in_the_file(world: World) -> None:
    world.refusals.append(("spec.template.securityLevel", "can't be enforced here"))
    with pytest.raises(errors.Invalid) as refusal:
        results(world)
    assert "compose.yaml:3:82: spec.template.securityLevel: can't be enforced here" in str(refusal.value)
    assert {"file", "line", "column"} <= set(refusal.value.causes[0])


def test_a_caller_needs_the_rights_of_apply_and_delete(world: World) -> None:
    results(world)
    with acting(Caller("reader", grants=(Grant(role="viewer"),))):
        with pytest.raises(errors.Forbidden):
            results(world)
        with pytest.raises(errors.Forbidden):
            down(world)
    with acting(Caller("user", grants=(Grant(role="user", namespaces=("default",)),))):
        assert results(world)[0].endswith("unchanged")
        with pytest.raises(errors.Forbidden):
            results(world, namespace="other")
        assert len(down(world)) == 2


def test_services_get_the_volumes_of_their_images(world: World) -> None:
    world.images.remote["tiny:1"] = "sha256:" + "d" * 64
    list(world.services.images.pull("tiny:1"))
    world.images.volumes["tiny:1"] = ("/cache",)
    upped = world.services.compose.up(FILE)
    assert any("the image keeps data in /cache" in note.message for note in upped.notes)
    mounts = [volume["name"] for volume in world.sandbox("shop-db").spec["template"]["volumes"]]
    assert mounts == ["shop-data", "shop-db--cache"]
    world.images.volumes["tiny:1"] = ()  # a request's own facts come first: its image may be on another host
    project = Project(image_volumes={"tiny:1": ["/cache"]})
    (*_, applied) = world.services.apply.apply([Source("compose.yaml", FILE, project)])
    assert applied.result == "unchanged"


def test_an_unreadable_image_takes_no_volume(world: World) -> None:
    world.images.remote["tiny:1"] = "sha256:" + "d" * 64
    list(world.services.images.pull("tiny:1"))
    world.images.volumes["tiny:1"] = ("/cache", "/tmp")
    results(world)
    template = world.sandbox("shop-db").spec["template"]
    world.images.away = True
    with pytest.raises(errors.ServiceUnavailable, match="tiny:1: the folders it keeps data in"):
        results(world)
    assert world.sandbox("shop-db").spec["template"] == template
    world.images.away = False
    assert world.images.delete("tiny:1") == ""
    assert results(world) == ["default/shop-web unchanged", "default/shop-db unchanged"]
    changed_text = FILE.replace("data:/data", "data:/srv")
    assert results(world, changed_text) == ["default/shop-web unchanged", "default/shop-db configured"]
    mounts = [volume["name"] for volume in world.sandbox("shop-db").spec["template"]["volumes"]]
    assert mounts == ["shop-data", "shop-db--cache"]
    assert [folder["mountPath"] for folder in world.sandbox("shop-db").spec["template"]["tmpfs"]] == ["/tmp"]
