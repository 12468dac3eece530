"""Tools for langchain and langgraph.

from langchain.agents import create_agent
from paddock import Paddock
from paddock.langchain import sandbox_tools

with Paddock() as paddock, paddock.sandboxes.create() as sandbox:
    agent = create_agent("openai:gpt-5", sandbox_tools(sandbox))
"""

from langchain_core.tools import BaseTool, StructuredTool

from paddock._sync.sandbox import Sandbox
from paddock._tools import functions


def sandbox_tools(sandbox: Sandbox, *, timeout: float = 120.0) -> list[BaseTool]:
    """Return tools that act in the sandbox; `timeout` is that of each command, in seconds."""
    return [
        StructuredTool.from_function(function, parse_docstring=True) for function in functions(sandbox, timeout=timeout)
    ]
