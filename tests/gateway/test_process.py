"""The gateway's process: what passes through it, what it refuses, and what it is made of."""

import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from controller.gateway.config import HOST, Limits, Timeouts
from controller.gateway.process import USER
from tests.daemon import wait_for
from tests.gateway import scripted_model
from tests.gateway.conftest import KEY, Stream, World

pytestmark = pytest.mark.timeout(180)


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [name[6:] for name in body.decode().split("\n") if name.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def reported(world: World, target: str, tokens: int) -> Any:
    """Return the first reported use of a source with so many tokens or more."""
    uses = (message["used"].get(target) for message in list(world.messages) if message["type"] == "uses")
    return next((use for use in uses if use and use["tokens"] >= tokens), None)


def test_a_stream_passes_through_as_it_comes(world: World) -> None:
    world.target("plain")
    world.listen("box", "plain")
    connection = world.connection("box")
    body = json.dumps({"model": "slow", "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer of-the-sandbox"})
    answer = connection.getresponse()
    first = answer.read1()
    headers = scripted_model.SEEN[-1]["headers"]
    remaining = b""
    while read1 := answer.read1():
        assert b"[DONE]" not in first  # it came long before the end
        remaining += read1
    connection.close()
    assert answer.headers["content-type"] == "text/event-stream"
    assert (
        "".join(event["choices"][0]["delta"].get("content", "") for event in events(first + remaining))
        == "One two three."
    )
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["host"] == f"127.0.0.1:{world.provider}"
    wait_for("its use", lambda: world.uses("box").get("out") == 4)
    assert world.uses("box") == {"ok": 1, "in": 5, "out": 4}
    assert world.state("plain") == "Answering"


def test_anthropic_messages_get_their_own_header(world: World) -> None:
    world.target("claude", form="Anthropic", models=("claude-*",))
    world.listen("author", "claude")
    document = {"model": "claude-x", "max_tokens": 5, "messages": [], "stream": True}
    answer = world.post(
        "author", "/v1/messages", document, x_api_key="mine", anthropic_version="2023-06-01", cookie="a=b"
    )
    assert answer.status == 200
    assert b"event: message_stop" in answer.body
    headers = scripted_model.SEEN[-1]["headers"]
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert not {"authorization", "cookie"} & headers.keys()
    wait_for("its use", lambda: world.uses("author").get("out") == 4)
    wrong = world.chat("author", "claude-x")
    assert (wrong.status, "/v1/messages" in wrong.error) == (400, True)


def test_models_are_those_that_are_listed(world: World) -> None:
    world.target("listed", models=("tiny*", "written"))
    world.target("another", models=("other",))
    world.listen("reader", "listed", "another")
    document = world.ask("reader", "GET", "/v1/models").json
    assert [entry["id"] for entry in document["data"]] == ["other", "tiny", "tiny-2", "written"]
    assert world.ask("reader", "GET", "/v1/models/tiny-2").json["owned_by"] == "listed"
    assert world.ask("reader", "GET", "/v1/models/secret").status == 404
    chat = world.chat("reader", "secret")
    assert (chat.status, chat.json["error"]["code"]) == (404, "model_not_found")
    assert world.chat("reader", "listed/tiny").json["model"] == "tiny"
    assert world.chat("reader", "another/tiny").status == 404


def test_models_that_answer_are_named_alone(world: World) -> None:
    world.target("aliased", models=("tiny*", "written"))
    world.listen("asker", "aliased")
    texts = ("tiny", "tiny-alias", "written", "aliased/tiny", "aliased/tiny-alias")
    assert {world.ask("asker", "GET", f"/v1/models/{name}").status for name in texts} == {200}
    assert {world.chat("asker", name).status for name in texts} == {200}
    assert world.ask("asker", "GET", "/v1/models/aliased/tiny").json["id"] == "aliased/tiny"
    assert world.ask("asker", "GET", "/v1/models/tiny-none").status == 404
    assert world.ask("asker", "GET", "/v1/models/other").status == 404


def test_a_provider_is_asked_for_models_within_its_budget(world: World) -> None:
    world.target("bounded", models=("tiny*",), limits=Limits(requests_per_minute=1))
    world.listen("prober", "bounded")
    assert [world.ask("prober", "GET", f"/v1/models/tiny-{name}").status for name in "ab"] == [404, 200]
    assert world.chat("prober", "tiny").status == 429


def test_heads_that_parsers_read_differently_are_refused(world: World) -> None:
    world.target("exact", models=("tiny",))
    world.listen("smuggler", "exact")
    body = b'{"model": "tiny"}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(body)
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for request in (
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        head.replace(b"\r\n", b"\n") + b"\n" + body,
        head + b"X-A: b\r\n c\r\n\r\n" + body,
    ):
        with socket.create_connection(world.sockets["smuggler"].getsockname(), timeout=60) as connection:
            connection.sendall(request + hidden)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.count(b"HTTP/1.1 ") == 1, "what follows is not answered"
        assert "the request was not read" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": "tiny", "model": "secret"}', 400),
        (b'{"model": "tiny", "Model": "secret"}', 400),
        (b'{"a": {"b": 1, "b": 2}, "model": "tiny"}', 400),
        (b"\xff\xfe{\x00}\x00", 400),
        (b"[" * 100_000, 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"model": 7}', 400),
        (b'{"model": ""}', 400),
        (b"", 400),
    ],
)
def test_a_body_with_a_doubtful_model_is_refused(world: World, body: bytes, status: int) -> None:
    if "sender" not in world.users:
        world.target("strict", models=("tiny",))
        world.listen("sender", "strict")
    assert world.post("sender", "/v1/chat/completions", body).status == status


