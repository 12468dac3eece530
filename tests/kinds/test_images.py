"""Names of images, as engines list them."""

import pytest

from controller.kinds.runtime.images import reference

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("python", "python:latest"),
        ("docker.io/library/python:3", "python:3"),
        ("host:5000/team/app", "host:5000/team/app:latest"),
        ("host:5000/team/app:1", "host:5000/team/app:1"),
        (f"team/app@{DIGEST}", f"team/app@{DIGEST}"),
        (f"team/app:1@{DIGEST}", f"team/app@{DIGEST}"),
        (DIGEST, ""),
    ],
)
def test_a_name_is_read_as_engines_list_it(name: str, listed: str) -> None:
    assert reference(name) == listed
