"""Every tool, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from controller.mcp.names import by_shown
from controller.mcp.tool import Tool
from controller.mcp.tools import container, files, host, objects

TOOLS: Mapping[str, Tool] = MappingProxyType(
    {each.name: each for each in (*container.TOOLS, *files.TOOLS, *host.TOOLS, *objects.TOOLS)}
)
NAMES: Mapping[str, str] = by_shown(TOOLS)
"""The tool's own name by each name that a call may use."""
