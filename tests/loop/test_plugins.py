"""Plugins: their objects are created, put back, changed and removed; those of others never."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.meta import StoredObject
from controller.kinds.registry import discover
from controller.loop.plugins import PluginKeeper
from controller.service import errors
from controller.service.objects.apply import Source
from tests.contract.store_worlds import World
from tests.loop.harness import TINY, LoopHarness


class PluginHarness(LoopHarness):
    """A harness that keeps plugins, too."""

    def daemon(self) -> None:
        super().daemon()
        self.keeper = PluginKeeper(self.store, self.services.plugins, self.clock)
        self.reconcile_pass.report_plugins = self.keeper.observe_pass

    def put(self, kind: str, name: str, **spec: Any) -> None:
        document = {"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.services.apply.apply([Source("test", json.dumps(document))])

    def tick(self) -> None:
        self.run_pass()
        self.keeper.step()
        self.run_pass()

    def states(self) -> dict[str, str]:
        stored = self.found("Plugin", "p")
        assert stored is not None
        return {
            condition["type"]: f"{condition['status']} {condition['reason']}"
            for condition in stored.status["conditions"]
        }

    def found(self, kind: str, name: str) -> StoredObject | None:
        return self.store.get(kind, "default", name)


@pytest.fixture
def house(world: World) -> Iterator[PluginHarness]:
    plugin_harness = PluginHarness(world.store())
    yield plugin_harness
    plugin_harness.close()


def template(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "SandboxTemplate", "metadata": {"name": name}, "spec": {"image": TINY, **spec}}


def plugin(*objects: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": "1.0", "type": "Tool", "objects": objects or (template("t"),), **more}


def test_objects_are_created_put_back_and_removed(house: PluginHarness) -> None:
    house.put("Plugin", "p", **plugin(template("a"), template("b")))
    house.tick()
    assert house.states() == {"Accepted": "True Admitted", "Ready": "True Applied"}
    house.delete("a", "sandboxtemplate")
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    house.services.patch.patch(kind, "default", "b", {"spec": {"user": "20001:20001"}})
    house.clock.advance(31)
    house.tick()
    assert [house.found("SandboxTemplate", name) is not None for name in "ab"] == [True, True]
    restored = house.found("SandboxTemplate", "b")
    assert restored is not None
    assert "user" not in restored.spec
    house.put("Plugin", "p", **plugin(template("b")))
    house.tick()
    assert house.found("SandboxTemplate", "a") is None, "the new version has it no more"
    house.delete("p", "plugin")
    house.tick()
    assert house.found("SandboxTemplate", "b") is None


def test_nothing_is_created_without_its_grants(house: PluginHarness) -> None:
    asks = plugin(template("t", securityLevel="development"), permissions=[{"level": "development"}])
    house.put("Plugin", "p", **asks)
    house.tick()
    assert house.states() == {"Accepted": "False PermissionsNotGranted", "Ready": "False NotAccepted"}
    assert house.found("SandboxTemplate", "t") is None
    house.put("Plugin", "p", **asks, granted=[{"level": "development"}])
    house.tick()
    assert house.states()["Ready"] == "True Applied"


def test_objects_of_others_are_never_touched(house: PluginHarness) -> None:
    house.put("SandboxTemplate", "t", image=TINY, user="20001:20001")
    house.put("Plugin", "p", **plugin(template("t"), template("other")))
    house.tick()
    assert house.states()["Ready"] == "False ObjectTaken"
    mine = house.found("SandboxTemplate", "t")
    assert mine is not None
    assert (mine.spec["user"], mine.owner_references) == ("20001:20001", ())
    assert house.found("SandboxTemplate", "other") is None, "all or nothing"
    house.delete("p", "plugin")
    house.tick()
    assert house.found("SandboxTemplate", "t") is not None


def test_ten_objects_are_ready_at_once(house: PluginHarness) -> None:
    house.put("Plugin", "p", **plugin(*(template(f"t{number}") for number in range(10))))
    house.tick()
    assert house.states()["Ready"] == "True Applied"
    assert len(house.store.list("SandboxTemplate")[0]) == 10


def test_plugin_whose_object_is_in_use_stays(house: PluginHarness) -> None:
    house.put("Plugin", "p", **plugin(template("t")))
    house.tick()
    house.put("Sandbox", "s", templateRef={"name": "t"})
    with pytest.raises(errors.Conflict, match="sandboxtemplate `t` is used by sandbox s"):
        house.delete("p", "plugin")
    house.delete("s")
    house.tick()
    house.delete("p", "plugin")
    house.tick()
    assert house.found("SandboxTemplate", "t") is None


def test_undeclared_need_is_refused_at_apply(house: PluginHarness) -> None:
    with pytest.raises(errors.Invalid, match="level `development`, which is not declared"):
        house.put("Plugin", "p", **plugin(template("t", securityLevel="development")))
