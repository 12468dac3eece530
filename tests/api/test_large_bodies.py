"""Expensive bodies: refused unread or with a bounded response, without delaying other callers."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.common import parsing
from controller.documents.document import MAX_VALUES as MAX_OBJECT_VALUES
from controller.kinds.access.access import Caller
from controller.kinds.common.problem import MOST_PROBLEMS
from controller.service import parsing as service_parsing
from controller.service.access.access import acting
from controller.service.errors import BadRequest
from controller.service.parsing import AT_ONCE, MAX_VALUES, MOST_WAITING, SMALL_BYTES, Parsing, loads
from tests.api.listeners import API, client, opened, token
from tests.helpers_api import ApiStack

SANDBOXES = f"{API}/namespaces/default/sandboxes"
HEAD = "apiVersion: paddock/v1alpha1\nkind: Sandbox\nmetadata: {name: a}\nspec:\n"
KEYS = 60_000  # three times what one object may have
MERGE, OPERATIONS = "application/merge-patch+json", "application/json-patch+json"


def unknown_keys(count: int, *, top: bool = False) -> str:
    """A Sandbox with so many fields that there are not."""
    lines = "".join(f"{'' if top else '  '}k{number}: 1\n" for number in range(count))
    return HEAD.replace("spec:\n", "spec: {}\n") + lines if top else HEAD + lines


def applied(text: str) -> dict[str, Any]:
    return {"documents": [{"file": "a.yaml", "text": text}]}


@pytest.mark.parametrize("route", ["apply", "diff"])
def test_reader_is_refused_before_parsing(api: ApiStack, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "loads", None)  # nothing large is read as JSON
    monkeypatch.setattr("controller.service.objects.apply.parse", None)  # and nothing at all as YAML
    with opened(api), client(api, token(api, "viewer")) as viewer:
        large = viewer.post(f"{API}/{route}", json=applied(unknown_keys(KEYS)))
        assert (large.status_code, large.json()["reason"]) == (403, "Forbidden")
        assert "may write nowhere" in large.json()["message"]
        chunks = iter([b'{"documents": ["', *[b"x" * 4096] * 20, b'"]}'])
        kind = {"Content-Type": "application/json"}
        assert viewer.post(f"{API}/{route}", content=chunks, headers=kind).status_code == 403
        for method, path in (("POST", SANDBOXES), ("PUT", f"{SANDBOXES}/a"), ("PATCH", f"{SANDBOXES}/a")):
            answer = viewer.request(method, path, content=b"x" * 100_000, headers=kind)
            assert answer.status_code == 403
    monkeypatch.undo()
    with opened(api), client(api, token(api, "viewer")) as viewer:
        small = viewer.post(f"{API}/{route}", json=applied("not: [yaml"))
        assert (small.status_code, "not YAML" in small.text) == (403, False)
        document = {"verb": "get", "kind": "sandbox", "namespace": "default"}
        assert viewer.post(f"{API}/auth/can-i", json=document).json()["allowed"] is True


BAD = {
    "unknown fields of a spec": unknown_keys(KEYS),
    "fewer unknown fields of a spec": unknown_keys(MAX_OBJECT_VALUES // 4),
    "unknown fields of an object": unknown_keys(MAX_OBJECT_VALUES // 4, top=True),
    "as JSON": json.dumps({"kind": "Sandbox", **{f"k{number}": 1 for number in range(MAX_OBJECT_VALUES // 4)}}),
    "keys given twice": HEAD + "  a: 1\n" * KEYS,
    "keys that are numbers": HEAD + "".join(f"  {number}: 1\n" for number in range(KEYS)),
    "documents of no kind": "---\n".join(["kind: Nothing\n"] * 4_000),
    "documents with faults": "---\n".join([unknown_keys(1)] * 4_000),
    "one long key": HEAD + "  ? " + "x" * (3 << 20) + "\n  : 1\n",
    "one long text, often": HEAD + f"  a: &a {'x' * (1 << 20)}\n  runState: *a\n  restartPolicy: *a\n  priority: *a\n",
    "one long kind, often": f"a: &a {'x' * (1 << 20)}\nkind: *a\napiVersion: *a\n",
}


@pytest.mark.parametrize("name", BAD)
def test_error_response_is_bounded(api: ApiStack, name: str) -> None:
    with opened(api), client(api, token(api, "user")) as user:
        answers = [user.post(f"{API}/{route}", json=applied(BAD[name])) for route in ("apply", "diff")]
        answers.append(user.post(SANDBOXES, content=BAD[name], headers={"Content-Type": "application/yaml"}))
    for answer in answers:
        assert answer.status_code == 422, answer.text[:500]
        assert len(answer.content) < 128 << 10
        assert 1 <= len(answer.json()["details"]["causes"]) <= MOST_PROBLEMS + 1


def test_unlisted_problems_are_counted(api: ApiStack) -> None:
    text = unknown_keys(500)
    with opened(api), client(api) as root:
        document = root.post(f"{API}/apply", json=applied(text)).json()
    assert len(document["details"]["causes"]) == MOST_PROBLEMS + 1
    assert "400 more problems are not listed; fix these first" in document["message"]


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (MERGE, {"spec": {f"k{number}": 1 for number in range(20_000)}}),
        (MERGE, {"metadata": {f"k{number}": 1 for number in range(20_000)}}),
        (MERGE, {"metadata": {"labels": {f"k {number}": "" for number in range(20_000)}}}),
        (MERGE, {f"k{number}": 1 for number in range(20_000)}),
        (OPERATIONS, [{"op": "add", "path": f"/spec/k{number}", "value": 1} for number in range(1000)]),
        (OPERATIONS, [{"op": "add", "path": "/spec/a", "value": {f"k{number}": 1 for number in range(20_000)}}]),
    ],
)
def test_patches_are_as_bounded(api: ApiStack, type_: str, body: Any) -> None:
    api.apply()
    with opened(api), client(api, token(api, "user")) as user:
        answer = user.patch(f"{SANDBOXES}/quickstart", content=json.dumps(body), headers={"Content-Type": type_})
    assert answer.status_code == 422, answer.text[:500]
    assert len(answer.content) < 128 << 10
    assert len(answer.json()["details"]["causes"]) <= MOST_PROBLEMS + 1


@pytest.mark.parametrize("values", ["[],", "1,", '{"a":1},'])
@pytest.mark.parametrize(
    ("method", "path", "type_"),
    [
        ("POST", f"{API}/apply", "application/json"),
        ("POST", f"{SANDBOXES}/quickstart/exec", "application/json"),
        ("PATCH", f"{SANDBOXES}/quickstart", MERGE),
    ],
)
def test_json_of_too_many_values_is_not_read_to_its_end(
    api: ApiStack, method: str, path: str, type_: str, values: str
) -> None:
    api.apply()
    body = '{"documents": [' + values * (MAX_VALUES + 1) + "1]}"
    with opened(api), client(api, token(api, "user")) as user:
        answer = user.request(method, path, content=body, headers={"Content-Type": type_})
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    assert f"more than {MAX_VALUES:,} JSON values" in answer.json()["message"]


def test_a_request_with_many_faults_is_answered_in_bounds(api: ApiStack) -> None:
    api.apply()
    with opened(api), client(api, token(api, "user")) as user:
        for path, body in (
            (f"{API}/apply", {"documents": [{}] * 9_000}),
            (f"{API}/apply", {f"k{number}": 1 for number in range(20_000)}),
            (f"{SANDBOXES}/quickstart/exec", {f"k{number}": 1 for number in range(20_000)}),
        ):
            answer = user.post(path, json=body)
            assert answer.status_code == 400
            assert len(answer.content) < 128 << 10
            assert len(answer.json()["details"]["causes"]) == 101
            assert " more" in answer.json()["message"]


def test_large_json_is_read_as_json_has_it() -> None:
    value = {"a": ["x" * SMALL_BYTES, 1, 2.5, None, True, {"b": [], "c": {}}, 'é"\\\n\U0001f600']}
    assert loads(json.dumps(value).encode()) == value
    for wrong in ("{", "[1,]", '{"a" 1}', "[" + "x" * SMALL_BYTES, '["' + "x" * SMALL_BYTES):
        with pytest.raises(json.JSONDecodeError):
            loads((wrong + " " * SMALL_BYTES).encode())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a",:[]{}\\\\\n é\U0001f600', max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(alphabet='k",[{\\\\', max_size=3), values),
    max_leaves=20,
)


def members_of(text: str) -> int:
    """Return the number of members of all arrays and objects of a JSON text, as json reads it."""
    counts: list[int] = []

    def count(value: Any) -> None:
        if isinstance(value, list | tuple):
            counts.append(len(value))
            for member in value:
                count(member[1] if isinstance(value, tuple) else member)

    count(json.loads(text, object_pairs_hook=tuple))
    return sum(counts)


@given(JSON_VALUES, st.sampled_from(["", " ", "\t\r\n "]), st.booleans())
def test_values_are_counted_as_json_reads_them(value: Any, blanks: str, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(f"{blanks},{blanks}", f"{blanks}:{blanks}"))
    text = f"[{blanks}{text}{blanks}, [{blanks}], {{{blanks}}}]"
    count = members_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_parsing, "SMALL_BYTES", 0)
        patch.setattr(service_parsing, "MAX_VALUES", count)
        assert loads(text) == [value, [], {}]
        patch.setattr(service_parsing, "MAX_VALUES", count - 1)
        with pytest.raises(BadRequest):
            loads(text)


class Held:
    """Work that stays until it may end, and counts how much of it there is at a time."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.most, self._now, self._lock = 0, list[str](), threading.Lock()
        self.twice = False

    def work(self, name: str) -> str:
        with self._lock:
            self.twice |= name in self._now
            self._now.append(name)
            self.most = max(self.most, len(self._now))
        self.begun.release()
        assert self.may_end.wait(60)
        with self._lock:
            self._now.remove(name)
        return name


