"""Requests to the gateway: their bodies, the model that each names, and the errors in the form of both APIs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from controller.gateway.config import Form, Target, choose

MOST_BYTES = 16 << 20
_MOST_HELD_BYTES = 64 << 20
_BODY_SECONDS = 60.0
_MOST_MODEL_LETTERS = 256
_LARGE_BYTES = 128 << 10  # larger bodies are parsed in a thread
LOOP_HEADER = b"x-paddock-gateway"
_BYTES_A_TOKEN = 4
_UNBOUND_TOKENS = 4096
# Fields that bound an answer: those of other routes may be ignored by the source.
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}
FREE_ROUTES = ("/messages/count_tokens",)
"""Routes whose requests use no tokens."""

# Routes below /v1, and the form of API that each belongs to.
ROUTES: Mapping[str, Form] = {
    "/chat/completions": "OpenAI",
    "/completions": "OpenAI",
    "/embeddings": "OpenAI",
    "/responses": "OpenAI",
    "/messages": "Anthropic",
    "/messages/count_tokens": "Anthropic",
}
# Headers that a source gets from its user; all others, and every key, stay here.
_PASSED = (b"accept", b"user-agent", b"anthropic-version", b"anthropic-beta", b"openai-beta", b"idempotency-key")
# Headers that a user gets from its source.
_RETURNED = (b"content-type", b"retry-after", b"request-id", b"x-request-id", b"x-should-retry")
_RETURNED_PREFIXES = (b"anthropic-ratelimit-", b"x-ratelimit-", b"openai-processing-")
_LASTING = ("unauthorized", "notallowed")  # trying again does not help
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Refused(Exception):
    """A request that is answered by the gateway itself."""

    def __init__(self, status: int, message: str, *, code: str = "", retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer. Clients try again by themselves where that helps."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        elif self.code in _LASTING:
            headers.append((b"x-should-retry", b"false"))
        return headers

    def body(self) -> bytes:
        """Return the error in the form of both APIs."""
        return json.dumps(error_of(self.status, str(self), self.code)).encode()


def error_of(status: int, message: str, code: str = "") -> dict[str, Any]:
    """Return an error in the form of both APIs."""
    kind = _TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, "code": code or kind, "param": None}}


def error_event(form: Form, message: str) -> bytes:
    """Return an error as an event of a stream that has begun."""
    head = b"event: error\n" if form == "Anthropic" else b""
    return head + b"data: " + json.dumps(error_of(502, message)).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a model: its body as it is passed on, and whether its answer is to be streamed."""

    body: bytes
    model: str
    is_stream: bool


class Bodies:
    """Reads bodies; all together hold a bounded number of bytes."""

    def __init__(self) -> None:
        self.held = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Return the whole body; `release` its length afterwards. Raises Refused."""
        length = headers.get(b"content-length", b"")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused(415, "a compressed body is not read; send it as it is")
        if length.isdigit() and int(length) > MOST_BYTES:
            raise Refused(413, f"a body has at most {MOST_BYTES} bytes; send less")
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refused(400, "the request was not complete")
                    chunk = message.get("body", b"")
                    size, self.held = size + len(chunk), self.held + len(chunk)
                    parts.append(chunk)
                    if size > MOST_BYTES:
                        raise Refused(413, f"a body has at most {MOST_BYTES} bytes; send less")
                    if self.held > _MOST_HELD_BYTES:
                        raise Refused(503, "too many large requests at a time; try again", retry_after=1)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            self.held -= size
            raise Refused(408, "the request was not complete in time; send it again, without pauses") from error
        except BaseException:
            self.held -= size
            raise

    def release(self, size: int) -> None:
        """Free the bytes of a body that was read."""
        self.held -= size


async def parse_request(body: bytes) -> dict[str, Any]:
    """Return the body's JSON object. Raises Refused; also if two readers of it could find different models."""
    try:
        text = body.decode()
        request = _loads(text) if len(body) <= _LARGE_BYTES else await asyncio.to_thread(_loads, text)
    except (ValueError, RecursionError) as error:
        raise Refused(
            400, "the body is no JSON that can be read without doubt; send one JSON object in UTF-8"
        ) from error
    model = request.get("model") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(model, str) or not 0 < len(model) <= _MOST_MODEL_LETTERS:
        raise Refused(400, "the body names no model; send a JSON object with `model`")
    if sum(key.lower() == "model" for key in request) > 1:
        raise Refused(400, "the body names the model twice; send one")
    return request


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key twice")
    return fields


def resolve(targets: Sequence[Target], route: str, model: str) -> tuple[Target, str]:
    """Return the source for this route and model, and the model's name there. Raises Refused."""
    form = ROUTES[route]
    usable = [target for target in targets if target.form in (form, "Any")]
    choice = choose(usable, model)
    if choice is not None:
        if choice[0].broken:
            raise Refused(503, f"{choice[0].subject} can't be used: {choice[0].broken}", code="provider_not_ready")
        return choice
    if (unsuited := choose(targets, model)) is not None:
        routes = ", ".join(f"/v1{path}" for path, served_form in ROUTES.items() if served_form == unsuited[0].form)
        raise Refused(400, f"the model `{model}` is not served at /v1{route}; use {routes}")
    raise Refused(404, no_such_model(model), code="model_not_found")


def no_such_model(model: str) -> str:
    """Return the message for a model that no source serves."""
    return f"the model `{model[:200]}` does not exist or you may not use it; see /v1/models"


def tokens_needed(route: str, request: Mapping[str, Any], size: int) -> int:
    """Return the tokens that a request may use: of its body of this size, and the bound that it sets to its answer.

    An answer without a bound is taken for one of usual length.
    """
    if route in FREE_ROUTES:
        return 0
    tokens_in = size // _BYTES_A_TOKEN
    if route == "/embeddings":
        return tokens_in
    bounds = [bound for field in _BOUNDS[route] if (bound := _count(request.get(field)))]
    answers = max(_count(request.get("n")), _count(request.get("best_of")), 1)
    return tokens_in + max(bounds, default=_UNBOUND_TOKENS) * answers * _prompts(route, request.get("prompt"))


def _prompts(route: str, prompt: Any) -> int:
    """Return the number of prompts, each of which is answered: texts, or lists of tokens."""
    several = (
        route == "/completions" and isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt)
    )
    return len(prompt) if several else 1


def _count(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else 0


def request_headers(headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers that the source gets."""
    passed_headers = [(name, headers[name]) for name in _PASSED if name in headers]
    fixed_headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity"), (LOOP_HEADER, b"1")]
    return [*passed_headers, *fixed_headers]


def answer_headers(headers: Sequence[tuple[bytes, bytes]], is_secret: Any) -> list[tuple[bytes, bytes]]:
    """Return the headers that the user gets; none of them holds the key."""
    lower = [(name.lower(), value) for name, value in headers]
    return [
        (name, value)
        for name, value in lower
        if (name in _RETURNED or name.startswith(_RETURNED_PREFIXES)) and not is_secret(value)
    ]
