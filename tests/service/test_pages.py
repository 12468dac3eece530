"""Lists in pages: together they are the whole list, whatever changes between two of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind, discover
from controller.service.errors import BadRequest
from controller.service.objects.objects import ObjectPage, Objects
from tests.conftest import HandClock
from tests.contract.store_backends import BACKENDS, Backend, make_backend, new_sandbox

# Bytes, not a language's alphabet, give the order: `Z` is before `a`, `-` before `0`.
NAMES = ("a", "a-0", "a0", "a00", "b", "b-1", "z9", "zz")
SANDBOX = discover().by_name("Sandbox")


@pytest.fixture(params=BACKENDS, scope="module")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with make_backend(request.param, Path(tmp_path_factory.mktemp("pages"))) as created:
        yield created


@pytest.fixture(scope="module")
def stored(backend: Backend) -> Objects:
    store = backend.store()
    with store.transaction() as transaction:
        for at, name in enumerate(NAMES):
            for namespace in ("default", "default-2", "team"):
                transaction.put(new_sandbox(name, namespace, labels={"odd": str(at % 2)}))
    return Objects(store=store, registry=discover(), wake=lambda: None, clock=HandClock(0.0))


def kind() -> Kind:
    assert SANDBOX is not None
    return SANDBOX


def pages(objects: Objects, limit: int, **asked: str | None) -> Iterator[ObjectPage]:
    token = ""
    while True:
        page = objects.page(kind(), asked.get("namespace"), labels=asked.get("labels") or "", limit=limit, token=token)
        yield page
        if not (token := page.continue_token):
            return


@given(
    limit=st.integers(1, 30),
    namespace=st.sampled_from([None, "default", "default-2", "team", "none"]),
    labels=st.sampled_from(["", "odd=1", "odd=2"]),
)
def test_pages_are_the_list(stored: Objects, limit: int, namespace: str | None, labels: str) -> None:
    object_page = stored.list(kind(), namespace, labels=labels)
    read = list(pages(stored, limit, namespace=namespace, labels=labels))
    assert [entry for page in read for entry in page.objects] == list(object_page.objects)
    assert all(len(page.objects) == limit for page in read[:-1])
    assert {page.revision for page in read} == {object_page.revision}
    key = [(entry.namespace, entry.name) for entry in object_page.objects]
    assert key == sorted(key)


def test_the_revision_is_the_first_pages_so_that_a_watch_from_it_misses_nothing(backend: Backend) -> None:
    store = backend.store()
    objects = Objects(store=store, registry=discover(), wake=lambda: None, clock=HandClock(0.0))
    names = [f"w-{index}" for index in range(4)]
    with store.transaction() as transaction:
        answers = [transaction.put(new_sandbox(name, "watched")) for name in names]
    first = objects.page(kind(), "watched", limit=2)
    with store.transaction() as transaction:
        transaction.put(replace(answers[0], labels={"late": "yes"}))  # on the page that was read
        transaction.remove(answers[2])  # on the one that was not
    page = objects.page(kind(), "watched", limit=2, token=first.continue_token)
    assert [entry.name for entry in page.objects] == ["w-3"]
    assert page.revision == first.revision
    expected: dict[str, StoredObject] = {entry.uid: entry for entry in (*first.objects, *page.objects)}
    for change in store.changes(page.revision):
        if change.type == "DELETED":
            expected.pop(change.obj.uid, None)
        else:
            expected[change.obj.uid] = change.obj
    assert expected == {entry.uid: entry for entry in objects.list(kind(), "watched").objects}


@pytest.mark.parametrize("token", ["x", "bnVsbA", "WzIsMSwiYSIsImIiXQ", "[" * 900, "WzEsInguIiwiYSIsImIiXQ"])
def test_a_foreign_token_is_refused_in_words(stored: Objects, token: str) -> None:
    with pytest.raises(BadRequest, match="list again without it"):
        stored.page(kind(), limit=1, token=token)
