"""Agent stages over the gateway's process, with a scripted provider of each type: turns, tools, errors, crashes."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.gateway.config import Limits
from controller.gateway.models import GatewayModels
from controller.ports import ModelError, ModelMessage, ModelReply, ModelRequest, ToolCall, ToolSpec
from tests.contract.store_backends import make_backend
from tests.daemon import wait_for
from tests.gateway import scripted_model
from tests.gateway.conftest import KEY, GatewayProcess
from tests.loop.runs import RunHarness, workflow

TOOLS = tuple(ToolSpec(name, f"does {name}", {"type": "object", "properties": {}}) for name in ("exec", "file.read"))
FORMS = pytest.mark.parametrize("form", ["OpenAI", "Anthropic", "Any"])
SCRIPT = [
    {"calls": [["exec", {"command": "echo one"}], ["exec", {"command": "echo two"}]]},
    {"calls": [["file_write", {"path": "/workspace/f", "content": "x"}], ["git", {"args": ["push"]}]]},
    {"cut": "and so"},
    {"calls": [["exec", {"command": "echo three"}]]},
    "all is done",
]


@pytest.fixture
def models(gateway: GatewayProcess) -> GatewayModels:
    gateway_models = GatewayModels()
    gateway_models.supervisor = gateway
    return gateway_models


def add(gateway: GatewayProcess, name: str, form: Any, **more: Any) -> None:
    """A source of that form; a model server (`Any`) is reached by a connection that the daemon opens."""
    if form != "Any":
        gateway.target(name, form=form, **more)
    else:
        gateway.answer = lambda _: {"socket": socket.create_connection(("127.0.0.1", gateway.provider)).detach()}
        gateway.target(name, base="", form="Any", models=("*",), **more)
    gateway.configure()


def ask(name: str, model: str, *messages: ModelMessage, script: Any = ("hello",)) -> ModelRequest:
    first = ModelMessage("user", json.dumps(script))
    return ModelRequest("default", name, model, (first, *messages), "be brief", TOOLS, 100, run="r")


def complete(models: GatewayModels, request: ModelRequest, stopped: Callable[[], bool] = lambda: False) -> ModelReply:
    return models.complete(request, seconds=60, stopped=stopped)


@FORMS
def test_conversation_is_translated_both_ways(gateway: GatewayProcess, models: GatewayModels, form: str) -> None:
    add(gateway, f"talk-{form}", form)
    script = [{"calls": [["file_read", {"path": "/a"}], ["rm", {}]]}, "", {"cut": "half"}]
    reply = complete(models, ask(f"talk-{form}", "agent", script=script))
    calls = (ToolCall("", "file.read", {"path": "/a"}), ToolCall("", "rm", {}))
    assert reply == ModelReply("", calls, 5, 4)
    model_message = ModelMessage(
        "assistant", "", (ToolCall("c0", "file.read", {"path": "/a"}), ToolCall("c1", "rm", {}))
    )
    results = [ModelMessage("tool", f"result {at}", call_id=f"c{at}") for at in range(2)]
    reply = complete(models, ask(f"talk-{form}", "agent", model_message, *results, script=[None, *script[1:]]))
    assert reply == ModelReply("", (), 5, 4)
    observed = scripted_model.SEEN[-1]
    assert observed["tools"] == ["exec", "file_read"]
    roles = [message["role"] for message in observed["messages"]]
    tools = ["user"] if form == "Anthropic" else ["tool", "tool"]
    assert roles[-1 - len(tools) :] == ["assistant", *tools]
    assert [entry for entry in ("result 0", "result 1") if entry not in json.dumps(observed["messages"])] == []
    model_messages = (model_message, *results, ModelMessage("assistant", ""), ModelMessage("user", "go on"))
    reply = complete(models, ask(f"talk-{form}", "agent", *model_messages, script=[None, {"cut": "half"}]))
    assert (reply.text, reply.cut) == ("half", True), "an empty answer is not sent again"


@FORMS
def test_key_is_added_and_use_is_counted(gateway: GatewayProcess, models: GatewayModels, form: str) -> None:
    add(gateway, f"key-{form}", form, key=KEY, limits=Limits(tokens_per_day=10))
    for _ in range(2):
        assert complete(models, ask(f"key-{form}", "agent")).text == "hello"
    with pytest.raises(ModelError, match="try again in") as limited:
        complete(models, ask(f"key-{form}", "agent"))
    assert (limited.value.again, limited.value.limited, limited.value.retry_after > 0) == (True, True, True)
    wait_for("its use", lambda: gateway.uses("r").get("limited", 0) >= 1)
    assert KEY in scripted_model.SEEN[-1]["headers"].get("authorization", "") + scripted_model.SEEN[-1]["headers"].get(
        "x-api-key", ""
    )


@pytest.mark.parametrize("form", ["OpenAI", "Anthropic"])
@pytest.mark.parametrize(
    ("model", "again", "limited", "after", "words"),
    [
        ("busy", True, True, 7.0, "answered 429: slow down"),
        ("boom", True, False, 0.0, "answered 500: boom"),
        ("garbage", True, False, 0.0, "sent an answer that is not of the"),
        ("redirect", True, False, 0.0, "redirects"),
    ],
)
def test_errors_say_whether_to_try_again(
    gateway: GatewayProcess,
    models: GatewayModels,
    form: str,
    model: str,
    again: bool,
    limited: bool,
    after: float,
    words: str,
) -> None:
    add(gateway, f"err-{form}", form)
    with pytest.raises(ModelError, match=words) as failed:
        complete(models, ask(f"err-{form}", model))
    assert (failed.value.again, failed.value.limited, failed.value.retry_after) == (again, limited, after)


def test_refused_key_and_unknown_model_are_final(gateway: GatewayProcess, models: GatewayModels) -> None:
    add(gateway, "badkey", "OpenAI", key="wrong", models=("agent",))
    for model, message in (("agent", "refuses the key"), ("other", "does not exist")):
        with pytest.raises(ModelError, match=message) as failed:
            complete(models, ask("badkey", model))
        assert not failed.value.again


def test_bound_has_the_name_that_the_model_takes(gateway: GatewayProcess, models: GatewayModels) -> None:
    add(gateway, "newer", "OpenAI")
    before = len(scripted_model.SEEN)
    for _ in range(2):
        assert complete(models, ask("newer", "newer")).text == "hello"
    assert len(scripted_model.SEEN) == before + 3, "it is refused once"


def test_stopped_stage_leaves_its_provider(gateway: GatewayProcess, models: GatewayModels) -> None:
    add(gateway, "left", "OpenAI")
    stopping = threading.Event()
    failed: list[ModelError] = []

    def work() -> None:
        with pytest.raises(ModelError) as error:
            complete(models, ask("left", "hang"), stopping.is_set)
        failed.append(error.value)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for("the request", lambda: any(document["model"] == "hang" for document in scripted_model.SEEN))
    stopping.set()
    thread.join(60)
    assert str(failed[0]) == "stopped on request"
    wait_for("it is counted", lambda: gateway.uses("r").get("cancelled", 0) >= 1)
    scripted_model.HANGING.set()


class Dying:
    """Models of a daemon that is killed at one request: before it was sent, or once it was answered."""

    def __init__(self, models: GatewayModels, at: int, *, answered: bool) -> None:
        self._models, self._at, self._answered = models, at, answered
        self.count, self.dead = 0, False

    def complete(self, request: ModelRequest, *, seconds: float, stopped: Callable[[], bool]) -> ModelReply:
        self.count += 1
        self.dead = self.dead or (self.count == self._at and not self._answered)
        if self.dead:
            raise SystemExit
        reply = self._models.complete(request, seconds=seconds, stopped=stopped)
        self.dead = self.count == self._at
        if self.dead:
            raise SystemExit
        return reply


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("form", "dialect"),
    [
        *((entry, "sqlite") for entry in ("OpenAI", "Anthropic", "Any")),
        pytest.param("Any", "postgres", marks=pytest.mark.postgres),
    ],
)
def test_crash_at_any_turn_loses_and_repeats_none(
    gateway: GatewayProcess, models: GatewayModels, tmp_path: Path, form: str, dialect: str
) -> None:
    add(gateway, f"crash-{form.lower()}", form)
    stage = {
        "name": "a",
        "agent": {
            "provider": f"crash-{form.lower()}",
            "model": "agent",
            "instructions": json.dumps(SCRIPT),
            "tools": ["exec", "file.write"],
        },
    }
    for at in range(1, len(SCRIPT) + 1):
        for answered in (False, True):
            folder = tmp_path / f"{at}-{answered}"
            folder.mkdir()
            with make_backend(dialect, folder) as store:
                harness = RunHarness(store.store(), folder / "runs", Dying(models, at, answered=answered))
                harness.put("WorkflowRun", "r", workflow=workflow(stage))
                _check_crash(harness, models)
                harness.close()


def _check_crash(harness: RunHarness, models: GatewayModels) -> None:
    dying: Any = harness.models
    harness.hanging = 1
    wait_for("the crash", lambda: harness.tick() or dying.dead)
    harness.hanging = 0
    harness.models = models
    harness.daemon()
    stage = harness.finish().status["stages"][0]
    assert (stage["state"], stage["message"]) == ("Succeeded", "5 turns, 45 tokens"), stage
    assert stage["outputs"] == [{"name": "answer", "value": "all is done"}]
    assert harness.commands() == ["echo one", "echo two", "echo three"]
    lines = harness.services.runs.transcript("default", "r", "a")
    roles = "user assistant tool tool assistant tool tool assistant user assistant tool assistant"
    assert " ".join(line["role"] for line in lines) == roles
    assert lines[6]["text"].startswith("error: `git` is not one of your tools")
