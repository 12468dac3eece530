"""An agent of pydantic-ai, whose model is a script: it calls the tools that it is told on standard input.

In: {"url", "headers", "command", "env", "steps": [{"tool", "arguments"}]}. Out, as the last line: [{"tool", "text"}],
the answers as the model was shown them.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def main(given: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = given["steps"]
    results: list[dict[str, Any]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for piece in messages[-1].parts:
            if isinstance(piece, ToolReturnPart):
                results.append({"tool": piece.tool_name, "text": piece.model_response_str()})
            elif isinstance(piece, RetryPromptPart):
                results.append({"tool": piece.tool_name, "text": piece.model_response()})
        if len(results) == len(steps):
            return ModelResponse([TextPart("done")])
        step = steps[len(results)]
        offered = [tool.name for tool in info.function_tools]
        if step["tool"] not in offered:
            raise SystemExit(f"{step['tool']} is not offered to the model: {offered}")
        return ModelResponse([ToolCallPart(step["tool"], step["arguments"])])

    if given["url"]:
        toolset = MCPToolset(given["url"], headers=given["headers"])
    else:
        program, *message = given["command"]
        toolset = MCPToolset(StdioTransport(program, message, env=given["env"]))
    agent = Agent(FunctionModel(model), toolsets=[toolset], retries=len(steps))
    async with agent:
        await agent.run("Do what the script says.")
    return results


print("\n" + json.dumps(asyncio.run(main(json.load(sys.stdin)))))
