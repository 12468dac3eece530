"""AppArmor on an engine that supports it (that of `make test-v2`): the profile is in force and attested."""

import json
from collections.abc import Iterator

import pytest

from controller.engine.kernel.apparmor import LOADED
from tests.daemon import RunningDaemon, docker, running

CONFINES = LOADED.is_dir() and any(path.name.startswith("docker-default.") for path in LOADED.iterdir())
pytestmark = [pytest.mark.docker, pytest.mark.skipif(not CONFINES, reason="no AppArmor profile of an engine's here")]
IN_FORCE = "docker-default (enforce)"
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]%s}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


@pytest.mark.parametrize(("name", "asked"), [("silent", ""), ("asking", ", appArmorProfile: docker-default")])
def test_its_profile_is_in_force(daemon: RunningDaemon, name: str, asked: str) -> None:
    daemon.apply(SANDBOX % (name, asked))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", f"sandbox/{name}")
    assert daemon.paddock("exec", name, "--", "cat", "/proc/self/attr/current").stdout.strip("\0\n") == IN_FORCE
    facts = json.loads(daemon.paddock("attest", name, "-o", "json").stdout)["facts"]
    (fact,) = (entry for entry in facts if entry["name"] == "mandatory access")
    assert fact == {"name": "mandatory access", "found": IN_FORCE, "wanted": IN_FORCE, "holds": True}


def test_a_profile_that_the_operator_does_not_allow_is_refused(daemon: RunningDaemon) -> None:
    done = daemon.paddock("apply", "-f", "-", stdin=SANDBOX % ("other", ", appArmorProfile: mine"), check=False)
    assert done.returncode != 0
    assert "operator does not allow `mine`" in done.stderr


def test_the_doctor_says_so(daemon: RunningDaemon) -> None:
    document = json.loads(daemon.paddock("doctor", "-o", "json", check=False).stdout)
    assert "apparmor confine containers" in json.dumps(document)
    assert "apparmor" in docker("info", "--format", "{{.SecurityOptions}}")
