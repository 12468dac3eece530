"""Tools for OpenAI's agents SDK (openai-agents).

from agents import Agent, Runner
from paddock import Paddock
from paddock.openai_agents import sandbox_tools

with Paddock() as paddock, paddock.sandboxes.create() as sandbox:
    agent = Agent("coder", tools=sandbox_tools(sandbox))
    print(Runner.run_sync(agent, "What is 6 * 7? Use Python.").final_output)
"""

from agents import Tool, function_tool

from paddock._sync.sandbox import Sandbox
from paddock._tools import functions


def sandbox_tools(sandbox: Sandbox, *, timeout: float = 120.0) -> list[Tool]:
    """Return tools that act in the sandbox; `timeout` is that of each command, in seconds."""
    return [function_tool(function) for function in functions(sandbox, timeout=timeout)]
