"""The operator's rules for images: by the name as it is written, with or without its tag, and by digest."""

import re
from pathlib import Path

import pytest

from controller.kinds.sandbox import SandboxSpec
from controller.policy.images import (
    ANY_IMAGE,
    RECIPES,
    ImageRules,
    address_refused,
    image_refusals,
    is_vouched_for,
    registry_server,
    remedy,
    tag_of,
)
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit

DIGEST = "@sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "patterns"),
    [
        ("paddock/python:1", ("paddock/*",)),
        ("paddock/python:1", ("paddock/python",)),
        ("paddock/python:1", ("other", "paddock/python:1")),
        ("registry:5000/team/app:2" + DIGEST, ("registry:5000/team/*",)),
        ("registry:5000/team/app" + DIGEST, ("registry:5000/team/app",)),
        ("anything", ()),
    ],
)
def test_allowed_images(image: str, patterns: tuple[str, ...]) -> None:
    assert list(image_refusals(image, ImageRules(patterns))) == []


@pytest.mark.parametrize(
    ("image", "patterns"),
    [
        ("evil/paddock/python:1", ("paddock/*",)),
        ("paddock-python", ("paddock/*",)),
        ("Paddock/python", ("paddock/*",)),
        ("paddock/python:2", ("paddock/python:1",)),
        ("registry:5001/team/app", ("registry:5000/*",)),
    ],
)
def test_refused_images(image: str, patterns: tuple[str, ...]) -> None:
    (image_refusal,) = image_refusals(image, ImageRules(patterns))
    assert f"`{image}` is not an image" in image_refusal
    assert patterns[0] in image_refusal


def test_an_operator_may_require_digests() -> None:
    rules = ImageRules(pinned=True)
    assert list(image_refusals("a/b:1" + DIGEST, rules)) == []
    assert list(image_refusals("a/b:1", rules)) == [
        "this host's operator requires images by digest; write `a/b@sha256:...`"
    ]


def test_it_is_part_of_admission_and_of_the_policy() -> None:
    policy = Policy(images=ImageRules(("paddock/*",), pinned=True))
    spec = SandboxSpec.model_validate({"template": {"image": "a:1"}})
    assert [refusal.field for refusal in admit(spec, policy)] == ["spec.template.image"] * 2
    assert policy.version() != Policy().version()


@pytest.mark.parametrize(
    "image",
    [
        "127.0.0.1:9464/x",
        "127.0.0.1/x",
        "10.0.0.7:5000/team/app:2",
        "93.184.216.34/x:1",
        "127.1:80/x",
        "2130706433:80/x",
        "0x7f000001:80/x",
        "0x7F.1/x",
        "0177.0.0.1/x",
        "127.0.0.1./x",
        "0:80/x",
        "localhost/x",
        "localhost:5000/x@sha256:" + "a" * 64,
        "LocalHost:5000/x",
        "LOCALHOST/x",
        "localhost.:80/x",
        "a.localhost/x",
        "a.b.LOCALHOST:80/x",
        "localhost.localdomain/x",
        "ip6-localhost:80/x",
    ],
)
def test_a_registry_that_is_an_address_or_this_host_is_refused_unless_listed(image: str) -> None:
    (image_refusal,) = image_refusals(image, ANY_IMAGE)
    registry = image.partition("/")[0]
    assert image_refusal.startswith(f"`{registry}` is an address, or this host itself")
    assert list(image_refusals(image, ImageRules(local_registries=(registry,)))) == []
    assert list(image_refusals(image, ImageRules((f"{registry}/*",)))) == []
    image_rules = ImageRules(("*",), local_registries=("127.0.0.1:1", f"{registry}0"))
    assert list(image_refusals(image, image_rules)) == [image_refusal]


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "a:1",
        "localhost",
        "localhost:1",
        "a/localhost:1",
        "2130706433/x",
        "registry:5000/x",
        "registry.example/127.0.0.1",
        "10.0.0.7.example:80/x",
        "x0.example/1",
        "mylocalhost.example/x",
        "localhost4/x",
        "paddock/python:1",
    ],
)
def test_other_registries_are_accepted(image: str) -> None:
    assert list(image_refusals(image, ANY_IMAGE)) == []


def test_registries_at_private_addresses_are_refused() -> None:
    for address in (
        "127.0.0.1",
        "10.0.0.7",
        "169.254.169.254",
        "100.64.0.1",
        "192.88.99.1",
        "::1",
        "fd00::1",
        "fe80::1%eth0",
    ):
        assert address.partition("%")[0] in address_refused("registry.example.org", ["93.184.216.34", address])
    assert address_refused("registry.example.org", ["93.184.216.34", "2606:2800:220:1::1"]) == ""


def test_registries_of_the_operator_may_be_anywhere() -> None:
    listed = ImageRules(("registry.lan/team/*",), local_registries=("nas:5000",))
    for image in ("python:3", "team/app", "docker.io/library/x", "nas:5000/x", "registry.lan/team/app"):
        assert is_vouched_for(image, listed), image
    for image in ("nas:5001/x", "ghcr.io/x", "docker.io.example.org/x"):
        assert not is_vouched_for(image, listed), image


def test_the_server_of_a_registry_has_a_port() -> None:
    assert registry_server("nas:5000") == ("nas", 5000)
    assert registry_server("ghcr.io") == ("ghcr.io", 443)
    assert registry_server("[::1]:5000") == ("::1", 5000)
    assert registry_server("[fd00::1]") == ("fd00::1", 443)


def test_a_missing_image_is_built_by_what_builds_it() -> None:
    script = (Path(__file__).parents[2] / "images" / "build.sh").read_text()
    match = re.search(r"^        (base [a-z| -]+)\) names\+=\(", script, re.MULTILINE)
    assert match is not None
    assert sorted(match[1].split(" | ")) == sorted(RECIPES)
    for recipe in RECIPES:
        assert remedy(tag_of(recipe)) == f"build it (`images/build.sh {recipe}`)"
    assert "build.sh" not in remedy("paddock/nowhere:1")
    assert remedy("python:3.12").startswith(
        "get it (`paddock image pull python:3.12`), or build it (`paddock image build"
    )
