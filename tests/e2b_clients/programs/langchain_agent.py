"""A deep agent of LangChain whose backend is E2B's sandbox, with a scripted model: it writes a file and runs it."""

from typing import Any

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_e2b import E2BSandbox

CALLS: list[dict[str, Any]] = [
    {"name": "write_file", "args": {"file_path": "/home/user/sum.sh", "content": "echo $((6 * 7))\n"}, "id": "1"},
    {"name": "execute", "args": {"command": "bash /home/user/sum.sh"}, "id": "2"},
    {"name": "read_file", "args": {"file_path": "/home/user/sum.sh"}, "id": "3"},
]


class Scripted(BaseChatModel):
    """Calls these tools, one after the other, then answers with their results."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        if len(results) < len(CALLS):
            message = AIMessage("", tool_calls=[CALLS[len(results)]])
        else:
            message = AIMessage(" | ".join(str(result.content) for result in results))
        return ChatResult(generations=[ChatGeneration(message=message)])


sandbox = Sandbox.create(timeout=120)
agent = create_deep_agent(model=Scripted(), backend=E2BSandbox(sandbox=sandbox))
state = agent.invoke({"messages": [{"role": "user", "content": "What is 6 * 7?"}]})
answer = str(state["messages"][-1].content)
print(answer)
assert "42" in answer, answer
assert "echo" in answer, answer
sandbox.kill()
