"""Images within the operator's rules, and Compose projects as sets of sandboxes."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.policy.images import ImageRules
from controller.service.images.images import ImageService, ImageWorkRules
from tests.api.listeners import token
from tests.fakes.images import FakeImages
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import Mcp, talking

COMPOSE = """\
name: shop
services:
  web: {image: paddock/python:1, command: [sleep, infinity], mem_limit: 64m, depends_on: [db]}
  db: {image: paddock/python:1, command: [sleep, infinity], mem_limit: 64m}
"""
BAD = COMPOSE.replace("depends_on: [db]", "privileged: true").replace(
    "mem_limit: 64m}", 'mem_limit: 64m, volumes: ["/var/run/docker.sock:/s"]}'
)


@pytest.fixture
def images(api: ApiStack) -> FakeImages:
    """Images of the API's host; builds are allowed, and pushes to one registry."""
    fake_images = FakeImages({"paddock/python:1": "sha256:1", "secret/tool:1": "sha256:2"}, set)
    fake_images.remote = {"registry.example.org/team/tool:1": "sha256:3"}
    rules = ImageRules(allowed_patterns=("paddock/*", "registry.example.org/*"))
    work = ImageWorkRules(build="copy-only", push_registries=("registry.example.org",))
    services = api.services
    service = ImageService(fake_images, rules, work, services.recorder, services.registry)
    api.services = replace(services, images=service)
    return fake_images


@pytest.fixture
def mcp(images: FakeImages, api: ApiStack) -> Iterator[Mcp]:
    with talking(api) as created:
        yield created


def test_images_are_listed_and_pulled_within_the_patterns(mcp: Mcp, images: FakeImages) -> None:
    names = [name for entry in mcp.data("docker.image.list")["items"] for name in entry["names"]]
    assert names == ["paddock/python:1"]
    document = mcp.data("docker.image.pull", {"name": "registry.example.org/team/tool:1"})
    assert document["image"]["names"] == ["registry.example.org/team/tool:1"]
    assert "evil.example" in mcp.error("docker.image.pull", {"name": "evil.example/tool:1"})


def test_builds_and_pushes_need_an_admin_and_a_setting(mcp: Mcp, api: ApiStack, images: FakeImages) -> None:
    built = {"tag": "registry.example.org/team/new:1", "dockerfile": "FROM paddock/python:1\nCOPY a.txt /a.txt\n"}
    built["context"] = {"a.txt": "hello", "b.bin": {"base64": "AAE="}}  # type: ignore[assignment]
    user = token(api, "user", "default")
    assert "docker.image.build" not in {tool.name for tool in mcp.do("list_tools", token=user).tools}
    assert "needs the role admin" in mcp.error("docker.image.build", built, token=user)
    document = mcp.data("docker.image.build", built)
    assert document["image"]["names"] == ["registry.example.org/team/new:1"]
    assert b"hello" in images.asked[0].context
    assert mcp.data("docker.image.push", {"name": "registry.example.org/team/new:1"})["image"]
    assert "allows no pushes to docker.io" in mcp.error("docker.image.push", {"name": "team/new:1"})
    ran = {**built, "dockerfile": "FROM paddock/python:1\nRUN id\n"}
    assert "Dockerfile:2:1" in mcp.error("docker.image.build", ran)
    wrong = {**built, "context": {"a.txt": {"text": "x"}}}
    assert "context[a.txt]" in mcp.error("docker.image.build", wrong)


def test_a_compose_file_becomes_sandboxes_and_goes(mcp: Mcp, api: ApiStack) -> None:
    document = mcp.data("docker.compose.up", {"file": COMPOSE, "waitSeconds": 0})
    assert document["project"] == "shop"
    assert [(entry["name"], entry["result"]) for entry in document["items"]] == [
        ("shop-web", "created"),
        ("shop-db", "created"),
    ]
    api.apply()
    again = mcp.data("docker.compose.up", {"file": COMPOSE, "options": '{"dryRun": true}'})
    assert {entry["result"] for entry in again["items"]} == {"unchanged"}
    removed = mcp.data("docker.compose.down", {"project": "shop", "waitSeconds": 0})
    assert (sorted(removed["names"]), removed["gone"]) == (["shop-db", "shop-web"], False)
    assert api.sandbox().deleted_at is None
    assert mcp.data("docker.compose.down", {"project": "other"}) == {"names": [], "gone": True}


def test_a_build_needs_a_dockerfile_and_a_context(mcp: Mcp, images: FakeImages) -> None:
    context = {"Dockerfile": "FROM paddock/python:1\nCOPY a.txt /a.txt\n", "a.txt": "hello"}
    for sent in ("Dockerfile", context["Dockerfile"]):
        built = mcp.data("docker.image.build", {"dockerfile": sent, "context": json.dumps(context)})
        assert built["image"]["names"][0].startswith("local/build:")
    assert images.asked[-1].tag == images.asked[-2].tag == built["image"]["names"][0]
    mcp.data("docker.image.build", {"dockerfile": "FROM paddock/python:1\n", "context": "."})
    text = mcp.error("docker.image.build", {"dockerfile": "FROM paddock/python:1\n", "context": "/home/me/app"})
    assert "context: must be the files by path, such as {app.py: TEXT}, not a folder" in text


def test_a_failing_build_shows_its_last_steps(mcp: Mcp, images: FakeImages) -> None:
    text = mcp.error("docker.image.build", {"dockerfile": "FROM paddock/python:1\nCOPY b.txt /\n", "context": {}})
    assert "COPY failed" in text
    assert text.splitlines()[-1].startswith("Step ")


def test_compose_without_a_name_takes_one(mcp: Mcp, api: ApiStack) -> None:
    file = {"services": {"web": {"image": "paddock/python:1", "mem_limit": "64m"}}}
    assert mcp.data("docker.compose.up", {"file": file, "waitSeconds": 0})["project"] == "web"
    assert mcp.data("docker.compose.down", {"file": file, "waitSeconds": 0})["names"] == ["web-web"]
    up = {"file": file, "project": "flat", "waitSeconds": 0}
    assert [entry["name"] for entry in mcp.data("docker.compose.up", up)["items"]] == ["flat-web"]
    assert mcp.data("docker.compose.down", {"file": "flat", "waitSeconds": 0})["names"] == ["flat-web"]
    assert "services" in mcp.error("docker.compose.up", {"file": "a: b", "waitSeconds": 0})


def test_compose_names_a_missing_image(mcp: Mcp, api: ApiStack) -> None:
    async def progress(_done: float, _total: float | None, _message: str | None) -> None:
        api.set_ready("False", "ImagePullFailed", "paddock/no:1 is not on this host", name="web-web")

    file = {"services": {"web": {"image": "paddock/no:1", "mem_limit": "64m"}}}
    result = mcp.call("docker.compose.up", {"file": file}, progress_callback=progress)
    assert result.is_error
    assert result.content[0].text.splitlines() == [
        "web-web: ImagePullFailed: paddock/no:1 is not on this host",
        "images here: paddock/python:1",
        "change the file and call docker.compose.up again, or docker.compose.down(project: web)",
    ]


def test_compose_refusals_have_positions(mcp: Mcp, api: ApiStack) -> None:
    text = mcp.error("docker.compose.up", {"file": BAD})
    assert "compose.yaml:3:" in text
    assert "privileged" in text
    assert "services.db.volumes[0]: a sandbox never gets an engine's socket" in text
    assert api.store.list("Sandbox")[0] == []
    stranger = token(api, "user", "team-a")
    assert "needs the role user" in mcp.error("docker.compose.up", {"file": COMPOSE}, token=stranger)
