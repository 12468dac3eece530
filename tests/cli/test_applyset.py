"""`apply --applyset`, `diff --applyset` and `delete --cascade`: output, requests and refusals."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

Spec = Callable[..., str]
OTHER = QUICKSTART.replace("name: quickstart", "name: other")


def test_prune_prints_pruned_objects(paddock: Run, spec: Spec, served: ApiStack) -> None:
    paddock("apply", "-f", spec(f"{QUICKSTART}---\n{OTHER}"), "--applyset", "web")
    pruning = ("-f", spec(OTHER), "--applyset", "web", "--prune")
    lines = "sandbox.paddock/other {}\nsandbox.paddock/quickstart pruned{}\n"
    for mode, word in (("server", "unchanged (server dry run)"), ("client", "valid (client dry run)")):
        done = paddock("apply", *pruning, f"--dry-run={mode}")
        assert (done.exit_code, done.stdout) == (0, lines.format(word, f" ({mode} dry run)"))
    compared = paddock("diff", *pruning)
    assert (compared.exit_code, "--- live/sandbox.paddock.default.quickstart" in compared.stdout) == (1, True)
    assert served.sandbox().deleted_at is None
    assert paddock("apply", *pruning).stdout == lines.format("unchanged", "")
    assert served.sandbox().deleted_at is not None
    assert paddock("diff", *pruning).exit_code == 0


@pytest.mark.parametrize("command", ["apply", "diff"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prune"], "--prune needs an apply set; add --applyset NAME"),
        (["--take-over"], "--take-over needs an apply set"),
        (["--applyset", "web", "--allow-empty"], "--allow-empty needs --prune"),
    ],
)
def test_conflicting_options_are_a_usage_error(
    paddock: Run, spec: Spec, command: str, words: list[str], said: str
) -> None:
    done = paddock(command, "-f", spec(), *words)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_an_empty_file_prunes_only_with_allow_empty(paddock: Run, spec: Spec, served: ApiStack) -> None:
    paddock("apply", "-f", spec(), "--applyset", "web")
    prune = ("apply", "-f", "-", "--applyset", "web", "--prune")
    output = paddock(*prune, stdin="# nothing\n")
    assert (output.exit_code, "add --allow-empty" in output.stderr) == (1, True)
    assert served.sandbox().deleted_at is None
    assert paddock(*prune, "--allow-empty", stdin="# nothing\n").stdout == "sandbox.paddock/quickstart pruned\n"


def test_delete_passes_cascade_on(paddock: Run, spec: Spec, served: ApiStack) -> None:
    owned = OTHER.replace("name: other", "name: other\n  ownerReferences: [{kind: Sandbox, name: quickstart}]")
    paddock("apply", "-f", spec(f"{QUICKSTART}---\n{owned}"))
    assert paddock("delete", "sb/quickstart", "--no-wait", "--cascade=orphan").exit_code == 0
    assert served.sandbox("other").owner_references == ()
    assert served.sandbox("other").deleted_at is None
    served.finish_deletion()
    paddock("apply", "-f", spec(f"{QUICKSTART}---\n{owned}"))
    assert paddock("delete", "sb/quickstart", "--no-wait", "--cascade=foreground").exit_code == 0
    assert "foregroundDeletion" in served.sandbox().finalizers
    assert served.sandbox("other").deleted_at is not None
    assert paddock("delete", "sb/quickstart", "--no-wait").exit_code == 0
    assert "foregroundDeletion" in served.sandbox().finalizers, "asking again changes nothing"
    assert paddock("delete", "sb/quickstart", "--cascade=never").exit_code == 2
