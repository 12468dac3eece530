"""Tools for pydantic-ai.

from paddock import Paddock
from paddock.pydantic_ai import sandbox_tools
from pydantic_ai import Agent

with Paddock() as paddock, paddock.sandboxes.create() as sandbox:
    agent = Agent("openai:gpt-5", tools=sandbox_tools(sandbox))
    print(agent.run_sync("What is 6 * 7? Use Python.").output)
"""

from pydantic_ai import Tool

from paddock._sync.sandbox import Sandbox
from paddock._tools import functions


def sandbox_tools(sandbox: Sandbox, *, timeout: float = 120.0) -> list[Tool[None]]:
    """Return tools that act in the sandbox; `timeout` is that of each command, in seconds."""
    return [Tool(function) for function in functions(sandbox, timeout=timeout)]
