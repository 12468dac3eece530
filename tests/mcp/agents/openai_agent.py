"""An agent of openai-agents, whose model is a script: it calls the tools that it is told on standard input.

In: {"url", "headers", "command", "env", "steps": [{"tool", "arguments"}]}. Out, as the last line: [{"tool", "text"}],
the answers as the model was shown them.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Script(Model):
    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.steps = steps
        self.results: list[dict[str, Any]] = []

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        printed = named.get("input", given[1] if len(given) > 1 else [])
        tools = named.get("tools", given[3] if len(given) > 3 else [])
        answers = [
            entry for entry in printed if isinstance(entry, dict) and entry.get("type") == "function_call_output"
        ]
        called = zip(self.steps, answers, strict=False)
        self.results = [{"tool": step["tool"], "text": _text(answer["output"])} for step, answer in called]
        if len(answers) == len(self.steps):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            response_output_message = ResponseOutputMessage(
                id="m", role="assistant", status="completed", type="message", content=[text]
            )
            return ModelResponse(output=[response_output_message], usage=Usage(), response_id=None)
        step = self.steps[len(answers)]
        offered = [tool.name for tool in tools]
        if step["tool"] not in offered:
            raise SystemExit(f"{step['tool']} is not offered to the model: {offered}")
        call = ResponseFunctionToolCall(
            call_id=f"call-{len(answers)}",
            name=step["tool"],
            arguments=json.dumps(step["arguments"]),
            type="function_call",
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _text(output: Any) -> str:
    return output if isinstance(output, str) else "\n".join(piece.get("text", "") for piece in output)


async def main(given: dict[str, Any]) -> list[dict[str, Any]]:
    set_tracing_disabled(True)
    if given["url"]:
        params = {"url": given["url"], "headers": given["headers"], "timeout": 60}
        server = MCPServerStreamableHttp(params, client_session_timeout_seconds=60)
    else:
        program, *message = given["command"]
        params = {"command": program, "args": message, "env": given["env"]}
        server = MCPServerStdio(params, client_session_timeout_seconds=60)
    model = Script(given["steps"])
    async with server:
        agent = Agent(name="script", model=model, mcp_servers=[server])
        await Runner.run(agent, "Do what the script says.", max_turns=len(model.steps) + 2)
    return model.results


print("\n" + json.dumps(asyncio.run(main(json.load(sys.stdin)))))
