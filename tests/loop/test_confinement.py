"""Refusals of what an operator does not allow, where it is requested."""

import pytest

from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from controller.service import errors
from tests.contract.store_backends import Backend
from tests.loop.harness import LoopHarness


def test_what_an_operator_does_not_allow_is_refused_at_the_listener(backend: Backend) -> None:
    harness = LoopHarness(backend.store(), policy=Policy(confinements=Confinements(runtimes=("runsc",))))
    with pytest.raises(errors.Invalid, match="operator does not allow `kata`"):
        harness.apply("a", template={"runtime": "kata"})
    harness.close()
