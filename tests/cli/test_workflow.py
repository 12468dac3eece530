"""`paddock workflow`: what it says of runs that have ended, of stages and of artifacts."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import Result

from tests.helpers_api import World

Run = Callable[..., Result]
STAGES = [{"name": name, "exec": {"commands": ["true"]}} for name in ("make", "use", "last")]
SPEC = {"workflow": {"sandbox": {"template": {"image": "paddock/base:1"}}, "stages": STAGES}}


@pytest.fixture
def run(served: World) -> Callable[..., None]:
    """Store a run `r`; its status is changed as given."""

    def make(*states: str, **status: Any) -> None:
        document = {"apiVersion": "paddock/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": "r"}, "spec": SPEC}
        served.apply(json.dumps(document))
        with served.store.transaction() as transaction:
            found = transaction.get("WorkflowRun", "default", "r")
            assert found is not None
            stages = [
                {**each, "state": state, "attempt": 1}
                for each, state in zip(found.status["stages"], states, strict=False)
            ]
            stages += found.status["stages"][len(states) :]
            transaction.put(replace(found, status={**found.status, **status, "stages": stages}))

    return make


def test_list_counts_stages_that_succeeded(run: Callable[..., None], paddock: Run) -> None:
    run("Succeeded", "Failed", "Skipped", phase="Failed")
    assert paddock("get", "workflowruns").stdout.splitlines()[1].split()[:3] == ["r", "Failed", "1/3"]
