"""One lab for all modules of this folder: its engine and images take longer to come up than most of their tests."""

from collections.abc import Iterator

import pytest

from tests.lab.internet import Lab, lab


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    with lab() as shared:
        yield shared


@pytest.fixture(scope="module")
def place(shared_lab: Lab) -> Lab:
    """Return the lab as new, with the images that most modules need."""
    shared_lab.begin()
    shared_lab.load("paddock/egress:1", "paddock/agent:1", "paddock/test-tiny:1")
    return shared_lab
