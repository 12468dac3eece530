"""Resources of sandboxes and their updates, and the prompt."""

import base64
from typing import Any

import anyio
import pytest
from mcp import MCPError

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import State
from controller.kinds.sandbox import KIND as SANDBOX
from tests.api.listeners import token
from tests.daemon import wait_for
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import ERAS, Mcp, client, serving

URI = "sandbox://default/quickstart"


def test_resources_are_listed_and_read(mcp: Mcp, running: ApiStack) -> None:
    for era in ERAS:
        resources_of(mcp, running, era)


def resources_of(mcp: Mcp, running: ApiStack, era: str) -> None:
    assert [resource.uri for resource in mcp.do("list_resources", era=era).resources] == [URI]
    templates = {
        resource_template.uri_template
        for resource_template in mcp.do("list_resource_templates", era=era).resource_templates
    }
    base = "sandbox://{namespace}/{name}"
    parts = ("/logs", "/metrics", "/files/{+path}", "/output/{id}")
    assert templates == {base, *(base + name for name in parts)}
    [observed] = mcp.do("read_resource", URI, era=era).contents
    assert '"kind": "Sandbox"' in observed.text
    running.streams.log = lambda **_: iter((Chunk("stdout", b"\x1b[31mred\x1b[0m\n"),))
    assert mcp.do("read_resource", f"{URI}/logs", era=era).contents[0].text == "red\n"


def test_files_are_text_or_bytes_and_never_cut(mcp: Mcp) -> None:
    for path, content in (("a b.txt", "hé"), ("é.bin", "\x00"), ("long", "x" * (300 << 10))):
        document = {"container": "quickstart", "path": f"/workspace/{path}", "content": content}
        mcp.data("docker.file.write", document)
    raw = {"container": "quickstart", "path": "/workspace/raw.bin", "content": "/w==", "encoding": "base64"}
    mcp.data("docker.file.write", raw)
    assert mcp.do("read_resource", f"{URI}/files/workspace/a%20b.txt").contents[0].text == "hé"
    blob = mcp.do("read_resource", f"{URI}/files/workspace/raw.bin").contents[0]
    assert base64.b64decode(blob.blob) == b"\xff"
    with pytest.raises(MCPError, match="read it in parts"):
        mcp.do("read_resource", f"{URI}/files/workspace/long")


def test_other_resources_do_not_exist(mcp: Mcp) -> None:
    for uri in ("sandbox://default/none", f"{URI}/secrets", "file:///etc/passwd", f"{URI}/files/none"):
        for era, code in zip(ERAS, (-32602, -32002), strict=True):
            with pytest.raises(MCPError) as caught:
                mcp.do("read_resource", uri, era=era)
            assert caught.value.code == code


def test_resources_have_the_rights_of_their_tools(mcp: Mcp, running: ApiStack) -> None:
    stranger = token(running, "admin", "team-a")
    viewer, limited = token(running, "viewer", "default"), token(running, "user", "default", tools=["docker.file.*"])
    assert mcp.do("list_resources", token=stranger).resources == []
    assert len(mcp.do("list_resources", token=viewer).resources) == 1
    assert mcp.do("list_resources", token=limited).resources == []
    for text, uri in ((stranger, URI), (viewer, f"{URI}/files/tmp"), (limited, URI), (limited, f"{URI}/logs")):
        with pytest.raises(MCPError):
            mcp.do("read_resource", uri, token=text)


def test_subscribers_hear_of_changes_they_may_see(mcp: Mcp, running: ApiStack) -> None:
    uris = [URI, f"{URI}/files/workspace/a", "sandbox://team-a/secret"]
    text = token(running, "user", "default")
    heard: list[Any] = []
    mcp.data("docker.file.write", {"container": "quickstart", "path": "/workspace/a", "content": "1"})

    async def listen() -> None:
        created = mcp.client(token=text)
        async with created.listen(resource_subscriptions=uris) as stream:
            heard.append(stream)
            running.change(labels={"app": "changed"})
            running.services.watches.notify()
            async for event in stream:
                heard.append(event.uri)
                if len(heard) == 2:
                    await created.call_tool(
                        "docker.file.write", {"container": "quickstart", "path": "/workspace/a", "content": "22"}
                    )
                if event.uri == uris[1]:
                    return

    mcp.client(token=text)
    mcp.portal.call(listen)
    followed = [entry for entry in running.store.audit.entries() if entry.detail.get("subscription")]
    assert [(entry.verb, entry.name) for entry in followed] == [("files", "quickstart")]
    assert heard[1] == URI
    assert set(heard[1:]) == set(uris[:2])


