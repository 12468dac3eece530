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
from tests.contract.store_backends import Backend
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
def harness(backend: Backend) -> Iterator[PluginHarness]:
    plugin_harness = PluginHarness(backend.store())
    yield plugin_harness
    plugin_harness.close()


def template(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "SandboxTemplate", "metadata": {"name": name}, "spec": {"image": TINY, **spec}}


def plugin(*objects: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": "1.0", "type": "Tool", "objects": objects or (template("t"),), **more}


def test_objects_are_created_put_back_and_removed(harness: PluginHarness) -> None:
    harness.put("Plugin", "p", **plugin(template("a"), template("b")))
    harness.tick()
    assert harness.states() == {"Accepted": "True Admitted", "Ready": "True Applied"}
    harness.delete("a", "sandboxtemplate")
    kind = discover().by_name("SandboxTemplate")
    assert kind is not None
    harness.services.patch.patch(kind, "default", "b", {"spec": {"user": "20001:20001"}})
    harness.clock.advance(31)
    harness.tick()
    assert [harness.found("SandboxTemplate", name) is not None for name in "ab"] == [True, True]
    restored = harness.found("SandboxTemplate", "b")
    assert restored is not None
    assert "user" not in restored.spec
    harness.put("Plugin", "p", **plugin(template("b")))
    harness.tick()
    assert harness.found("SandboxTemplate", "a") is None, "the new version has it no more"
    harness.delete("p", "plugin")
    harness.tick()
    assert harness.found("SandboxTemplate", "b") is None


def test_nothing_is_created_without_its_grants(harness: PluginHarness) -> None:
    asks = plugin(template("t", securityLevel="development"), permissions=[{"level": "development"}])
    harness.put("Plugin", "p", **asks)
    harness.tick()
    assert harness.states() == {"Accepted": "False PermissionsNotGranted", "Ready": "False NotAccepted"}
    assert harness.found("SandboxTemplate", "t") is None
    harness.put("Plugin", "p", **asks, granted=[{"level": "development"}])
    harness.tick()
    assert harness.states()["Ready"] == "True Applied"


def test_objects_of_others_are_never_touched(harness: PluginHarness) -> None:
    harness.put("SandboxTemplate", "t", image=TINY, user="20001:20001")
    harness.put("Plugin", "p", **plugin(template("t"), template("other")))
    harness.tick()
    assert harness.states()["Ready"] == "False ObjectTaken"
    mine = harness.found("SandboxTemplate", "t")
    assert mine is not None
    assert (mine.spec["user"], mine.owner_references) == ("20001:20001", ())
    assert harness.found("SandboxTemplate", "other") is None, "all or nothing"
    harness.delete("p", "plugin")
    harness.tick()
    assert harness.found("SandboxTemplate", "t") is not None


def test_ten_objects_are_ready_at_once(harness: PluginHarness) -> None:
    harness.put("Plugin", "p", **plugin(*(template(f"t{number}") for number in range(10))))
    harness.tick()
    assert harness.states()["Ready"] == "True Applied"
    assert len(harness.store.list("SandboxTemplate")[0]) == 10


def test_plugin_whose_object_is_in_use_stays(harness: PluginHarness) -> None:
    harness.put("Plugin", "p", **plugin(template("t")))
    harness.tick()
    harness.put("Sandbox", "s", templateRef={"name": "t"})
    with pytest.raises(errors.Conflict, match="sandboxtemplate `t` is used by sandbox s"):
        harness.delete("p", "plugin")
    harness.delete("s")
    harness.tick()
    harness.delete("p", "plugin")
    harness.tick()
    assert harness.found("SandboxTemplate", "t") is None


def test_undeclared_need_is_refused_at_apply(harness: PluginHarness) -> None:
    with pytest.raises(errors.Invalid, match="level `development`, which is not declared"):
        harness.put("Plugin", "p", **plugin(template("t", securityLevel="development")))
