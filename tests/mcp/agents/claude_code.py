"""Claude Code with a model server that is a script: it calls the tools that it is told on standard input.

In: {"url", "headers", "command", "env", "steps": [{"tool", "arguments"}]}. Out, as the last line: [{"tool", "text"}],
the answers as the model was shown them.
"""

import asyncio
import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


class Script:
    """The scripted model: one call after the other, found by the answers that a request brings along."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.steps = steps
        self.results: list[dict[str, Any]] = []
        self.problem = ""

    def say(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return one content block."""
        offered = [tool["name"] for tool in request.get("tools", [])]
        if not any(name.startswith("mcp__") for name in offered):
            return {"type": "text", "text": "done"}  # side requests, as for a title
        blocks = [block for message in request["messages"] for block in _blocks(message["content"])]
        answers = [block for block in blocks if block["type"] == "tool_result"]
        called = zip(self.steps, answers, strict=False)
        self.results = [{"tool": step["tool"], "text": _text(answer)} for step, answer in called]
        if len(answers) >= len(self.steps):
            return {"type": "text", "text": "done"}
        step = self.steps[len(answers)]
        name = "mcp__paddock__" + re.sub(r"[^A-Za-z0-9_-]", "_", step["tool"])
        if name not in offered:
            self.problem = f"{name} is not offered to the model: {offered}"
            return {"type": "text", "text": self.problem}
        return {"type": "tool_use", "id": f"toolu_{len(answers)}", "name": name, "input": step["arguments"]}


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _text(answer: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in _blocks(answer.get("content", "")))


def _events(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of the Messages API's stream that make up one block."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "script", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    if block["type"] == "tool_use":
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def serve(script: Script) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(404, b"{}")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
                self._answer(200, b'{"input_tokens": 1}')
                return
            block = script.say(request)
            events = _events(block)
            if request.get("stream"):
                lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self._answer(200, "".join(lines).encode(), "text/event-stream")
                return
            message = {**events[0]["message"], "content": [block], "stop_reason": events[-2]["delta"]["stop_reason"]}
            self._answer(200, json.dumps(message).encode())

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


async def main(given: dict[str, Any]) -> list[dict[str, Any]]:
    script = Script(given["steps"])
    models = serve(script)
    if given["url"]:
        paddock = {"type": "http", "url": given["url"], "headers": given["headers"]}
    else:
        program, *reported = given["command"]
        paddock = {"type": "stdio", "command": program, "args": reported, "env": given["env"]}
    options = ClaudeAgentOptions(
        mcp_servers={"paddock": paddock},
        allowed_tools=["mcp__paddock"],
        setting_sources=[],
        model="claude-sonnet-4-5",
        max_turns=len(script.steps) + 2,
        cwd=os.environ["HOME"],
        env={
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{models.server_port}",
            "ANTHROPIC_API_KEY": "a-key-of-the-script",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
        stderr=lambda line: print(line, file=sys.stderr),
    )
    async for message in query(prompt="Do what the script says.", options=options):
        print(message, file=sys.stderr)
        if isinstance(message, ResultMessage) and (message.is_error or script.problem):
            raise SystemExit(script.problem or str(message))
    return script.results


print("\n" + json.dumps(asyncio.run(main(json.load(sys.stdin)))))
