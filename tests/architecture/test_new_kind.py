"""A new kind costs one file a room: a file dropped into kinds/ is known to every generic part without an edit."""

import sys
from pathlib import Path
from typing import Any

import pytest

import controller.kinds
import controller.policy
from controller.kinds import registry
from controller.policy.admission import admit
from controller.policy.levels.levels import Policy

KIND_FILE = """
from controller.kinds.base import Model, Text
from controller.kinds.registry import Column, Kind

class LampSpec(Model):
    colour: Text

KIND = Kind(name="Lamp", plural="lamps", short_names=("lm",), spec=LampSpec,
            columns=(Column("COLOUR", lambda obj, now: obj.spec["colour"]),))
"""
POLICY_FILE = """
from controller.policy.admission import Refusal

def admit(spec, policy):
    return (Refusal("spec.colour", "no red lamps"),) if spec.colour == "red" else ()
"""


@pytest.fixture
def lamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room, text in (("kinds", KIND_FILE), ("policy", POLICY_FILE)):
        (tmp_path / room).mkdir()
        (tmp_path / room / "lamp.py").write_text(text)
    for package, room in ((controller.kinds, "kinds"), (controller.policy, "policy")):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / room)])
    registry.discover.cache_clear()
    yield
    registry.discover.cache_clear()
    for name in ("controller.kinds.lamp", "controller.policy.lamp"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("lamp")
def test_a_file_in_kinds_is_a_kind() -> None:
    kind = registry.discover().by_word("lm")
    assert kind is not None
    assert kind.name == "Lamp"


@pytest.mark.usefixtures("lamp")
def test_a_file_in_policy_is_its_admission() -> None:
    kind = registry.discover().by_name("Lamp")
    assert kind is not None
    spec: Any = kind.spec
    assert admit(kind, spec(colour="green"), Policy()) == ()
    assert [refusal.field for refusal in admit(kind, spec(colour="red"), Policy())] == ["spec.colour"]