def test_large_bodies_are_read_a_few_at_a_time_and_one_of_a_caller() -> None:
    reserved, shared = Held(), Parsing()

    async def ask(name: str) -> str:
        with acting(Caller(name, "", ())):
            return await shared.run(SMALL_BYTES + 1, reserved.work, name)

    async def one_listener(names: str) -> list[str]:
        return await asyncio.gather(*map(ask, names))

    with ThreadPoolExecutor(2) as loops:  # each listener has an event loop of its own
        done = [loops.submit(asyncio.run, one_listener(entry)) for entry in ("aabbc", "abbcc")]
        for _ in range(AT_ONCE):
            assert reserved.begun.acquire(timeout=60)
        reserved.may_end.set()
        assert [future.result() for future in done] == [list("aabbc"), list("abbcc")]
    assert (reserved.most, reserved.twice) == (AT_ONCE, False)


@contextmanager
def applying(api: ApiStack, held: Held, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each apply takes as long as it is held."""

    def apply(*_: Any, applied_by: str, **__: Any) -> list[Any]:
        held.work(applied_by)
        return []

    monkeypatch.setattr(api.services.apply, "apply", apply)
    with opened(api):
        yield


def test_large_requests_of_one_delay_no_others(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    api.apply()
    reserved, large = Held(), applied("x" * SMALL_BYTES)

    def post(asked: httpx.Client) -> httpx.Response:
        return asked.post(f"{API}/apply", json=large, headers={"User-Agent": "one"})

    with (
        applying(api, reserved, monkeypatch),
        client(api, token(api, "user")) as first,
        client(api) as second,
        ThreadPoolExecutor(MOST_WAITING + 2) as pool,
    ):
        submits = [pool.submit(post, first) for _ in range(MOST_WAITING + 2)]
        try:
            assert reserved.begun.acquire(timeout=60)
            (future,) = wait(submits, timeout=60, return_when=FIRST_COMPLETED).done
            assert future.result().headers["Retry-After"] == "1"
            assert second.get(f"{SANDBOXES}/quickstart").status_code == 200
            document = {"Content-Type": MERGE}
            patched = second.patch(f"{SANDBOXES}/quickstart", content='{"spec": {"priority": 1}}', headers=document)
            assert patched.status_code == 200
        finally:
            reserved.may_end.set()
        codes = [submit.result().status_code for submit in submits]
    assert sorted(codes) == [200] * (MOST_WAITING + 1) + [429]
    assert (reserved.most, reserved.twice) == (1, False)
