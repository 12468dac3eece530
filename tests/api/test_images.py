"""Images over HTTP: lines of progress, the result or the error last, and the rights of each caller."""

import json
from typing import Any

import httpx

from controller.api.common.models import PREFIX
from controller.service.images.context import pack_files
from tests.api.listeners import client, opened, token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

TOOL, BASE = "registry.example/team/tool:1", "paddock/base:1"
TAR = {"Content-Type": "application/octet-stream"}


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def post(made: httpx.Client, what: str, body: bytes = b"", **query: Any) -> httpx.Response:
    return made.post(f"{PREFIX}/images/{what}", params=query, content=body, headers=TAR if body else {})


def test_progress_ends_with_the_result(api: ApiStack) -> None:
    api.images.remote[TOOL] = "sha256:" + "d" * 64
    with opened(api), client(api) as root:
        *steps, last = lines(post(root, "pull", image=TOOL))
        assert steps == [{"text": "Pulling", "layer": "1"}]
        assert last["image"]["names"] == [TOOL]
        (*_, error) = lines(post(root, "pull", image="registry.example/none:1"))
        assert (error["error"]["code"], "does not have it" in error["error"]["message"]) == (503, True)
        listed = root.get(f"{PREFIX}/images").json()["items"]
        assert [each["names"] for each in listed] == [[BASE], [TOOL]]


def test_an_image_says_its_volumes(api: ApiStack) -> None:
    api.images.remote[TOOL] = "sha256:" + "d" * 64
    api.images.volumes[TOOL] = ("/data",)
    with opened(api), client(api) as root:
        inspected = f"{PREFIX}/images/inspect"
        assert root.get(inspected, params={"image": TOOL}).status_code == 404
        *_, last = lines(post(root, "pull", image=TOOL))
        answer = root.get(inspected, params={"image": TOOL})
        assert (answer.json(), answer.json()["volumes"]) == (last["image"], ["/data"])
        assert root.get(inspected, params={"image": TOOL, "host": "none"}).status_code == 404
    with opened(api), client(api, token(api, "user", images=("other/*",))) as user:
        assert user.get(inspected, params={"image": TOOL}).status_code == 404


def test_admins_delete_images_that_nothing_uses(api: ApiStack) -> None:
    api.images.remote[TOOL] = "sha256:" + "d" * 64
    with opened(api), client(api) as root:
        lines(post(root, "pull", image=TOOL))
        base = api.images.find(BASE)
        assert base is not None
        for name in (BASE, base.id):  # of Paddock's own
            assert post(root, "delete", image=name).status_code == 422
        user = {"Authorization": f"Bearer {token(api, 'operator')}"}
        refusal = root.post(f"{PREFIX}/images/delete", params={"image": TOOL}, headers=user)
        assert (refusal.status_code, api.images.find(TOOL) is not None) == (403, True)
        assert post(root, "delete", image=TOOL).json()["image"] == TOOL
        assert post(root, "delete", image=TOOL).status_code == 404


def test_disconnecting_ends_the_work(api: ApiStack) -> None:
    api.images.stuck = True
    with opened(api), client(api) as root:
        with root.stream("POST", f"{PREFIX}/images/pull", params={"image": TOOL}) as answer:
            assert answer.status_code == 200
            (work,) = wait_for("the pull has started", lambda: api.images.opened)
            assert not work.closed
        wait_for("the pull is ended", lambda: work.closed)


def test_a_build_takes_its_context_as_the_body(api: ApiStack) -> None:
    files = {"docker/Dockerfile": f"FROM {BASE}\nCOPY a /a\n".encode(), "a": b"x"}
    query = {"tag": "registry.example/built:1", "dockerfile": "docker/Dockerfile", "arg": ["A=1", "B=2"]}
    with opened(api), client(api) as root:
        assert lines(post(root, "build", pack_files(files), **query))[-1]["image"]["names"] == [query["tag"]]
        assert api.images.asked[0].arguments == {"A": "1", "B": "2"}
        *_, pushed = lines(post(root, "push", image=query["tag"]))
        assert pushed["image"]["digests"]
        refused = post(root, "build", pack_files({"Dockerfile": b"FROM a\nADD b c\n"}), tag="a:1")
        (cause,) = refused.json()["details"]["causes"]
        assert (refused.status_code, cause["file"], cause["line"]) == (422, "Dockerfile", 2)
        large = post(root, "build", pack_files({"Dockerfile": b"#" * (1 << 20)}), tag="a:1")
        assert (large.status_code, "image_context_bytes" in large.text) == (413, True)
        assert post(root, "build", pack_files({}), tag="a:1", arg="A").status_code == 400


def test_only_admins_build_and_push(api: ApiStack) -> None:
    api.images.remote |= dict.fromkeys((TOOL, "other.example/x:1"), "sha256:" + "d" * 64)
    with opened(api), client(api, token(api, "user", "default", images=("registry.example/*",))) as user:
        assert lines(post(user, "pull", image=TOOL))[-1]["image"]
        assert post(user, "pull", image="other.example/x:1").status_code == 403
        assert [each["names"] for each in user.get(f"{PREFIX}/images").json()["items"]] == [[TOOL]]
        assert post(user, "push", image=TOOL).status_code == 403
        assert post(user, "build", pack_files({}), tag="a:1").status_code == 403
    with opened(api), client(api, token(api, "viewer", "*")) as viewer:
        assert post(viewer, "pull", image=TOOL).status_code == 403
