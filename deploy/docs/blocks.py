"""Blocks of the README files that are made from code: `<!-- made: NAME -->` to `<!-- /made -->`.

`make docs` regenerates them; tests/docs compares.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

from deploy.docs import api, cli, fields, tables

ROOT = Path(__file__).parents[2]
_IGNORED = {"node_modules", "venv", "__pycache__"}
_BLOCK = re.compile(r"(<!-- made: ([^>]+?) -->\n)(.*?)(<!-- /made -->)", re.DOTALL)

BLOCKS: Mapping[str, Callable[[], str]] = {
    "kinds": tables.kinds,
    "metadata": fields.metadata_fields,
    "probe": fields.probe_fields,
    "event": fields.event_fields,
    **{
        f"spec {kind}": partial(fields.spec_fields, kind)
        for kind in (
            *("Sandbox", "SandboxTemplate", "SandboxPool", "SandboxSnapshot", "MCPServer", "Workflow", "WorkflowRun"),
            *("Provider", "ModelServer", "Plugin", "Quota", "SecurityProfile", "Volume", "Host"),
        )
    },
    **{
        f"status {kind}": partial(fields.status_fields, kind)
        for kind in ("Volume", "SandboxSnapshot", "Host", "Instance")
    },
    "settings": tables.settings,
    "grants": tables.grants,
    "metrics": tables.metrics,
    "alerts": tables.alerts,
    "recordings": tables.recordings,
    "levels": tables.levels,
    "operations": api.operations,
    "errors": api.errors,
    "commands": cli.commands,
    "mcp tools": tables.mcp_tools,
    "e2b calls": tables.e2b_calls,
}


@cache
def files() -> list[Path]:
    """Return every README of the repository."""
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [each for each in below if each not in _IGNORED and not each.startswith(".")]
        if "README.md" in names:
            found.append(Path(folder) / "README.md")
    return sorted(found)


def rewrite(text: str) -> str:
    """Return the text with its blocks made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[4]}", text)
