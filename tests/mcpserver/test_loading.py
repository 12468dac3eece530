"""The SDK is loaded at the first MCP request, and not before."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_daemon_imports_no_sdk_to_start() -> None:
    code = (
        "import sys, controller.app.daemon, controller.app.api;"
        "import controller.mcp.endpoint, controller.mcp.tools.registry;"
        "print('\\n'.join(each for each in sys.modules if each.partition('.')[0] in ('mcp', 'mcp_types', 'httpx2')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_only_the_server_of_the_sdk_is_loaded() -> None:
    code = (
        "import sys; from controller.mcp import sdk; sdk.load('controller.mcp.protocol');"
        "sdk.load('controller.mcp.servers.gateway');"
        "unused = ('cryptography', 'mcp.client.client', 'mcp.server.mcpserver');"
        "assert not [each for each in unused if each in sys.modules];"
        "import mcp, mcp.server; from mcp import Client; from mcp.server import MCPServer;"
        "assert mcp.types.Tool and mcp.server.Server is sys.modules['controller.mcp.protocol'].Server;"
        "print(Client.__name__, MCPServer.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Client", "MCPServer"], done.stderr
