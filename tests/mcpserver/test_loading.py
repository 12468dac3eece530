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
