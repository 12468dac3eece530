"""The lab of this folder's modules, as new for each of them."""

import pytest

from tests.lab.internet import Lab


@pytest.fixture(scope="module")
def place(shared_lab: Lab) -> Lab:
    """Return the lab as new, with the images that most modules need."""
    shared_lab.begin()
    shared_lab.load("paddock/egress:1", "paddock/agent:1", "paddock/test-tiny:1")
    return shared_lab
