"""Every tool, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from controller.mcp.names import by_shown
from controller.mcp.tool import Tool
from controller.mcp.tools import code, compose, container, files, host, image, objects, servers, snapshots

_MODULES = (code, container, files, image, compose, host, objects, snapshots, servers)
TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for module in _MODULES for tool in module.TOOLS})
NAMES: Mapping[str, str] = by_shown(TOOLS)
"""The tool's own name by each name that a call may use."""
