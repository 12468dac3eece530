"""An agent of openai-agents in E2B's sandbox, with a scripted model: it runs a command, and reports its output."""

import asyncio
from typing import Any

from agents import RunConfig, Runner
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.run_config import SandboxRunConfig
from agents.sandbox.sandbox_agent import SandboxAgent
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    """Calls the shell, then answers with what the shell said."""

    def __init__(self) -> None:
        self.tools: list[str] = []

    async def get_response(self, *rest: Any, **more: Any) -> ModelResponse:
        history = more.get("input", rest[1] if len(rest) > 1 else "")
        items = [item if isinstance(item, dict) else item.model_dump() for item in history if not isinstance(item, str)]
        outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
        tools = more.get("tools") or rest[3]
        self.tools = [tool.name for tool in tools]
        output: list[Any]
        if not outputs:
            name = next(name for name in self.tools if "exec" in name or "shell" in name)
            arguments = '{"cmd": "echo $((6 * 7)) from $(pwd)"}'
            output = [ResponseFunctionToolCall(type="function_call", call_id="1", name=name, arguments=arguments)]
        else:
            text = ResponseOutputText(type="output_text", text=f"it said: {outputs[-1]}", annotations=[])
            output = [
                ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
            ]
        return ModelResponse(output=output, usage=Usage(), response_id="r")

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    model = Scripted()
    agent = SandboxAgent(name="tester", instructions="Run what you are asked to.", model=model)
    options = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, timeout=120)
    config = RunConfig(sandbox=SandboxRunConfig(client=E2BSandboxClient(), options=options), tracing_disabled=True)
    result = await Runner.run(agent, "What is 6 * 7?", run_config=config)
    print(model.tools)
    print(result.final_output)
    assert "42 from" in str(result.final_output), result.final_output


asyncio.run(main())
