"""patch, label, annotate, set and edit: output, changes and refusals."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.cli.objects.patch import ObjectRef
from controller.kinds.registry import Kind, discover
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

OTHER = QUICKSTART.replace("name: quickstart", "name: other").replace("app: demo", "app: web")


@pytest.fixture
def two(served: ApiStack) -> ApiStack:
    served.apply(f"{QUICKSTART}---\n{OTHER}")
    return served


def test_patch(paddock: Run, two: ApiStack, tmp_path: Path) -> None:
    done = paddock("patch", "sb", "quickstart", "-p", "{spec: {runState: Suspended}}")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart patched\n")
    again = paddock("patch", "sb/quickstart", "-p", '{"spec": {"runState": "Suspended"}}')
    assert again.stdout == "sandbox.paddock/quickstart patched (no change)\n"
    (tmp_path / "p.yaml").write_text("- {op: remove, path: /spec/resources/limits/cpu}")
    arguments = ("patch", "sb/quickstart", "--type", "json", "--patch-file", str(tmp_path / "p.yaml"))
    assert paddock(*arguments, "--dry-run=server").stdout == "sandbox.paddock/quickstart patched (server dry run)\n"
    assert two.sandbox().spec["resources"]["limits"]["cpu"] == "500m"
    assert json.loads(paddock(*arguments, "-o", "json").stdout)["spec"]["resources"]["limits"] == {"memory": "512Mi"}
    assert two.sandbox().spec["runState"] == "Suspended"


def test_label_and_annotate(paddock: Run, two: ApiStack) -> None:
    done = paddock("label", "sb", "quickstart", "other", "tier=db", "example.org/x=")
    assert done.stdout == "sandbox.paddock/quickstart labeled\nsandbox.paddock/other labeled\n"
    assert two.sandbox().labels == {"app": "demo", "tier": "db", "example.org/x": ""}
    output = paddock("label", "sb", "--all", "tier=db", "app=demo")
    assert (output.exit_code, output.stdout) == (1, "")
    assert output.stderr == (
        "error: nothing was changed\nsandbox.paddock/other: `app` is `web` already; add --overwrite to make it `demo`\n"
    )
    assert paddock("label", "sb", "-l", "app=web", "app=demo", "--overwrite").stdout.count("labeled") == 1
    assert paddock("label", "sb/other", "tier-").stdout == "sandbox.paddock/other unlabeled\n"
    assert paddock("label", "sb/other", "tier-").stdout == "sandbox.paddock/other unlabeled (no change)\n"
    assert paddock("label", "sb/other", "--list").stdout == "app=demo\nexample.org/x=\n"
    assert paddock("annotate", "sb/other", "note=a b=c").stdout == "sandbox.paddock/other annotated\n"
    assert two.sandbox("other").annotations == {"note": "a b=c"}
    assert (
        "Listing labels for sandbox.paddock/quickstart:\n app=demo\n"
        in paddock("label", "sb", "--all", "--list").stdout
    )


def test_set(paddock: Run, two: ApiStack) -> None:
    assert paddock("set", "image", "sb/quickstart", "sb/other", "other:2").stdout == (
        "sandbox.paddock/quickstart image updated\nsandbox.paddock/other image updated\n"
    )
    arguments = ("set", "resources", "sb/quickstart", "--limits=cpu=1,memory=1Gi,pids=64", "--cpu-shares", "512")
    assert paddock(*arguments).stdout == "sandbox.paddock/quickstart resource requirements updated\n"
    assert two.sandbox().spec["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi", "pids": 64},
        "cpuShares": 512,
    }
    paddock("set", "resources", "sb/quickstart", "--limits=cpu=,pids=")
    assert two.sandbox().spec["resources"]["limits"] == {"memory": "1Gi"}
    assert paddock("set", "command", "sb/quickstart", "--", "sh", "-c", "sleep 1").exit_code == 0
    assert two.sandbox().spec["template"]["command"] == ["sh", "-c", "sleep 1"]
    assert paddock("set", "command", "sb/quickstart", "--default").exit_code == 0
    assert "command" not in two.sandbox().spec["template"]
    paddock("patch", "sb", "quickstart", "-p", '{"spec": {"template": {"args": ["now"]}}}')
    assert paddock("set", "command", "sb/quickstart", "--", "true").exit_code == 0
    assert "args" not in two.sandbox().spec["template"]
    assert paddock("set", "env", "sb/quickstart", "A=1", "B=2").exit_code == 0
    assert paddock("set", "env", "sb/quickstart", "A=3", "B-").exit_code == 0
    assert two.sandbox().spec["template"]["env"] == [{"name": "A", "value": "3"}]
    assert paddock("set", "run-state", "sb", "quickstart", "Suspended").stdout.endswith("run state updated\n")
    assert two.sandbox().spec["template"]["image"] == "other:2"


def test_on_suspend_is_set_for_a_whole_namespace(paddock: Run, two: ApiStack) -> None:
    assert paddock("set", "on-suspend", "sandboxes", "--all", "Discard").exit_code == 0
    done = paddock("set", "on-suspend", "sandboxes", "--all", "KeepFiles")
    assert done.stdout == "sandbox.paddock/other onSuspend updated\nsandbox.paddock/quickstart onSuspend updated\n"
    assert two.sandbox().spec["lifecycle"]["onSuspend"] == "KeepFiles"


def test_template_fields_are_set_on_the_template(paddock: Run, two: ApiStack) -> None:
    document = {"apiVersion": "paddock/v1alpha1", "kind": "SandboxTemplate", "metadata": {"name": "py"}}
    two.apply(json.dumps({**document, "spec": {"image": "a:1"}}))
    sandbox = {**document, "kind": "Sandbox", "metadata": {"name": "box"}, "spec": {"templateRef": {"name": "py"}}}
    two.apply(json.dumps(sandbox))
    done = paddock("set", "image", "sb/box", "b:1")
    assert (
        done.stderr == "error: sandbox/box takes its image from the SandboxTemplate `py`; change sandboxtemplate/py\n"
    )
    assert paddock("set", "image", "sbt/py", "b:1").stdout == "sandboxtemplate.paddock/py image updated\n"


WRONG_WORDS: list[tuple[list[str], int, str]] = [
    (["patch", "sb/quickstart"], 2, "either -p or --patch-file"),
    (["patch", "sb/quickstart", "-p", "{a: [}"], 1, "--patch:1:6: not YAML"),
    (["patch", "sb/quickstart", "-p", ""], 1, "must hold one patch"),
    (["patch", "sb", "quickstart", "other", "-p", "{}"], 2, "name one object"),
    (["patch", "sb", "-p", "{}"], 2, "name the sandboxes to change"),
    (["patch", "sb/nope", "-p", "{}"], 1, "`nope` not found"),
    (["patch", "sb/quickstart", "-p", "{spec: {memroy: 1}}"], 1, "spec.memroy: unknown field"),
    (["label", "sb/quickstart"], 2, "KEY=VALUE, or KEY-"),
    (["label", "sb/quickstart", "a=1", "a-"], 2, "given twice"),
    (["label", "sb/quickstart", "=1"], 2, "a key is missing"),
    (["label", "sb", "quickstart", "--all", "a=1"], 2, "can't be combined"),
    (["label", "sb", "-l", "app=none", "a=1"], 1, "no objects to change"),
    (["set", "image", "sb/quickstart"], 2, "KIND/NAME IMAGE"),
    (["set", "resources", "sb/quickstart"], 2, "--limits="),
    (["set", "resources", "sb/quickstart", "--limits=colour=1"], 2, "a name of cpu, memory, pids"),
    (["set", "resources", "sb/quickstart", "--limits=memory=512m"], 1, "write `512Mi`"),
    (["set", "command", "sb/quickstart"], 2, "after `--`"),
    (["set", "env", "sb/quickstart"], 2, "NAME=VALUE"),
    (["set", "run-state", "sb/quickstart", "Stopped"], 1, "must be Running, Suspended, Paused or Hibernated"),
    (["edit", "sb", "quickstart", "other"], 2, "name one object"),
]


def test_wrong_arguments_are_reported(paddock: Run, two: ApiStack) -> None:
    for arguments, code, output in WRONG_WORDS:
        done = paddock(*arguments)
        assert (done.exit_code, output in done.stderr) == (code, True), (arguments, done.stderr)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Editor that runs one shell line on each call, and records its input."""

    def make(*lines: str) -> Path:
        script, path = tmp_path / "editor", tmp_path / "shown"
        path.mkdir()
        cases = "\n".join(f"{at}) {line} ;;" for at, line in enumerate(lines))
        script.write_text(f'#!/bin/sh\nn=$(ls "{path}" | wc -l)\ncp "$1" "{path}/$n"\ncase $n in\n{cases}\nesac\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setenv("VISUAL", str(script))
        return path

    return make


def left_behind(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith("paddock-edit-")]


def test_edit(paddock: Run, two: ApiStack, editor: Callable[..., Path], tmp_path: Path) -> None:
    path = editor("sed -i 's/512Mi/1Gi/; s/app: demo/app: new/' \"$1\"")
    done = paddock("edit", "sb/quickstart")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart edited\n")
    stored = two.sandbox()
    assert (stored.spec["resources"]["limits"]["memory"], stored.labels) == ("1Gi", {"app": "new"})
    assert "status" not in (path / "0").read_text()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(("line", "said"), [("true", "no changes made"), (': > "$1"', "saved file was empty")])
def test_edit_is_cancelled(
    paddock: Run, two: ApiStack, editor: Callable[..., Path], tmp_path: Path, line: str, said: str
) -> None:
    editor(line)
    done = paddock("edit", "sb/quickstart")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"Edit cancelled, {said}.\n"
    assert (two.sandbox().generation, left_behind(tmp_path)) == (1, [])


def test_edit_reopens_with_the_error(paddock: Run, two: ApiStack, editor: Callable[..., Path]) -> None:
    path = editor(
        "sed -i 's/memory: 512Mi/memroy: 512Mi/' \"$1\"",
        "sed -i 's/memroy: 512Mi/memory: 1Mi/' \"$1\"",
        "sed -i 's/memory: 1Mi/memory: 1Gi/' \"$1\"",
    )
    done = paddock("edit", "sb/quickstart")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart edited\n")
    assert "spec.resources.limits.memroy: unknown field; did you mean `memory`?" in (path / "1").read_text()
    assert "# quickstart.yaml:" in (path / "1").read_text()
    assert "must be at least 6Mi" in (path / "2").read_text()
    assert two.sandbox().spec["resources"]["limits"]["memory"] == "1Gi"


def test_cancelled_edit_after_an_error_keeps_a_copy(
    paddock: Run, two: ApiStack, editor: Callable[..., Path], tmp_path: Path
) -> None:
    editor("sed -i 's/name: quickstart/name: other/' \"$1\"")
    done = paddock("edit", "sb/quickstart")
    assert done.exit_code == 1
    assert "a name or namespace can't be changed" in done.stderr
    assert f"your changes are saved in {tmp_path}/paddock-edit-" in done.stderr
    assert len(left_behind(tmp_path)) == 1


def test_edit_merges_after_a_conflict(paddock: Run, two: ApiStack, editor: Callable[..., Path]) -> None:
    command = f"{sys.executable} -m controller --server unix://{two.socket} label sb/quickstart by=them"
    path = editor(f"sed -i 's/512Mi/1Gi/' \"$1\"; {command} >&2", "echo '# mine' >> \"$1\"")
    done = paddock("edit", "sb/quickstart")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart edited\n"), done.stderr
    assert "The object was changed by others meanwhile" in (path / "1").read_text()
    stored = two.sandbox()
    assert (stored.spec["resources"]["limits"]["memory"], stored.labels) == ("1Gi", {"app": "demo", "by": "them"})


def test_edit_without_an_editor(paddock: Run, two: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "/nowhere/ed")
    done = paddock("edit", "sb/quickstart")
    assert (done.exit_code, "set EDITOR to an installed one" in done.stderr) == (1, True)
    monkeypatch.setenv("VISUAL", "false")
    assert "failed with exit code 1" in paddock("edit", "sb/quickstart").stderr


POOL = """\
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: python}
spec: {templateRef: {name: python}, warmReplicas: 2}
"""


def test_scale(paddock: Run, served: ApiStack) -> None:
    served.apply(f"{QUICKSTART}---\n{POOL}")
    assert paddock("scale", "sbp/python", "--replicas", "5").stdout == "sandboxpool.paddock/python scaled\n"
    assert paddock("scale", "sbp/python", "--replicas", "5").stdout == "sandboxpool.paddock/python scaled (no change)\n"
    assert served.services.objects.list(_pool_kind(), "default").objects[0].spec["warmReplicas"] == 5
    output = paddock("scale", "sbp/python", "--replicas", "1", "--current-replicas", "2")
    assert (output.exit_code, "has 5 replicas, not 2" in output.stderr) == (1, True)
    outcome = paddock("scale", "sb/quickstart", "--replicas", "1")
    assert (outcome.exit_code, "has no replicas; name one of sandboxpools" in outcome.stderr) == (1, True)
    served.apply(POOL.replace(", warmReplicas: 2", ""))
    spec = served.services.objects.list(_pool_kind(), "default").objects[0].spec
    assert spec.get("warmReplicas", 1) == 1, "the file gave the field up"


def _pool_kind() -> Kind:
    word = discover().by_word("sbp")
    assert word is not None
    return word


def test_set_heeds_changes_of_the_spec_alone(paddock: Run, two: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    read, once = ObjectRef.read, [lambda: two.set_ready("False", "Starting", "x")]

    def raced(ref: ObjectRef, client: Any) -> dict[str, Any]:
        document = read(ref, client)
        if once:
            once.pop()()
        return document

    monkeypatch.setattr(ObjectRef, "read", raced)
    stopped = paddock("sandbox", "stop", "quickstart")
    assert (stopped.exit_code, two.sandbox().spec["runState"]) == (0, "Suspended"), stopped.stderr
    once.append(lambda: two.apply(QUICKSTART.replace("500m", "600m")) and None)
    output = paddock("sandbox", "start", "quickstart")
    assert (output.exit_code, two.sandbox().spec["runState"]) == (1, "Suspended")
    assert "was changed since" in output.stderr
