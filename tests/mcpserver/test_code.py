"""code.run: a sandbox is created for it, kept, and found again; what can't run ends at once, and leaves nothing."""

from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.mcp.tools.code import _INTERPRETERS
from paddock._interpreters import interpreter
from tests.helpers_api import ApiStack
from tests.mcpserver.clients import Mcp


def ready_once_pending(api: ApiStack, *condition: str) -> Any:
    """Return a progress callback that gives new sandboxes a Ready condition, as the planner would."""

    async def progress(_done: float, _total: float | None, _message: str | None) -> None:
        for obj in api.store.list("Sandbox")[0]:
            if not obj.status.get("conditions"):
                api.set_ready(*condition, name=obj.name)
                api.view.show(api.sandbox(obj.name))

    return progress


def test_code_runs_in_one_call_and_again_by_id(mcp: Mcp, running: ApiStack) -> None:
    running.streams.run = lambda **_: iter((Chunk("stdout", b"42\n"), Chunk("exit", b"0")))
    first = mcp.call("code.run", {"code": "print(6 * 7)"}, progress_callback=ready_once_pending(running))
    structured_content = first.structured_content
    assert (structured_content["stdout"], structured_content["exitCode"], structured_content["created"]) == (
        "42\n",
        0,
        True,
    )
    options = running.streams.asked[-1][1]
    assert (options["command"], list(options["stdin"])) == (("python3", "-"), [b"print(6 * 7)"])
    spec = running.sandbox(structured_content["id"]).spec
    assert (spec["template"]["image"], spec["lifecycle"]["onIdle"]) == ("paddock/python:1", "Delete")
    again = mcp.data("code.run", {"code": "ls", "language": "Shell", "id": structured_content["id"]})
    assert (again["id"], again["created"]) == (structured_content["id"], False)
    assert running.streams.asked[-1][1]["command"] == ("sh", "-s")
    document = {"code": "1", "id": "mine", "language": "js", "image": "paddock/node:1", "allowedHosts": ["example.org"]}
    mcp.call("code.run", document, progress_callback=ready_once_pending(running))
    spec = running.sandbox("mine").spec
    assert (spec["template"]["image"], spec["network"]["allowedHosts"]) == ("paddock/node:1", ["example.org"])
    assert spec["securityLevel"] == "development"


def test_code_says_what_is_wrong(mcp: Mcp, running: ApiStack) -> None:
    assert "language: must be python, node, bash or sh" in mcp.error("code.run", {"code": "1", "language": "cobol"})
    assert "lang: unknown argument; did you mean `language`?" in mcp.error("code.run", {"code": "1", "lang": "sh"})
    assert "leave `id` out" in mcp.error("code.run", {"code": "1", "id": "a" * 12})
    running.refusals.append(("spec.securityLevel", "not allowed here"))
    assert "not allowed here" in mcp.error("code.run", {"code": "1"})


@pytest.mark.parametrize("tool", ["code.run", "docker.container.create"])
def test_a_missing_image_is_an_error_at_once(mcp: Mcp, running: ApiStack, tool: str) -> None:
    document = {"image": "paddock/no:1", **({"code": "1", "id": "new"} if tool == "code.run" else {"name": "new"})}
    message = "paddock/no:1 is not on this host; build it (`make images`)"
    progress = ready_once_pending(running, "False", "ImagePullFailed", message)
    result = mcp.call(tool, document, progress_callback=progress)
    assert result.is_error
    assert "paddock/no:1 is not on this host" in result.content[0].text
    assert "images here: " in result.content[0].text
    assert running.sandbox("new").deleted_at is not None


def test_interpreters_are_those_of_the_python_client() -> None:
    for language, observed in _INTERPRETERS.items():
        assert interpreter(language)[: len(observed.command)] == observed.command
