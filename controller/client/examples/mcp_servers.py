"""Run the MCP servers of Claude Code's `.mcp.json` in sandboxes, and print the file that points there.

    python mcp_servers.py .mcp.json > sandboxed.mcp.json

On your machine these servers could read all that you can. In a sandbox they have what their entry says, and no network.
(`paddock mcp import` does this, too, and puts keys into secrets.)
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from paddock import Paddock


def sandboxed(paddock: Paddock, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Make an MCPServer of an entry; return the entry that takes its place."""
    # `npx NAME@1.2.3` and `uvx NAME==1.2` are installed once, and run without a network.
    env = [{"name": variable, "value": value} for variable, value in entry.get("env", {}).items()]
    spec = {"command": entry["command"], "args": entry.get("args", []), "env": env}
    paddock.apply({"kind": "MCPServer", "metadata": {"name": name}, "spec": spec})
    return {
        "command": shutil.which("paddock") or "paddock",
        "args": ["mcp", "--namespace", paddock.namespace, "--server", name],
    }


async def tools_of(entry: dict[str, Any]) -> list[str]:
    """Start a server as Claude Code does, over stdin and stdout, and return the names of its tools."""
    command = StdioServerParameters(**entry, env=dict(os.environ))
    async with Client(stdio_client(command)) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


if __name__ == "__main__":
    servers = json.loads(Path(sys.argv[1]).read_text())["mcpServers"]
    with Paddock() as paddock:
        # Servers with a `url` run elsewhere already: they stay as they are.
        local = {name: sandboxed(paddock, name, entry) for name, entry in servers.items() if "command" in entry}
    print(json.dumps({"mcpServers": servers | local}, indent=2))
    for name, entry in local.items():
        print(name, "has", asyncio.run(tools_of(entry)), file=sys.stderr)
