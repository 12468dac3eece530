"""`paddock attest`: text and JSON."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.kinds.observed.inside import InsideState
from controller.kinds.planning.snapshot import Sandbox
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render
from controller.service.sandbox.attest import Attest
from tests.cli.conftest import Run
from tests.fakes.inside import inside_of
from tests.helpers_api import ApiStack, View
from tests.snapshots import snapshot_with

NewSandbox = Callable[..., None]


class Looking(View):
    """A view that can be refreshed and records its calls."""

    def observe_container(self, container_id: str) -> str:
        return (
            ""
            if any(entry.id == container_id for container in self.seen.containers.values() for entry in container)
            else "gone"
        )


@pytest.fixture
def sandbox(api: ApiStack) -> NewSandbox:
    """Factory of a running sandbox, rendered but for the given changes. Request it before `paddock`."""
    view, expected = Looking(), dict[str, Sandbox]()
    attest = Attest(
        objects=api.services.objects,
        engine=view,
        clock=api.clock,
        snapshot=lambda: snapshot_with(api.clock.now(), "i-1", expected, view.seen),
    )
    api.services = replace(api.services, attest=attest)

    def make(**changes: object) -> None:
        api.apply()
        obj = api.sandbox()
        spec = SandboxSpec.model_validate(obj.spec)
        assert spec.template is not None
        config = render(spec, spec.template, name=obj.name, uid=obj.uid, policy=Policy()).config
        inside: InsideState = replace(inside_of(config, ("none",), {}), **changes)
        container = replace(view.show(obj), networks=("none",), config_hash=config.hash(), inside=inside)
        view.seen = replace(view.seen, containers={obj.uid: (container,)}, revision=1)
        expected[obj.uid] = Sandbox(obj, spec, spec.template)

    return make


def test_a_secured_sandbox(sandbox: NewSandbox, paddock: Run) -> None:
    sandbox()
    done = paddock("attest", "quickstart")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("sandbox/quickstart is secured\n")
    assert "ok   seccomp " in done.output
    assert "!!" not in done.output


def test_report_lists_confinement(sandbox: NewSandbox, paddock: Run) -> None:
    sandbox()
    done = paddock("attest", "quickstart", "--report")
    assert done.exit_code == 0, done.output
    messages = {
        name.strip(): message.strip()
        for name, _, message in (line.partition("  ") for line in done.output.splitlines())
    }
    assert messages["user"] == "20000:20000 groups 20000"
    assert messages["seccomp"] == "filter, profile minimal"
    assert ", bpf, " in messages["calls refused"]
    assert messages["capabilities bounding"] == "none"
    assert messages["mount /tmp"] == "tmpfs 64Mi read-write nosuid nodev noexec"


def test_an_unsecured_sandbox(sandbox: NewSandbox, paddock: Run) -> None:
    sandbox(uid=0)
    done = paddock("attest", "sandbox/quickstart")
    assert done.exit_code == 1
    assert "is NOT secured\n  NotSecured: user: found 0:20000, wanted 20000:20000\n" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("!!")] == [["!!", "user"]]


def test_an_unreadable_sandbox(sandbox: NewSandbox, paddock: Run) -> None:
    sandbox(unread="run the daemon as root")
    done = paddock("attest", "quickstart")
    assert done.exit_code == 1
    assert done.stdout == "sandbox/quickstart can't be attested\n  NotAttested: run the daemon as root\n"


def test_json_output(sandbox: NewSandbox, paddock: Run) -> None:
    sandbox(seccomp=0)
    done = paddock("attest", "quickstart", "-o", "json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["kind"], document["secured"], document["reason"]) == (
        1,
        "Attestation",
        "False",
        "NotSecured",
    )
    wrong = [fact for fact in document["facts"] if not fact["holds"]]
    assert wrong == [{"name": "seccomp", "found": "none", "wanted": "filter", "holds": False}]


def test_before_the_first_attestation(api: ApiStack, paddock: Run) -> None:
    api.apply()
    done = paddock("attest", "quickstart")
    assert done.exit_code != 0
    assert "try again in a moment" in done.stderr
