"""Fixture of the fleet lane: three hosts that are one swarm."""

from collections.abc import Iterator

import pytest

from tests.lab.fleet import Fleet, fleet, impossible


@pytest.fixture(scope="module")
def hosts() -> Iterator[Fleet]:
    """Three managers of one swarm, for a module; a test leaves all of them up and connected."""
    assert not impossible(), impossible()
    with fleet() as created:
        created.form_swarm()
        yield created
