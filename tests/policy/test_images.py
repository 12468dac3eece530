"""The operator's rules for images: by the name as it is written, with or without its tag, and by digest."""

import pytest

from controller.kinds.sandbox import SandboxSpec
from controller.policy.images import ImageRules, refused
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit

DIGEST = "@sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("paddock/python:1", ("paddock/*",)),
        ("paddock/python:1", ("paddock/python",)),
        ("paddock/python:1", ("other", "paddock/python:1")),
        ("registry:5000/team/app:2" + DIGEST, ("registry:5000/team/*",)),
        ("registry:5000/team/app" + DIGEST, ("registry:5000/team/app",)),
        ("anything", ()),
    ],
)
def test_what_the_operator_allows(image: str, allowed: tuple[str, ...]) -> None:
    assert list(refused(image, ImageRules(allowed))) == []


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("evil/paddock/python:1", ("paddock/*",)),
        ("paddock-python", ("paddock/*",)),
        ("Paddock/python", ("paddock/*",)),
        ("paddock/python:2", ("paddock/python:1",)),
        ("registry:5001/team/app", ("registry:5000/*",)),
    ],
)
def test_what_the_operator_does_not_allow(image: str, allowed: tuple[str, ...]) -> None:
    (words,) = refused(image, ImageRules(allowed))
    assert f"`{image}` is none of the images" in words
    assert allowed[0] in words


def test_a_tag_may_move_so_an_operator_may_want_digests() -> None:
    rules = ImageRules(pinned=True)
    assert list(refused("a/b:1" + DIGEST, rules)) == []
    assert list(refused("a/b:1", rules)) == ["this host's operator wants images by digest: write `a/b@sha256:...`"]


def test_it_is_part_of_admission_and_of_the_policy() -> None:
    policy = Policy(images=ImageRules(("paddock/*",), pinned=True))
    spec = SandboxSpec.model_validate({"template": {"image": "a:1"}})
    assert [each.field for each in admit(spec, policy)] == ["spec.template.image"] * 2
    assert policy.version() != Policy().version()