def test_large_and_compressed_bodies_are_refused(world: World) -> None:
    world.target("large")
    world.listen("big", "large")
    connection = world.connection("big")
    connection.putrequest("POST", "/v1/embeddings")
    connection.putheader("Content-Length", str((16 << 20) + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    connection = world.connection("big")
    connection.request("POST", "/v1/embeddings", iter([b"x" * (1 << 20)] * 17), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert world.post("big", "/v1/embeddings", {"model": "tiny"}, content_encoding="gzip").status == 415
    chat = world.chat("big", messages=[{"role": "user", "content": "x" * (1 << 20)}])
    assert chat.status == 200


def test_unknown_routes_and_loops_are_refused(world: World) -> None:
    world.target("routes")
    world.listen("router", "routes")
    assert world.ask("router", "GET", "/").status == 404
    assert world.ask("router", "GET", "/v1/files").status == 404
    assert world.ask("router", "POST", "/v1/../v1/chat/completions", b"{}").status == 404
    assert world.ask("router", "GET", "/v1/chat/completions").status == 405
    assert world.post("router", "/v1/chat/completions", {"model": "x"}, x_paddock_gateway="1").status == 508


def test_a_provider_that_echoes_never_gives_the_key(world: World) -> None:
    world.target("parrot")
    world.listen("curious", "parrot")
    answer = world.chat("curious", "echo")
    assert KEY.encode() not in answer.body
    assert answer.json["headers"]["Authorization"] == "Bearer ***"


def test_failures_of_providers_are_said_in_words(world: World) -> None:
    world.target("wrong-key", key="sk-other-7e")
    world.target("away", base="http://127.0.0.1:9/v1")
    world.target("public", private=False)
    world.target("bouncing", models=("redirect", "boom", "garbage", "gzip"))
    world.target("keyless", broken="SecretMissing; ask the operator")
    world.listen("unlucky", "wrong-key")
    chat = world.chat("unlucky", "wrong-key/tiny")
    assert (chat.status, chat.json["error"]["code"]) == (502, "unauthorized")
    assert b"sk-other" not in chat.body
    assert chat.headers["x-should-retry"] == "false"
    world.users["unlucky"] = ("wrong-key", "away", "public", "bouncing", "keyless")
    world.configure()
    assert world.chat("unlucky", "away/tiny").status == 502
    assert "no public address" in world.chat("unlucky", "public/tiny").error
    assert "redirects" in world.chat("unlucky", "bouncing/redirect").error
    assert world.chat("unlucky", "bouncing/boom").status == 500
    assert "compresses" in world.chat("unlucky", "bouncing/gzip").error
    assert world.chat("unlucky", "bouncing/garbage").body == scripted_model.GARBAGE
    missing = world.chat("unlucky", "keyless/tiny")
    assert (missing.status, "SecretMissing" in missing.error) == (503, True)
    states = {"wrong-key": "Unauthorized", "away": "Unreachable", "public": "NotAllowed"}
    assert {state: wait_for(state, lambda each=state: world.state(each)) for state in states} == states


def test_stalled_and_endless_answers_end(world: World) -> None:
    world.target("stalling", timeouts=Timeouts(first_byte=1, idle=1, total=60), models=("stall",))
    world.target("endless", timeouts=Timeouts(first_byte=5, idle=5, total=2), models=("endless",))
    world.listen("waiter", "stalling", "endless")
    for model in ("stall", "endless"):
        stream = world.stream("waiter", model)
        body, has_ended = stream.rest()
        stream.close()
        assert ("error" in events(body)[-1], has_ended) == (True, False), model
    wait_for("both counted", lambda: world.uses("waiter").get("failed") == 2)
    assert world.uses("waiter")["out"] > 10  # of an answer that was cut, what came is counted


def test_a_user_that_leaves_cancels_the_provider(world: World) -> None:
    world.target("cancelled")
    world.listen("leaver", "cancelled")
    stream = world.stream("leaver", "endless")
    assert stream.part()
    before = scripted_model.GONE.count("endless")
    stream.close()
    wait_for("the provider was told", lambda: scripted_model.GONE.count("endless") > before)
    wait_for("it is counted", lambda: world.uses("leaver").get("cancelled") == 1)


def test_a_request_without_an_answer_counts_its_input(world: World) -> None:
    world.target("unanswered")
    world.listen("impatient", "unanswered")
    scripted_model.HANGING.clear()
    connection = world.connection("impatient")
    before = len(scripted_model.SEEN)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "hang", "user": "x" * 4000}))
    wait_for("the request", lambda: any(document["model"] == "hang" for document in scripted_model.SEEN[before:]))
    connection.close()
    wait_for("it is counted", lambda: world.uses("impatient").get("cancelled") == 1)
    assert world.uses("impatient")["in"] > 1000
    scripted_model.HANGING.set()
    scripted_model.HANGING.clear()


