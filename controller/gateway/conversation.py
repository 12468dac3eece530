"""Conversations of agent stages in the two forms of API: a request as JSON, and the answer read from it.

Tools have dots in their names here, and underscores there: neither API takes a dot.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from controller.gateway.usage import UsageReader
from controller.ports import ModelError, ModelMessage, ModelReply, ModelRequest, ToolCall

Form = Literal["OpenAI", "Anthropic"]
ROUTES: Mapping[Form, str] = {"OpenAI": "/chat/completions", "Anthropic": "/messages"}
_MOST_LETTERS = 500
_CUT = ("length", "max_tokens")
_REFUSED = ("content_filter", "refusal")


def request_body(request: ModelRequest, form: Form, *, newer_bound: bool = False) -> dict[str, Any]:
    """Return the request in that form. `newer_bound`: with the name of the bound that OpenAI's newer models want."""
    if form == "Anthropic":
        return {
            "model": request.model,
            "max_tokens": request.max_tokens,
            **({"system": request.system} if request.system else {}),
            "messages": _anthropic_messages(request.messages),
            **_present("tools", [_anthropic_tool(tool) for tool in request.tools]),
        }
    system = [{"role": "system", "content": request.system}] if request.system else []
    return {
        "model": request.model,
        "max_completion_tokens" if newer_bound else "max_tokens": request.max_tokens,
        "messages": [*system, *(entry for message in request.messages for entry in _openai_message(message))],
        **_present("tools", [_openai_tool(tool) for tool in request.tools]),
    }


def reply_of(request: ModelRequest, form: Form, sent: bytes, body: bytes) -> ModelReply:
    """Return the answer. Raises ModelError for one that is in no such form, and for a refusal of the model."""
    meter = UsageReader("application/json", len(sent))
    meter.feed(body)
    prompt, completion = meter.tokens()
    try:
        answer = json.loads(body)
        text, calls, stop_reason = (_of_messages if form == "Anthropic" else _of_chat)(answer, _names(request))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = f"`{request.provider}` sent an answer that is not of the {form} API; check the type and url of it"
        raise ModelError(problem, again=True) from error
    if stop_reason in _REFUSED:
        raise ModelError(f"the model `{request.model}` refuses to answer: {text[:_MOST_LETTERS] or stop_reason}")
    cut = stop_reason in _CUT
    # The calls of an answer that was cut off may be half of what the model meant.
    return ModelReply(text, () if cut else calls, prompt, completion, cut=cut)


def error_of(status: int, body: bytes) -> str:
    """Return the words of an error's answer."""
    try:
        answer = json.loads(body)
        error = answer.get("error", answer)
        message = error if isinstance(error, str) else error.get("message") or error.get("detail")
    except (ValueError, AttributeError, RecursionError):
        message = None
    return f"{status}: {message[:_MOST_LETTERS]}" if isinstance(message, str) and message else str(status)


def wants_newer_bound(body: bytes) -> bool:
    """Return True if an error says that the model takes no `max_tokens`."""
    try:
        error = json.loads(body)["error"]
        return bool((error["param"], error["code"]) == ("max_tokens", "unsupported_parameter"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _present(name: str, items: list[Any]) -> dict[str, Any]:
    return {name: items} if items else {}


def _outer(name: str) -> str:
    return name.replace(".", "_")


def _names(request: ModelRequest) -> dict[str, str]:
    """Return our names of the request's tools by those that the model knows."""
    return {_outer(tool.name): tool.name for tool in request.tools}


def _openai_tool(tool: Any) -> dict[str, Any]:
    function = {"name": _outer(tool.name), "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _anthropic_tool(tool: Any) -> dict[str, Any]:
    return {"name": _outer(tool.name), "description": tool.description, "input_schema": tool.schema}


def _openai_message(message: ModelMessage) -> list[dict[str, Any]]:
    """Return a message as none or one: an empty answer is left out, as some servers refuse it."""
    if message.role == "tool":
        return [{"role": "tool", "tool_call_id": message.call_id, "content": message.text}]
    if message.role == "user":
        return [{"role": "user", "content": message.text}]
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": _outer(call.name), "arguments": json.dumps(dict(call.arguments))},
        }
        for call in message.calls
    ]
    if not calls and not message.text:
        return []
    return [{"role": "assistant", "content": message.text or None, **_present("tool_calls", calls)}]


def _anthropic_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return the messages by turns: all results of one answer's calls belong into the one message after it."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns:  # what was said so far is cached: each turn sends it again
        turns[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return turns


def _blocks(message: ModelMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": _outer(call.name), "input": dict(call.arguments)}
        for call in message.calls
    ]
    return [*text, *calls]


def _of_chat(answer: Any, names: Mapping[str, str]) -> tuple[str, tuple[ToolCall, ...], str]:
    choice = answer["choices"][0]
    message = choice["message"]
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(block.get("text") or "" for block in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    refusal = message.get("refusal")
    return (
        _text(refusal or content or ""),
        tuple(_call(call["name"], call.get("arguments"), names) for call in calls),
        "refusal" if refusal else str(choice.get("finish_reason")),
    )


def _of_messages(answer: Any, names: Mapping[str, str]) -> tuple[str, tuple[ToolCall, ...], str]:
    blocks = answer["content"]
    text = "".join(_text(block["text"]) for block in blocks if block["type"] == "text")
    calls = tuple(_call(block["name"], block["input"], names) for block in blocks if block["type"] == "tool_use")
    return text, calls, str(answer.get("stop_reason"))


def _call(name: Any, arguments: Any, names: Mapping[str, str]) -> ToolCall:
    """Return a call. Arguments that are no object become none: the tool says to the model what it misses."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = {}
    tool_name = names.get(_text(name), _text(name))
    return ToolCall("", tool_name, arguments if isinstance(arguments, dict) else {})


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError("no text")
    return text
