"""A code agent of smolagents whose code runs in E2B's sandbox, with a scripted model."""

from typing import Any

from smolagents import CodeAgent
from smolagents.models import ChatMessage, MessageRole, Model

STEPS = [
    "Thought: compute.\n<code>\nx = 6 * 7\nprint('x is', x)\n</code>",
    "Thought: done.\n<code>\nfinal_answer(x)\n</code>",
]


class Scripted(Model):
    """Writes these steps, one after the other."""

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        total = sum(message.role == MessageRole.ASSISTANT for message in messages)
        return ChatMessage(role=MessageRole.ASSISTANT, content=STEPS[min(total, len(STEPS) - 1)])


with CodeAgent(tools=[], model=Scripted(), executor_type="e2b", max_steps=4) as agent:
    answer = agent.run("What is 6 * 7?")
    print(answer)
    assert answer == 42, answer
