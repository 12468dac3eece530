"""The client that the conformance suite asks for: the SDK's, through the gateway, to the suite's server.

The gateway speaks stdio. Here a program relays its lines to the URL that is the last argument, and knows nothing else.
"""

import json
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio

from controller.kinds.common.chunk import Chunk
from controller.mcp.servers.sessions import Sessions
from tests.helpers_api import make_api
from tests.mcpserver.clients import ERAS, client, serving
from tests.mcpserver.programs import Program, Servers, server

PLACE = "/apis/paddock/v1alpha1/namespaces/default/mcpservers/one/mcp"
META = "io.modelcontextprotocol/protocolVersion"
# The tools of the suite's servers: what the client has to call them with, given the tools' schemas.
CALLS = {
    "add_numbers": lambda _: {"a": 5, "b": 3},
    "json_schema_echo": lambda schemas: {"schema": schemas["json_schema_2020_12_tool"]},
}


class Relay:
    """Answers a message as the server at a URL does."""

    def __init__(self, url: str) -> None:
        self._url, self._kept = url, dict[str, str]()

    def __call__(self, message: dict[str, Any]) -> list[Chunk]:
        params, method = message.get("params", {}), message["method"]
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self._kept}
        if META in params.get("_meta", {}):
            headers |= {"MCP-Protocol-Version": params["_meta"][META], "Mcp-Method": method}
            headers |= {"Mcp-Name": params["name"]} if "name" in params else {}
        request = urllib.request.Request(self._url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text, session = answer.read().decode(), answer.headers.get("Mcp-Session-Id")
        except urllib.error.HTTPError as error:
            text, session = error.read().decode(), None
        if session:
            self._kept |= {"Mcp-Session-Id": session}
        lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")] or [text]
        return [Chunk("stdout", f"{line.strip()}\n".encode()) for line in lines]


async def use(listener: Path) -> None:
    async with client(listener, ERAS[0], path=PLACE) as mcp:
        schemas = {tool.name: tool.input_schema for tool in (await mcp.list_tools()).tools}
        for name, arguments in CALLS.items():
            if name in schemas:
                result = await mcp.call_tool(name, arguments(schemas))
                assert not result.is_error, result


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pdg-") as folder:
        api = make_api(Path(folder))
        server(api)
        servers: Any = Servers(api, lambda: Program(Relay(sys.argv[-1])))
        sessions = Sessions(servers, api.meter)
        with serving(api, sessions=sessions):
            anyio.run(use, api.socket)
        sessions.close(0)
        api.store.close()


if __name__ == "__main__":
    main()
