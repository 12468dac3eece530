"""Secrets by name for one command: over POST, a WebSocket and detached, as clients ask for them."""

from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.requests import HTTPConnection

from controller.api.streams.exec_websocket import ExecQuery
from controller.kinds.runtime.secret import SecretRef
from controller.service.errors import BadRequest
from paddock._client.command import Secret, as_json, as_query
from tests.api.test_exec_result import BASE, http, run
from tests.helpers_api import ApiStack

__all__ = ["http"]
ENV = {"A": "1", "TOKEN": Secret("token")}


def test_secret_reaches_command_but_not_response(http: httpx.Client, running_api: ApiStack) -> None:
    done = run(http, env=as_json(ENV))
    _, requested = running_api.streams.asked[-1]
    assert requested["env"] == {"A": "1", "TOKEN": "s3cret"}
    assert "s3cret" not in str(done)


@pytest.mark.parametrize("path", ["exec", "execs"])
def test_missing_secret_is_refused(http: httpx.Client, running_api: ApiStack, path: str) -> None:
    before = len(running_api.streams.asked)
    answer = http.post(f"{BASE}/{path}", json={"command": ["a"], "env": {"TOKEN": {"secret": "other"}}})
    assert (answer.status_code, len(running_api.streams.asked)) == (400, before)
    assert "TOKEN: secret default/other: not found" in answer.text


@pytest.mark.parametrize("path", ["exec", "execs"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, 'must be text or {"secret": "NAME"}, not a number; write the value as text'),
        (None, 'must be text or {"secret": "NAME"}, not empty; write the value as text'),
        ("a\0b", "must have no NUL and at most 1 MiB"),
        ({"secret": 5}, 'must be text or {"secret": "NAME"}; a secret has a name, and nothing else'),
        ({"secret": "a", "key": "b"}, 'must be text or {"secret": "NAME"}; a secret has a name, and nothing else'),
    ],
)
def test_a_wrong_variable_has_one_message(http: httpx.Client, path: str, value: Any, message: str) -> None:
    answer = http.post(f"{BASE}/{path}", json={"command": ["a"], "env": {"X": value}})
    assert (answer.status_code, answer.json()["message"]) == (400, f"body.env.X: {message}")


def asked_by(*query: tuple[str, Any]) -> ExecQuery:
    return ExecQuery.of(HTTPConnection({"type": "websocket", "query_string": urlencode(query).encode()}))


def test_a_query_names_them_as_a_body_does() -> None:
    assert asked_by(("command", "a"), *as_query(ENV)).env == {"A": "1", "TOKEN": SecretRef("token")}
    for wrong in ("TOKEN", "=token", "TOKEN="):
        with pytest.raises(BadRequest, match="NAME=SECRET"):
            asked_by(("command", "a"), ("secret", wrong))
