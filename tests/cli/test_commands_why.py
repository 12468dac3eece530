"""`paddock why`: text and JSON."""

import json
from dataclasses import replace

import pytest

from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.sandbox import SandboxSpec
from controller.service.explain.why import Why
from tests.cli.conftest import Run
from tests.helpers_api import ApiStack
from tests.snapshots import snapshot_with


@pytest.fixture
def seen(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reconcile pass has observed the sandbox without a container."""
    api.apply()

    def snapshot() -> Snapshot:
        obj = api.sandbox()
        spec = SandboxSpec.model_validate(obj.spec)
        observed = replace(api.view.seen, revision=1)
        return snapshot_with(api.clock.now(), "i-1", {obj.uid: Sandbox(obj, spec, spec.template)}, observed)

    why = Why(objects=api.services.objects, store=api.store, clock=api.clock, snapshot=snapshot)
    api.services = replace(api.services, why=why)


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize("words", [["quickstart"], ["sandbox", "quickstart"], ["sb/quickstart"]])
def test_the_reasons_as_text(words: list[str], paddock: Run) -> None:
    done = paddock("why", *words)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("sandbox/quickstart is being reconciled\n  Creating: no container yet\n")
    assert "Desired (generation 1):\n  runState" in done.output
    assert "Observed:\n  container   none\n" in done.output
    assert "from paddock/python:1  # no container yet\n" in done.output


@pytest.mark.usefixtures("seen")
def test_the_reasons_as_json(paddock: Run) -> None:
    document = json.loads(paddock("why", "quickstart", "-o", "json").stdout)
    assert (document["kind"], document["verdict"], document["reason"]) == ("Why", "Acting", "Creating")
    assert [entry["call"].split()[0] for entry in document["calls"]] == ["create", "start"]
    assert paddock("why", "quickstart", "-o", "yaml").stdout.startswith("apiVersion: paddock/v1alpha1\nkind: Why\n")


def test_other_kinds_have_no_decision(paddock: Run) -> None:
    done = paddock("why", "sandboxtemplate/python")
    assert done.exit_code != 0
    assert "name a sandbox" in done.stderr


def test_before_the_first_reconcile_pass(api: ApiStack, paddock: Run) -> None:
    api.apply()
    done = paddock("why", "quickstart")
    assert done.exit_code != 0
    assert "not observed the engine yet" in done.stderr
