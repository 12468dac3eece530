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
from tests.gateway.conftest import KEY, GatewayProcess, Stream

pytestmark = pytest.mark.timeout(180)


def events(body: bytes) -> list[dict[str, Any]]:
    lines = [name[6:] for name in body.decode().split("\n") if name.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def reported(gateway: GatewayProcess, target: str, tokens: int) -> Any:
    """Return the first reported use of a source with so many tokens or more."""
    uses = (message["used"].get(target) for message in list(gateway.messages) if message["type"] == "uses")
    return next((use for use in uses if use and use["tokens"] >= tokens), None)


def test_a_stream_passes_through_as_it_comes(gateway: GatewayProcess) -> None:
    gateway.target("plain")
    gateway.listen("box", "plain")
    connection = gateway.connection("box")
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
    assert headers["host"] == f"127.0.0.1:{gateway.provider}"
    wait_for("its use", lambda: gateway.uses("box").get("out") == 4)
    assert gateway.uses("box") == {"ok": 1, "in": 5, "out": 4}
    assert gateway.state("plain") == "Answering"


def test_anthropic_messages_get_their_own_header(gateway: GatewayProcess) -> None:
    gateway.target("claude", form="Anthropic", models=("claude-*",))
    gateway.listen("author", "claude")
    document = {"model": "claude-x", "max_tokens": 5, "messages": [], "stream": True}
    answer = gateway.post(
        "author", "/v1/messages", document, x_api_key="mine", anthropic_version="2023-06-01", cookie="a=b"
    )
    assert answer.status == 200
    assert b"event: message_stop" in answer.body
    headers = scripted_model.SEEN[-1]["headers"]
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert not {"authorization", "cookie"} & headers.keys()
    wait_for("its use", lambda: gateway.uses("author").get("out") == 4)
    wrong = gateway.chat("author", "claude-x")
    assert (wrong.status, "/v1/messages" in wrong.error) == (400, True)


def test_models_are_those_that_are_listed(gateway: GatewayProcess) -> None:
    gateway.target("listed", models=("tiny*", "written"))
    gateway.target("another", models=("other",))
    gateway.listen("reader", "listed", "another")
    document = gateway.ask("reader", "GET", "/v1/models").json
    assert [entry["id"] for entry in document["data"]] == ["other", "tiny", "tiny-2", "written"]
    assert gateway.ask("reader", "GET", "/v1/models/tiny-2").json["owned_by"] == "listed"
    assert gateway.ask("reader", "GET", "/v1/models/secret").status == 404
    chat = gateway.chat("reader", "secret")
    assert (chat.status, chat.json["error"]["code"]) == (404, "model_not_found")
    assert gateway.chat("reader", "listed/tiny").json["model"] == "tiny"
    assert gateway.chat("reader", "another/tiny").status == 404


def test_models_that_answer_are_named_alone(gateway: GatewayProcess) -> None:
    gateway.target("aliased", models=("tiny*", "written"))
    gateway.listen("asker", "aliased")
    texts = ("tiny", "tiny-alias", "written", "aliased/tiny", "aliased/tiny-alias")
    assert {gateway.ask("asker", "GET", f"/v1/models/{name}").status for name in texts} == {200}
    assert {gateway.chat("asker", name).status for name in texts} == {200}
    assert gateway.ask("asker", "GET", "/v1/models/aliased/tiny").json["id"] == "aliased/tiny"
    assert gateway.ask("asker", "GET", "/v1/models/tiny-none").status == 404
    assert gateway.ask("asker", "GET", "/v1/models/other").status == 404


def test_a_provider_is_asked_for_models_within_its_budget(gateway: GatewayProcess) -> None:
    gateway.target("bounded", models=("tiny*",), limits=Limits(requests_per_minute=1))
    gateway.listen("prober", "bounded")
    assert [gateway.ask("prober", "GET", f"/v1/models/tiny-{name}").status for name in "ab"] == [404, 200]
    assert gateway.chat("prober", "tiny").status == 429


def test_heads_that_parsers_read_differently_are_refused(gateway: GatewayProcess) -> None:
    gateway.target("exact", models=("tiny",))
    gateway.listen("smuggler", "exact")
    body = b'{"model": "tiny"}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(body)
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for request in (
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        head.replace(b"\r\n", b"\n") + b"\n" + body,
        head + b"X-A: b\r\n c\r\n\r\n" + body,
    ):
        with socket.create_connection(gateway.sockets["smuggler"].getsockname(), timeout=60) as connection:
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
def test_a_body_with_a_doubtful_model_is_refused(gateway: GatewayProcess, body: bytes, status: int) -> None:
    if "sender" not in gateway.users:
        gateway.target("strict", models=("tiny",))
        gateway.listen("sender", "strict")
    assert gateway.post("sender", "/v1/chat/completions", body).status == status


def test_large_and_compressed_bodies_are_refused(gateway: GatewayProcess) -> None:
    gateway.target("large")
    gateway.listen("big", "large")
    connection = gateway.connection("big")
    connection.putrequest("POST", "/v1/embeddings")
    connection.putheader("Content-Length", str((16 << 20) + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    connection = gateway.connection("big")
    connection.request("POST", "/v1/embeddings", iter([b"x" * (1 << 20)] * 17), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert gateway.post("big", "/v1/embeddings", {"model": "tiny"}, content_encoding="gzip").status == 415
    chat = gateway.chat("big", messages=[{"role": "user", "content": "x" * (1 << 20)}])
    assert chat.status == 200


def test_unknown_routes_and_loops_are_refused(gateway: GatewayProcess) -> None:
    gateway.target("routes")
    gateway.listen("router", "routes")
    assert gateway.ask("router", "GET", "/").status == 404
    assert gateway.ask("router", "GET", "/v1/files").status == 404
    assert gateway.ask("router", "POST", "/v1/../v1/chat/completions", b"{}").status == 404
    assert gateway.ask("router", "GET", "/v1/chat/completions").status == 405
    assert gateway.post("router", "/v1/chat/completions", {"model": "x"}, x_paddock_gateway="1").status == 508


def test_a_provider_that_echoes_never_gives_the_key(gateway: GatewayProcess) -> None:
    gateway.target("parrot")
    gateway.listen("curious", "parrot")
    answer = gateway.chat("curious", "echo")
    assert KEY.encode() not in answer.body
    assert answer.json["headers"]["Authorization"] == "Bearer ***"


def test_failures_of_providers_are_said_in_words(gateway: GatewayProcess) -> None:
    gateway.target("wrong-key", key="sk-other-7e")
    gateway.target("away", base="http://127.0.0.1:9/v1")
    gateway.target("public", private=False)
    gateway.target("bouncing", models=("redirect", "boom", "garbage", "gzip"))
    gateway.target("keyless", broken="SecretMissing; ask the operator")
    gateway.listen("unlucky", "wrong-key")
    chat = gateway.chat("unlucky", "wrong-key/tiny")
    assert (chat.status, chat.json["error"]["code"]) == (502, "unauthorized")
    assert b"sk-other" not in chat.body
    assert chat.headers["x-should-retry"] == "false"
    gateway.users["unlucky"] = ("wrong-key", "away", "public", "bouncing", "keyless")
    gateway.configure()
    assert gateway.chat("unlucky", "away/tiny").status == 502
    assert "no public address" in gateway.chat("unlucky", "public/tiny").error
    assert "redirects" in gateway.chat("unlucky", "bouncing/redirect").error
    assert gateway.chat("unlucky", "bouncing/boom").status == 500
    assert "compresses" in gateway.chat("unlucky", "bouncing/gzip").error
    assert gateway.chat("unlucky", "bouncing/garbage").body == scripted_model.GARBAGE
    missing = gateway.chat("unlucky", "keyless/tiny")
    assert (missing.status, "SecretMissing" in missing.error) == (503, True)
    states = {"wrong-key": "Unauthorized", "away": "Unreachable", "public": "NotAllowed"}
    assert {state: wait_for(state, lambda each=state: gateway.state(each)) for state in states} == states


def test_stalled_and_endless_answers_end(gateway: GatewayProcess) -> None:
    gateway.target("stalling", timeouts=Timeouts(first_byte=1, idle=1, total=60), models=("stall",))
    gateway.target("endless", timeouts=Timeouts(first_byte=5, idle=5, total=2), models=("endless",))
    gateway.listen("waiter", "stalling", "endless")
    for model in ("stall", "endless"):
        stream = gateway.stream("waiter", model)
        body, has_ended = stream.rest()
        stream.close()
        assert ("error" in events(body)[-1], has_ended) == (True, False), model
    wait_for("both counted", lambda: gateway.uses("waiter").get("failed") == 2)
    assert gateway.uses("waiter")["out"] > 10  # of an answer that was cut, what came is counted


def test_a_user_that_leaves_cancels_the_provider(gateway: GatewayProcess) -> None:
    gateway.target("cancelled")
    gateway.listen("leaver", "cancelled")
    stream = gateway.stream("leaver", "endless")
    assert stream.part()
    before = scripted_model.GONE.count("endless")
    stream.close()
    wait_for("the provider was told", lambda: scripted_model.GONE.count("endless") > before)
    wait_for("it is counted", lambda: gateway.uses("leaver").get("cancelled") == 1)


def test_a_request_without_an_answer_counts_its_input(gateway: GatewayProcess) -> None:
    gateway.target("unanswered")
    gateway.listen("impatient", "unanswered")
    scripted_model.HANGING.clear()
    connection = gateway.connection("impatient")
    before = len(scripted_model.SEEN)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "hang", "user": "x" * 4000}))
    wait_for("the request", lambda: any(document["model"] == "hang" for document in scripted_model.SEEN[before:]))
    connection.close()
    wait_for("it is counted", lambda: gateway.uses("impatient").get("cancelled") == 1)
    assert gateway.uses("impatient")["in"] > 1000
    scripted_model.HANGING.set()
    scripted_model.HANGING.clear()


def test_one_of_two_sandboxes_is_revoked(gateway: GatewayProcess) -> None:
    gateway.target("shared")
    gateway.listen("kept", "shared")
    gateway.listen("revoked", "shared")
    stream, revoked = (gateway.stream(entry, "endless") for entry in ("kept", "revoked"))
    assert stream.part()
    assert revoked.part()
    gateway.users["revoked"] = ()
    gateway.configure()
    assert not revoked.rest()[1]
    assert stream.part()
    assert gateway.chat("revoked").status == 404
    assert gateway.chat("kept").status == 200
    for one_stream in (stream, revoked):
        one_stream.close()


def test_budgets_hold_for_all_users_together(gateway: GatewayProcess) -> None:
    gateway.target("minute", limits=Limits(requests_per_minute=2))
    gateway.target("tokens", limits=Limits(tokens_per_day=10))
    gateway.target("single", limits=Limits(concurrent=1))
    for entry in ("first", "second"):
        gateway.listen(entry, "minute", "tokens", "single")
    assert [gateway.chat(single, "minute/tiny").status for single in ("first", "second")] == [200, 200]
    limited = gateway.chat("first", "minute/tiny")
    assert (limited.status, 1 <= int(limited.headers["retry-after"]) <= 61) == (429, True)
    assert [gateway.chat("first", "tokens/tiny").status for _ in range(3)] == [200, 200, 429]
    stream = gateway.stream("first", "single/endless")
    assert stream.part()
    assert gateway.chat("second", "single/tiny").status == 429
    stream.close()
    wait_for("it is free again", lambda: gateway.chat("second", "single/tiny").status == 200)


def test_parallel_requests_reserve_their_tokens(gateway: GatewayProcess) -> None:
    gateway.target("reserved", limits=Limits(tokens_per_day=100))
    gateway.listen("busy", "reserved")
    streams = [Stream(gateway.connection("busy"), {"model": "stall", "max_tokens": 20}) for _ in range(50)]
    statuses = [entry.answer.status for entry in streams]
    refusal = [entry for entry in streams if entry.answer.status == 429]
    assert 2 <= statuses.count(200) <= 5  # their bounds together are within the budget
    assert len(refusal) == 50 - statuses.count(200)
    assert {entry.answer.headers["retry-after"] for entry in refusal} == {"1"}
    for stream in streams:
        stream.close()
    # What they did not use is free again.
    wait_for("an end of all", lambda: gateway.chat("busy", max_tokens=1).status == 200)


def test_spent_tokens_survive_the_process_and_reservations_do_not(provider: int) -> None:
    gateway = GatewayProcess(provider)
    gateway.target("day", limits=Limits(tokens_per_day=1000))
    gateway.users["box"] = ("day",)
    gateway.sockets["box"] = socket.create_server(("127.0.0.1", 0))
    gateway.start({})
    try:
        stream = Stream(gateway.connection("box"), {"model": "endless", "max_tokens": 900})
        assert gateway.chat("box", max_tokens=900).status == 429
        usage = wait_for("a report of what runs", lambda: reported(gateway, "day", 30))
        assert gateway.child is not None
        os.kill(gateway.child.pid, signal.SIGKILL)
        gateway.child.stop()
        stream.close()
        gateway.start({"day": usage})
        assert gateway.chat("box", max_tokens=900).status == 200
        spent = wait_for("its use", lambda: reported(gateway, "day", usage["tokens"] + 1))
        assert spent["tokens"] == usage["tokens"] + 9
    finally:
        gateway.child.stop()
        gateway.sockets["box"].close()


def test_a_token_opens_the_listener_on_the_host(gateway: GatewayProcess) -> None:
    def authorize(asked: dict[str, Any]) -> dict[str, Any]:
        expected = (asked["token"], asked["namespace"]) == ("pdk_right", "default")
        return {"status": 200 if expected else 403, "message": "token ci" if expected else "it needs the role user"}

    gateway.answer = authorize
    gateway.target("hosted")
    gateway.listen(HOST)
    answer = gateway.post(
        HOST, "/default/v1/chat/completions", {"model": "hosted/tiny"}, Authorization="Bearer pdk_right"
    )
    assert answer.status == 200
    assert gateway.ask(HOST, "GET", "/default/v1/models").status == 401
    assert gateway.ask(HOST, "GET", "/other/v1/models", x_api_key="pdk_right").status == 403
    assert gateway.ask(HOST, "GET", "/v1/models", x_api_key="pdk_right").status == 404
    wait_for("its use", lambda: gateway.uses("token ci").get("ok") == 1)


def test_a_model_server_is_reached_through_the_daemon(gateway: GatewayProcess) -> None:
    opened = threading.Event()

    def connect(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["target"] == "smol"
        opened.wait(30)
        return {"socket": socket.create_connection(("127.0.0.1", gateway.provider)).detach()}

    gateway.answer = connect
    gateway.target("smol", base="", form="Any", models=("smol",), renamed="tiny", key=KEY)
    gateway.listen("local", "smol")
    stream = gateway.stream("local", "smol")
    assert stream.part().startswith(b": modelserver `smol` is starting")
    opened.set()
    body, has_ended = stream.rest()
    stream.close()
    assert has_ended, body
    assert events(body)[0]["model"] == "tiny"
    wait_for("the daemon hears of the end", lambda: any(message["type"] == "closed" for message in gateway.messages))
    gateway.answer = lambda _: {"message": "sandbox `model-smol` is not ready"}
    assert "not ready" in gateway.chat("local", "smol").error


def test_the_process_has_no_privileges(gateway: GatewayProcess) -> None:
    assert gateway.child is not None
    proc = Path(f"/proc/{gateway.child.pid}")
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
    gateway = GatewayProcess(provider)
    gateway.target("day", limits=Limits(tokens_per_day=9))
    gateway.users["box"] = ("day",)
    gateway.sockets["box"] = socket.create_server(("127.0.0.1", 0))
    gateway.start({})
    try:
        assert gateway.chat("box").status == 200
        usage = wait_for("a report of its tokens", lambda: reported(gateway, "day", 9))
        assert gateway.child is not None
        os.kill(gateway.child.pid, signal.SIGKILL)
        gateway.child.stop()
        connection = gateway.connection("box")
        connection.request("GET", "/v1/models")  # waits in the listener that is kept
        gateway.start({"day": usage})
        assert connection.getresponse().status == 200
        connection.close()
        assert gateway.chat("box").status == 429
    finally:
        gateway.child.stop()
        gateway.sockets["box"].close()


def test_idle_connections_of_one_listener_are_bounded(gateway: GatewayProcess) -> None:
    gateway.target("crowded")
    gateway.listen("flood", "crowded")
    gateway.listen("calm", "crowded")
    connections = [socket.create_connection(gateway.sockets["flood"].getsockname()) for _ in range(100)]
    wait_for("the rest is cut off", lambda: sum(_is_closed(connection) for connection in connections) >= 36)
    assert gateway.chat("calm").status == 200
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