def test_one_of_two_sandboxes_is_revoked(world: World) -> None:
    world.target("shared")
    world.listen("kept", "shared")
    world.listen("revoked", "shared")
    stream, revoked = (world.stream(entry, "endless") for entry in ("kept", "revoked"))
    assert stream.part()
    assert revoked.part()
    world.users["revoked"] = ()
    world.configure()
    assert not revoked.rest()[1]
    assert stream.part()
    assert world.chat("revoked").status == 404
    assert world.chat("kept").status == 200
    for one_stream in (stream, revoked):
        one_stream.close()


def test_budgets_hold_for_all_users_together(world: World) -> None:
    world.target("minute", limits=Limits(requests_per_minute=2))
    world.target("tokens", limits=Limits(tokens_per_day=10))
    world.target("single", limits=Limits(concurrent=1))
    for entry in ("first", "second"):
        world.listen(entry, "minute", "tokens", "single")
    assert [world.chat(single, "minute/tiny").status for single in ("first", "second")] == [200, 200]
    limited = world.chat("first", "minute/tiny")
    assert (limited.status, 1 <= int(limited.headers["retry-after"]) <= 61) == (429, True)
    assert [world.chat("first", "tokens/tiny").status for _ in range(3)] == [200, 200, 429]
    stream = world.stream("first", "single/endless")
    assert stream.part()
    assert world.chat("second", "single/tiny").status == 429
    stream.close()
    wait_for("it is free again", lambda: world.chat("second", "single/tiny").status == 200)


def test_parallel_requests_reserve_their_tokens(world: World) -> None:
    world.target("reserved", limits=Limits(tokens_per_day=100))
    world.listen("busy", "reserved")
    streams = [Stream(world.connection("busy"), {"model": "stall", "max_tokens": 20}) for _ in range(50)]
    statuses = [entry.answer.status for entry in streams]
    refusal = [entry for entry in streams if entry.answer.status == 429]
    assert 2 <= statuses.count(200) <= 5  # their bounds together are within the budget
    assert len(refusal) == 50 - statuses.count(200)
    assert {entry.answer.headers["retry-after"] for entry in refusal} == {"1"}
    for stream in streams:
        stream.close()
    # What they did not use is free again.
    wait_for("an end of all", lambda: world.chat("busy", max_tokens=1).status == 200)


