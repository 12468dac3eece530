"""Habits of kubectl's users: `--wait=false`, `-R`, `--show-labels`, `api-resources`."""

from collections.abc import Callable

import click
import pytest

from controller.cli.commands import COMMANDS
from controller.cli.main import cli
from controller.cli.options import split_flag_values
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

Spec = Callable[..., str]


@click.command()
@click.option("--wait/--no-wait", default=True)
@click.option("--all", is_flag=True)
@click.option("--timeout")
def command(**_: object) -> None: ...


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--wait=false"], ["--no-wait"]),
        (["--wait=true", "a"], ["--wait", "a"]),
        (["--all=false", "a"], ["a"]),
        (["--all=TRUE"], ["--all"]),
        (["--all=maybe"], ["--all=maybe"]),
        (["--timeout=true"], ["--timeout=true"]),
        (["--", "--wait=false"], ["--", "--wait=false"]),
        (["--wait=false", "--", "--all=true"], ["--no-wait", "--", "--all=true"]),
    ],
)
def test_flags_take_true_and_false(words: list[str], said: list[str]) -> None:
    assert split_flag_values(command, words) == said


def test_every_flag_of_every_command_takes_false() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        observed = cli.get_command(context, name)
        assert observed is not None
        for flag in (param for param in observed.params if isinstance(param, click.Option) and param.is_bool_flag):
            for word in (opt for opt in flag.opts if opt.startswith("--")):
                assert split_flag_values(observed, [f"{word}=false"]) == flag.secondary_opts[:1], f"{name} {word}"


def test_delete_without_wait(paddock: Run, served: ApiStack) -> None:
    served.apply()
    done = paddock("delete", "sb", "quickstart", "--wait=false")
    assert (done.exit_code, done.stdout) == (0, 'sandbox.paddock "quickstart" deleted\n')


def test_recursive_reads_subfolders(paddock: Run, served: ApiStack, spec: Spec) -> None:
    spec(name="all/app.yaml")
    top = spec(QUICKSTART.replace("name: quickstart", "name: below"), "all/more/deep/below.yaml")
    folder = top.removesuffix("/more/deep/below.yaml")
    assert paddock("apply", "-f", folder).stdout == "sandbox.paddock/quickstart created\n"
    assert paddock("diff", "-f", folder, "-R").exit_code == 1
    assert paddock("apply", "-f", folder, "--recursive").stdout == (
        "sandbox.paddock/quickstart unchanged\nsandbox.paddock/below created\n"
    )
    assert paddock("delete", "-f", folder, "-R", "--wait=false").stdout.count(" deleted\n") == 2
    output = paddock("apply", "-f", f"{folder}/more")
    assert "-R includes subfolders" in output.stderr


def test_show_labels_adds_a_column(paddock: Run, served: ApiStack) -> None:
    served.apply(f"{QUICKSTART}---\n{QUICKSTART.replace('quickstart', 'plain').replace('{app: demo}', '{}')}")
    lines = paddock("get", "sb", "--show-labels").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["LABELS", "<none>", "app=demo"]


def test_ignore_not_found(paddock: Run, served: ApiStack) -> None:
    served.apply()
    output = paddock("get", "sb", "nope", "quickstart", "--ignore-not-found", "-o", "name")
    assert (output.exit_code, output.stdout, output.stderr) == (0, "sandbox.paddock/quickstart\n", "")
    assert paddock("get", "sb", "nope", "--ignore-not-found").output == ""


def test_api_resources(paddock: Run, served: ApiStack) -> None:
    lines = paddock("api-resources").stdout.splitlines()
    assert lines[0].split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["sandboxes", "sb", "paddock/v1alpha1", "true", "Sandbox"] in [line.split() for line in lines]
    assert "sandboxes" in paddock("api-resources", "-o", "name").stdout.splitlines()
    assert "get,list\n" in paddock("api-resources", "-o", "wide").stdout
