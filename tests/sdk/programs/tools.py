"""The tools of one sandbox, called as each framework calls those of a model."""

import asyncio
import json
import sys
from typing import Any

from paddock import Paddock, Sandbox

CALLS: list[tuple[str, dict[str, str], str]] = [
    ("write_file", {"path": "/tmp/a.txt", "content": "six"}, "wrote 3 characters to /tmp/a.txt"),
    ("read_file", {"path": "/tmp/a.txt"}, "six"),
    ("run_python", {"code": "print(6 * 7)"}, "exit code 0\nstdout:\n42\n"),
    ("run_command", {"command": "echo no >&2; exit 3"}, "exit code 3\nstderr:\nno\n"),
    ("read_file", {"path": "/tmp/none"}, "error: "),
    ("list_files", {"path": "/tmp"}, "a.txt"),
]


def of_langchain(sandbox: Sandbox) -> list[str]:
    from paddock.langchain import sandbox_tools

    tools = {sandbox_tool.name: sandbox_tool for sandbox_tool in sandbox_tools(sandbox)}
    assert tools["run_command"].args["command"]["description"].startswith("The line")
    return [str(tools[name].invoke(arguments)) for name, arguments, _ in CALLS]


def of_openai_agents(sandbox: Sandbox) -> list[str]:
    from agents import Agent, ModelResponse, Runner, Usage
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from paddock.openai_agents import sandbox_tools

    messages: list[str] = []

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
            last = input[-1] if isinstance(input, list) else {}
            if last.get("type") == "function_call_output":
                messages.append(str(last["output"]))
            if len(messages) < len(CALLS):
                name, arguments, _ = CALLS[len(messages)]
                call = ResponseFunctionToolCall(
                    type="function_call", call_id=f"c{len(messages)}", name=name, arguments=json.dumps(arguments)
                )
                return ModelResponse(output=[call], usage=Usage(), response_id=None)
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="coder", tools=sandbox_tools(sandbox), model=Scripted())
    assert asyncio.run(Runner.run(agent, "Do what the script says.", max_turns=20)).final_output == "done"
    return messages


def of_pydantic_ai(sandbox: Sandbox) -> list[str]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from paddock.pydantic_ai import sandbox_tools

    reported: list[str] = []

    def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        reported.extend(entry.model_response_str() for entry in messages[-1].parts if isinstance(entry, ToolReturnPart))
        if len(reported) == len(CALLS):
            return ModelResponse([TextPart("done")])
        name, arguments, _ = CALLS[len(reported)]
        return ModelResponse([ToolCallPart(name, arguments)])

    assert Agent(FunctionModel(model), tools=sandbox_tools(sandbox)).run_sync("Do it.").output == "done"
    return reported


with Paddock() as paddock, paddock.sandboxes.create() as sandbox:
    answers = globals()[f"of_{sys.argv[1]}"](sandbox)
for (name, _, expected), answer in zip(CALLS, answers, strict=True):
    assert expected in answer, (name, answer)