def test_spent_tokens_survive_the_process_and_reservations_do_not(provider: int) -> None:
    world = World(provider)
    world.target("day", limits=Limits(tokens_per_day=1000))
    world.users["box"] = ("day",)
    world.sockets["box"] = socket.create_server(("127.0.0.1", 0))
    world.start({})
    try:
        stream = Stream(world.connection("box"), {"model": "endless", "max_tokens": 900})
        assert world.chat("box", max_tokens=900).status == 429
        usage = wait_for("a report of what runs", lambda: reported(world, "day", 30))
        assert world.child is not None
        os.kill(world.child.pid, signal.SIGKILL)
        world.child.stop()
        stream.close()
        world.start({"day": usage})
        assert world.chat("box", max_tokens=900).status == 200
        spent = wait_for("its use", lambda: reported(world, "day", usage["tokens"] + 1))
        assert spent["tokens"] == usage["tokens"] + 9
    finally:
        world.child.stop()
        world.sockets["box"].close()


def test_a_token_opens_the_listener_on_the_host(world: World) -> None:
    def authorize(asked: dict[str, Any]) -> dict[str, Any]:
        expected = (asked["token"], asked["namespace"]) == ("pdk_right", "default")
        return {"status": 200 if expected else 403, "message": "token ci" if expected else "it needs the role user"}

    world.answer = authorize
    world.target("hosted")
    world.listen(HOST)
    answer = world.post(
        HOST, "/default/v1/chat/completions", {"model": "hosted/tiny"}, Authorization="Bearer pdk_right"
    )
    assert answer.status == 200
    assert world.ask(HOST, "GET", "/default/v1/models").status == 401
    assert world.ask(HOST, "GET", "/other/v1/models", x_api_key="pdk_right").status == 403
    assert world.ask(HOST, "GET", "/v1/models", x_api_key="pdk_right").status == 404
    wait_for("its use", lambda: world.uses("token ci").get("ok") == 1)


def test_a_model_server_is_reached_through_the_daemon(world: World) -> None:
    opened = threading.Event()

    def connect(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["target"] == "smol"
        opened.wait(30)
        return {"socket": socket.create_connection(("127.0.0.1", world.provider)).detach()}

    world.answer = connect
    world.target("smol", base="", form="Any", models=("smol",), renamed="tiny", key=KEY)
    world.listen("local", "smol")
    stream = world.stream("local", "smol")
    assert stream.part().startswith(b": modelserver `smol` is starting")
    opened.set()
    body, has_ended = stream.rest()
    stream.close()
    assert has_ended, body
    assert events(body)[0]["model"] == "tiny"
    wait_for("the daemon hears of the end", lambda: any(message["type"] == "closed" for message in world.messages))
    world.answer = lambda _: {"message": "sandbox `model-smol` is not ready"}
    assert "not ready" in world.chat("local", "smol").error


def test_the_process_has_no_privileges(world: World) -> None:
    assert world.child is not None
    proc = Path(f"/proc/{world.child.pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    if os.geteuid() == 0:
        assert status["Uid"].split() == [str(USER)] * 4
        assert {status[entry] for entry in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {"0" * 16}
        assert (status.get("Groups", "").strip(), status["NoNewPrivs"]) == ("", "1")
    limits = (proc / "limits").read_text()
    assert "Max core file size        0 " in limits
    assert KEY not in (proc / "cmdline").read_text()
    assert KEY.encode() not in (proc / "environ").read_bytes()


def test_a_new_process_goes_on_with_listeners_and_budgets(provider: int) -> None:
    world = World(provider)
    world.target("day", limits=Limits(tokens_per_day=9))
    world.users["box"] = ("day",)
    world.sockets["box"] = socket.create_server(("127.0.0.1", 0))
    world.start({})
    try:
        assert world.chat("box").status == 200
        usage = wait_for("a report of its tokens", lambda: reported(world, "day", 9))
        assert world.child is not None
        os.kill(world.child.pid, signal.SIGKILL)
        world.child.stop()
        connection = world.connection("box")
        connection.request("GET", "/v1/models")  # waits in the listener that is kept
        world.start({"day": usage})
        assert connection.getresponse().status == 200
        connection.close()
        assert world.chat("box").status == 429
    finally:
        world.child.stop()
        world.sockets["box"].close()


def test_idle_connections_of_one_listener_are_bounded(world: World) -> None:
    world.target("crowded")
    world.listen("flood", "crowded")
    world.listen("calm", "crowded")
    connections = [socket.create_connection(world.sockets["flood"].getsockname()) for _ in range(100)]
    wait_for("the rest is cut off", lambda: sum(_is_closed(connection) for connection in connections) >= 36)
    assert world.chat("calm").status == 200
    for entry in connections:
        entry.close()


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