def test_no_change_after_an_acknowledgement_is_missed(mcp: Mcp, running: ApiStack) -> None:
    uri = f"{URI}/files/workspace/b"
    document = {"container": "quickstart", "path": "/workspace/b", "content": "1"}
    mcp.data("docker.file.write", document)
    heard: list[str] = []

    async def listen() -> None:
        created = mcp.client()
        async with created.listen(resource_subscriptions=[URI]), created.listen(resource_subscriptions=[uri]) as stream:
            await created.call_tool("docker.file.write", {**document, "content": "22"})
            async for event in stream:
                heard.append(event.uri)
                return

    mcp.portal.call(listen)
    assert heard == [uri]


def test_updates_survive_an_unexpected_error(mcp: Mcp, running: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    watches = running.services.watches
    opened, earlier = watches.count, watches.earlier

    def broken(_watch: Any) -> Any:
        monkeypatch.setattr(watches, "earlier", earlier)
        raise RuntimeError("a bug")

    monkeypatch.setattr(watches, "earlier", broken)
    heard: list[str] = []
    created = mcp.client()

    async def listen() -> None:
        async with created.listen(resource_subscriptions=[URI]) as stream:
            while watches.count == opened:
                await anyio.sleep(0.01)
            running.change(labels={"app": "changed"})
            watches.notify()
            async for event in stream:
                heard.append(event.uri)
                return

    mcp.portal.call(listen)
    assert heard == [URI]
    wait_for("the watches are closed, also the one that failed", lambda: watches.count == opened)


def test_the_prompt_explains_compose(mcp: Mcp) -> None:
    [prompt] = mcp.do("list_prompts").prompts
    assert (prompt.name, prompt.arguments[0].name) == ("compose", "goal")
    assert "a web shop" in mcp.do("get_prompt", "compose", {"goal": "a web shop"}).messages[0].content.text
    with pytest.raises(MCPError, match="Unknown prompt"):
        mcp.do("get_prompt", "other")


def test_only_readable_namespaces_are_read(mcp: Mcp, running: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    listing = running.services.objects.list

    def noted(kind: Any, namespace: str | None, **more: Any) -> Any:
        if kind.name == "Sandbox":
            read.append(namespace)
        return listing(kind, namespace, **more)

    monkeypatch.setattr(running.services.objects, "list", noted)
    assert len(mcp.do("list_resources", token=token(running, "viewer", "default")).resources) == 1
    assert mcp.do("list_resources", token=token(running, "viewer", "team-a")).resources == []
    assert read == ["default", "team-a"]


def test_following_a_file_wakes_no_sandbox(running: ApiStack) -> None:
    files, where = running.services.files, (SANDBOX, "default", "quickstart", "/workspace")
    peek = files.peek(*where)
    assert peek is not None
    assert peek["type"] == "folder"
    running.view.show(running.sandbox(), State.EXITED)
    assert files.peek(*where) is None


def test_what_another_host_has_is_not_acknowledged_and_ends_when_it_moves(running: ApiStack) -> None:
    logs, files = f"{URI}/logs", f"{URI}/files/workspace"
    hosts = {"here": False}
    heard: list[Any] = []

    async def listen() -> None:
        async with client(running.socket) as created:
            async with created.listen(resource_subscriptions=[URI, logs]) as stream:
                heard.append(stream.honored.resource_subscriptions)
            hosts["here"] = True
            async with created.listen(resource_subscriptions=[URI, files]) as stream:
                heard.append(stream.honored.resource_subscriptions)
                hosts["here"] = False
                async for _ in stream:
                    pass

    with serving(running, is_here=lambda namespace, name: hosts["here"]):
        anyio.run(listen)
    assert heard == [[URI], [URI, files]]
