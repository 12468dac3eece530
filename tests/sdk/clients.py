"""Programs of others in the environment of `make test-mcp` (marker `mcp`): frameworks, generators, Node.js.

tests/mcp/requirements.in and tests/mcp/node list what is fetched.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / ".cache/mcp"
SDK = ROOT / "controller/client/src"


def run(program: str, *words: str, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of that environment, with the package `paddock` of this checkout."""
    document = {"PATH": f"{FETCHED}/venv/bin:{os.environ['PATH']}", "HOME": str(cwd), "LANG": "C.UTF-8"}
    document |= {"PYTHONPATH": str(SDK), "NO_COLOR": "1", **env}
    line = [str(FETCHED / "venv/bin" / program), *words]
    return subprocess.run(line, cwd=cwd, env=document, capture_output=True, text=True, timeout=240, check=False)
