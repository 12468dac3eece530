"""A scripted model API in both forms, of the standard library alone: a provider on the host, or a model server.

    python3 scripted_model.py PORT [KEY]

With a key it answers 401 to others. The model's name says what it does: `slow` pauses between events, `stall` stops
after one, `endless` never ends, `ticking` sends 50 a second for 5 s, `garbage` sends bytes, `redirect`, `echo` (headers
and body come back), `boom` (500), `busy` (429), `hang` (until `HANGING` is set),
`newer` (takes no `max_tokens`, then is as `agent`).

`agent` answers by a script, a JSON list in its first message: the answer to a conversation with N answers is the one at
N. A text is a final answer, `{"calls": [[TOOL, ARGUMENTS], ...]}` calls tools, `{"cut": TEXT}` is cut off.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["One", " two", " three", "."]
KEY = ""
# It begins as JSON in UTF-16 would: the process, which can read no file any more, has no codec for that.
GARBAGE = bytes(range(256)) * 16
GONE: list[str] = []
HANGING = threading.Event()
SEEN: list[dict[str, Any]] = []


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None: ...

    def _refused(self) -> bool:
        x_api_key = self.headers.get("x-api-key") or (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if not KEY or x_api_key == KEY:
            return False
        self._json(401, {"error": {"message": f"Incorrect API key provided: {x_api_key}"}})
        return True

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self.path == "/seen":
            self._json(200, {"seen": SEEN, "gone": GONE})
        elif not self._refused():
            names = ["tiny", "tiny-2", "other"]
            if (model := self.path.partition("/models/")[2]) and model not in (*names, "tiny-alias"):
                self._json(404, {"error": {"message": "no such model"}})
                return
            self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._refused():
            return
        document = json.loads(body)
        model = document["model"]
        SEEN.append({"path": self.path, "model": model, "headers": {k.lower(): v for k, v in self.headers.items()}})
        if model == "redirect":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif model == "hang":
            HANGING.wait(600)
            self.close_connection = True
        elif model == "busy":
            self._json(429, {"error": {"message": "slow down"}}, {"Retry-After": "7"})
        elif model == "newer" and "max_tokens" in document:
            error = {"message": "Unsupported parameter", "param": "max_tokens", "code": "unsupported_parameter"}
            self._json(400, {"error": error})
        elif model in ("agent", "newer"):
            self._json(200, (_agent_messages if self.path.endswith("/messages") else _agent_chat)(document))
        elif model == "boom":
            self._json(500, {"error": {"message": "boom"}})
        elif model == "echo":
            self._json(200, {"headers": dict(self.headers), "body": document, "usage": {"total_tokens": 3}})
        elif model == "gzip":
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif model == "garbage":
            self._start("application/octet-stream")
            self._part(GARBAGE)
            self._part(b"")
        elif document.get("stream"):
            self._stream(model, self.path)
        else:
            self._whole(self.path, model)

    def _whole(self, path: str, model: str) -> None:
        text = "".join(WORDS)
        if path.endswith("/messages"):
            usage = {"input_tokens": 5, "output_tokens": 4}
            content = [{"type": "text", "text": text}]
            document = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content}
            self._json(200, {**document, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage})
            return
        usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        created = {"id": "c1", "object": "chat.completion", "created": 1, "model": model}
        self._json(200, {**created, "choices": [choice], "usage": usage})

    def _stream(self, model: str, path: str) -> None:
        self._start("text/event-stream")
        start = time.monotonic()
        try:
            for event in _of_messages(model) if path.endswith("/messages") else _of_chat(model):
                self._part(event)
                if model == "stall":
                    time.sleep(600)
                time.sleep(0.3 if model == "slow" else 0.0)
            for at in range(250 if model == "ticking" else 0):
                time.sleep(max(0.0, start + at * 0.02 - time.monotonic()))
                self._part(b'data: {"choices": [{"delta": {"content": "tick"}}]}\n\n')
            while model == "endless":
                self._part(b'data: {"choices": []}\n\n')
                time.sleep(0.02)
            self._part(b"")
        except OSError:
            GONE.append(model)

    def _start(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _part(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _scripted(asked: dict[str, Any]) -> Any:
    first = next(message for message in asked["messages"] if message["role"] == "user")["content"]
    text = first if isinstance(first, str) else first[0]["text"]
    answers = sum(message["role"] == "assistant" for message in asked["messages"])
    SEEN[-1]["messages"] = asked["messages"]
    SEEN[-1]["tools"] = [tool.get("name") or tool["function"]["name"] for tool in asked.get("tools", ())]
    return json.loads(text)[answers]


def _agent_messages(asked: dict[str, Any]) -> dict[str, Any]:
    scripted = _scripted(asked)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": scripted}] if isinstance(scripted, str) else []
    why = "end_turn"
    if isinstance(scripted, dict):
        why = "max_tokens" if "cut" in scripted else "tool_use"
        blocks = [{"type": "text", "text": scripted["cut"]}] if "cut" in scripted else []
        for at, (name, arguments) in enumerate(scripted.get("calls", ())):
            blocks.append({"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": arguments})
    document = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": blocks}
    usage = {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 4}
    return {**document, "stop_reason": why, "stop_sequence": None, "usage": usage}


def _agent_chat(asked: dict[str, Any]) -> dict[str, Any]:
    scripted = _scripted(asked)
    message: dict[str, Any] = {"role": "assistant", "content": scripted if isinstance(scripted, str) else None}
    why = "stop"
    if isinstance(scripted, dict) and "cut" in scripted:
        message["content"], why = scripted["cut"], "length"
    elif isinstance(scripted, dict):
        why = "tool_calls"
        message["tool_calls"] = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(scripted["calls"])
        ]
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    choice = {"index": 0, "message": message, "finish_reason": why}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": [choice],
            "usage": usage}  # fmt: skip


def _of_chat(model: str) -> list[bytes]:
    document = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}
    events = [
        {**document, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in WORDS
    ]
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    end = {**document, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    return [b"data: " + json.dumps(entry).encode() + b"\n\n" for entry in (*events, end)] + [b"data: [DONE]\n\n"]


def _of_messages(model: str) -> list[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 5, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS
    ]
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


if __name__ == "__main__":
    KEY = sys.argv[2] if len(sys.argv) > 2 else ""
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
