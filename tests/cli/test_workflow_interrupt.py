"""`paddock workflow run`: an interrupted wait, and the messages of a refused run."""

from types import SimpleNamespace

import pytest

from controller.cli import workflow
from tests.cli.conftest import Run
from tests.helpers_api import ApiStack

BUILD = """\
apiVersion: paddock/v1alpha1
kind: Workflow
metadata: {name: build, namespace: NAMESPACE}
spec:
  sandbox: {template: {image: "paddock/base:1", workspace: {}}}
  stages: [{name: make, exec: {commands: ["true"]}}]
"""


@pytest.mark.parametrize(("namespace", "place"), [("default", ""), ("team", " -n team")])
def test_an_interrupted_wait_says_that_the_run_goes_on(
    paddock: Run, served: ApiStack, monkeypatch: pytest.MonkeyPatch, namespace: str, place: str
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    served.apply(BUILD.replace("NAMESPACE", namespace))
    monkeypatch.setattr(workflow, "time", SimpleNamespace(sleep=interrupt))
    done = paddock("-n", namespace, "workflow", "run", "build", "--name", "build-1", "--wait")
    assert (done.exit_code, done.stdout) == (130, "workflowrun/build-1 created\n")
    assert done.stderr.splitlines() == [
        "workflowrun/build-1 goes on without this command",
        f"look at it: paddock describe workflowrun build-1{place}",
        f"follow it: paddock workflow logs -f build-1{place}",
        f"cancel it: paddock workflow cancel build-1{place}",
    ]


def test_a_refused_run_names_the_field_alone(paddock: Run, served: ApiStack) -> None:
    served.apply(BUILD.replace("NAMESPACE", "default"))
    done = paddock("workflow", "run", "build", "--name", "build-1", "-p", "none=1")
    assert done.exit_code == 1
    assert "spec.parameters" in done.stderr
    assert "body" not in done.stderr
