"""Files beside the store go with the sandboxes that they are of."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from controller.e2b.directory import Directory
from controller.e2b.envs import Variables
from controller.e2b.metadata import LABEL, TOKEN
from controller.kinds.meta import StoredObject

_OBJECT = StoredObject(
    "Sandbox", "default", "a", "uid-a", {}, labels={LABEL: "true"}, annotations={TOKEN: "0123456789ab"}
)


def test_ended_sandboxes_leave_no_variables_or_accesses(tmp_path: Path) -> None:
    stored = [_OBJECT, replace(_OBJECT, name="b", uid="uid-b")]
    objects: Any = SimpleNamespace(list=lambda *_, **__: SimpleNamespace(objects=list(stored)))
    directory, variables = Directory(objects), Variables(tmp_path)
    for obj in stored:
        variables.save(obj.uid, {"KEY": "secret"})
    del stored[0]
    variables.keep_only(directory.stored_uids)
    assert [path.stem for path in tmp_path.iterdir()] == ["uid-b"]
    assert variables.of("uid-a") == {}
    assert [access.uid for access in directory.accesses()] == ["uid-b"]
