"""Security profiles on the command line: apply, get, explain, change, delete."""

import json

import yaml

from tests.cli.conftest import Run
from tests.helpers_api import ApiStack

OWN = """\
apiVersion: paddock/v1alpha1
kind: SecurityProfile
metadata: {name: ci}
spec:
  base: development
  capabilities: [CHOWN]
"""
SANDBOX = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: a, namespace: team}
spec: {template: {image: "tiny:1", securityLevel: ci}}
"""


def test_a_profile_is_applied_shown_and_deleted(paddock: Run, served: ApiStack) -> None:
    assert paddock("apply", "-f", "-", stdin=OWN).stdout == "securityprofile.paddock/ci created\n"
    assert paddock("apply", "-f", "-", stdin=OWN).stdout == "securityprofile.paddock/ci unchanged\n"
    names = paddock("get", "sp", "-o", "name").stdout.split()
    assert [name.partition("/")[2] for name in names] == ["build", "ci", "development", "full-isolation", "production"]
    assert paddock("patch", "sp/ci", "-p", "{spec: {seccompProfile: minimal}}").exit_code == 0
    document = yaml.safe_load(paddock("get", "sp", "ci", "-o", "yaml").stdout)
    assert (document["spec"], document["metadata"]["generation"]) == (
        {"base": "development", "capabilities": ["CHOWN"], "seccompProfile": "minimal"},
        2,
    )
    differs = paddock("diff", "-f", "-", stdin=OWN.replace("[CHOWN]", "[]"))
    assert (differs.exit_code, "capabilities" in differs.stdout) == (1, True)
    assert paddock("label", "sp/ci", "team=a").stdout == "securityprofile.paddock/ci labeled\n"
    assert paddock("apply", "-f", "-", stdin=SANDBOX).exit_code == 0
    output = paddock("delete", "sp", "ci")
    assert output.exit_code == 1
    assert "securityprofile `ci` is used by sandbox team/a; delete or change those first" in output.stderr
    served.services.objects.delete(served.services.registry.by_name("Sandbox"), "team", "a")  # type: ignore[arg-type]
    assert paddock("delete", "sp", "ci", "--wait=false").stdout == 'securityprofile.paddock "ci" deleted\n'


def test_a_built_in_profile_can_be_copied_not_changed(paddock: Run, served: ApiStack) -> None:
    document = json.loads(paddock("get", "sp", "development", "-o", "json").stdout)
    assert document["status"]["effective"]["capabilities"] == ["CHOWN", "SETGID", "SETUID"]
    output = paddock("apply", "-f", "-", stdin=json.dumps(document))
    assert (output.exit_code, "SecurityProfile `development` is built in" in output.stderr) == (1, True)
    for arguments in (
        ["delete", "sp", "development"],
        ["label", "sp/development", "a=b"],
        ["patch", "sp/build", "-p", "{}"],
    ):
        outcome = paddock(*arguments)
        assert (outcome.exit_code, "is built in and can't be changed or deleted" in outcome.stderr) == (1, True), (
            arguments
        )
    own_document = {**document, "metadata": {"name": "mine"}, "status": None}
    assert (
        paddock("apply", "-f", "-", stdin=json.dumps(own_document)).stdout == "securityprofile.paddock/mine created\n"
    )


def test_explain(paddock: Run) -> None:
    output = paddock("explain", "sp.spec").stdout
    assert "base\t<string> -required-" in output
    assert "a change takes effect: at next start" in output
    assert "a change takes effect: live" in paddock("explain", "sp.spec.defaultLimits.memory").stdout
    assert "seccompProfile" in paddock("explain", "sandbox.spec.template.security").stdout
