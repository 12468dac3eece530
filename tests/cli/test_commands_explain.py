"""`paddock explain`: types, bounds, defaults and effects, without a daemon."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]


def explain(*words: str) -> Result:
    return CliRunner().invoke(cli, ["--server", "unix:///nowhere", "explain", *words])


def test_a_field() -> None:
    output = explain("sandbox.spec.template.tmpfs").stdout
    assert output.startswith(
        "KIND:       Sandbox\nVERSION:    paddock/v1alpha1\n\nFIELD: tmpfs <[]Object>\n\nDESCRIPTION:\n"
    )
    assert "  mountPath\t<string> -required-\n    Mount point in the sandbox. (an absolute path" in output
    assert "    a change takes effect: recreate\n" in output


def test_limits_show_bounds_and_effect() -> None:
    output = explain("sb.spec.resources.limits").stdout
    assert "  memory\t<Quantity>\n    Memory, including tmpfs contents. (bytes, with Ki Mi" in output
    assert "from 6Mi to 64Ti" in " ".join(output.split())
    assert "bounds: at least 1, at most 4194304\n    a change takes effect: live\n" in output


def test_choices_and_defaults() -> None:
    output = explain("sandbox.spec").stdout
    assert (
        "    one of: Running, Suspended, Paused, Hibernated\n    default: Running\n    a change takes effect: live\n"
        in output
    )
    assert explain("sandboxtemplate.spec.image").stdout.endswith("    a change takes effect: at next start\n")


def test_recursive_shows_the_tree() -> None:
    lines = explain("sandbox", "--recursive").stdout.splitlines()
    assert "  spec\t<Object>" in lines
    assert "        limits\t<Object>" in lines or "      limits\t<Object>" in lines
    assert "      env\t<[]Object>" in lines
    assert "        name\t<string> -required-" in lines


def test_json_and_the_whole_schema() -> None:
    document = json.loads(explain("sandbox.spec.restartPolicy", "-o", "json").stdout)
    assert (document["enum"], document["default"]) == (["Always", "OnFailure", "Never"], "Always")
    assert explain("--schema").stdout == (ROOT / "specs/schema/paddock.schema.json").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no kind given"),
        (["pod"], 1, "unknown kind `pod`; a pod is a Sandbox"),
        (["sandbox.spec.tempalte"], 1, "`sandbox.spec` has no field `tempalte`; did you mean `template`?"),
        (["sandbox.spec.runState.x"], 1, "has no field `x`; it has none"),
        (["sandbox.nothing"], 1, "`sandbox` has no field `nothing`; known fields: apiVersion, kind"),
    ],
)
def test_wrong_arguments(words: list[str], code: int, said: str) -> None:
    done = explain(*words)
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr
