"""Get, list, delete, events, tables, logs and exec."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.kinds.common.chunk import Chunk
from controller.kinds.observed.observed import Observation, State
from controller.kinds.registry import Kind, discover
from controller.kinds.runtime.files import FileRequest
from controller.ports import NotNow, StreamError
from controller.service import errors
from controller.service.listing import serialize
from controller.service.listing.table import table
from tests.helpers_api import QUICKSTART, ApiStack


@pytest.fixture
def kind() -> Kind:
    name = discover().by_name("Sandbox")
    assert name is not None
    return name


def _named(name: str, label: str = "demo") -> str:
    return QUICKSTART.replace("quickstart", name).replace("app: demo", f"app: {label}")


def test_get_returns_the_object_or_not_found(api: ApiStack, kind: Kind) -> None:
    api.apply()
    assert api.services.objects.get(kind, "default", "quickstart").name == "quickstart"
    with pytest.raises(errors.NotFound, match="sandboxes `nope` not found in namespace `team`"):
        api.services.objects.get(kind, "team", "nope")


def test_list_is_by_namespace_and_label(api: ApiStack, kind: Kind) -> None:
    api.apply("---\n".join([_named("b"), _named("a", "web")]))
    api.apply(_named("c"), namespace="team")
    object_page = api.services.objects.list(kind)
    assert [stored.name for stored in object_page.objects] == ["a", "b", "c"]
    assert object_page.revision == api.store.revision()
    assert [stored.name for stored in api.services.objects.list(kind, "team").objects] == ["c"]
    assert [stored.name for stored in api.services.objects.list(kind, "default", labels="app=web").objects] == ["a"]


def test_delete_marks_an_object_with_finalizers_once(api: ApiStack, kind: Kind) -> None:
    api.apply()
    first = api.services.objects.delete(kind, "default", "quickstart")
    assert first.deleted_at == api.clock.now()
    assert first.generation == 1
    api.clock.advance(10)
    again = api.services.objects.delete(kind, "default", "quickstart")
    assert (again.deleted_at, again.resource_version) == (first.deleted_at, first.resource_version)
    assert api.sandbox().deleted_at == first.deleted_at
    assert len(api.woken) == 3


def test_delete_removes_an_object_that_nothing_holds(api: ApiStack, kind: Kind) -> None:
    api.apply()
    api.change(finalizers=())
    api.services.objects.delete(kind, "default", "quickstart")
    assert api.store.get("Sandbox", "default", "quickstart") is None
    with pytest.raises(errors.NotFound):
        api.services.objects.delete(kind, "default", "quickstart")


def test_delete_all_takes_those_that_the_selector_matches(api: ApiStack, kind: Kind) -> None:
    api.apply("---\n".join([_named("a"), _named("b", "web"), _named("c", "web")]))
    objects = api.services.objects.delete_all(kind, "default", labels="app=web")
    assert [stored.name for stored in objects] == ["b", "c"]
    assert api.sandbox("a").deleted_at is None


def test_a_table_has_the_kinds_columns_and_marks_the_wide_ones(api: ApiStack, kind: Kind) -> None:
    api.apply()
    api.set_ready()
    document = table(kind, [api.sandbox()], api.clock.now() + 300)
    titles = [column_definition["name"] for column_definition in document["columnDefinitions"]]
    assert titles[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert {
        column_definition["name"]: column_definition["priority"] for column_definition in document["columnDefinitions"]
    }["IMAGE"] == 1
    assert document["rows"][0]["cells"][:4] == ["quickstart", "True", "Running", "2"]
    assert "5m" in document["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [("Unknown", "EngineUnreachable"), ("False", "EngineError"), ("False", "Creating"), ("True", "Running")],
)
def test_engine_trouble_is_unavailable_to_every_verb(api: ApiStack, kind: Kind, status: Any, reason: str) -> None:
    api.apply()
    api.set_ready(status, reason)
    services, place = api.services, (kind, "default", "quickstart")

    def refusals() -> list[errors.ServiceError]:
        verbs: list[Callable[[], Any]] = [
            lambda: services.sandbox_streams.exec(*place, ["true"])(),
            lambda: services.sandbox_streams.logs(*place)(),
            lambda: services.files.begin(*place, FileRequest("list", "/tmp")),
            lambda: services.forward.open(*place, 80),
        ]
        observed = []
        for verb in verbs:
            with pytest.raises((errors.ServiceError, StreamError)) as error:
                verb()
            observed.append(errors.of_stream(error.value) if isinstance(error.value, StreamError) else error.value)
        return observed

    assert {(refusal.code, refusal.retry_after_seconds) for refusal in refusals()} == {(503, 1)}
    api.view.show(api.sandbox(), State.UNKNOWN)
    with pytest.raises((errors.ServiceUnavailable, NotNow)):
        services.sandbox_streams.exec(*place, ["true"])()


def test_an_exec_that_the_engine_did_not_begin_is_tried_again(api: ApiStack, kind: Kind) -> None:
    api.apply()
    api.set_ready("True", "Running")
    api.view.show(api.sandbox())
    answers: list[StreamError | None] = [NotNow("container c: paused"), None]

    def run(**_: Any) -> Iterator[Chunk]:
        if (error := answers.pop(0)) is not None:
            raise error
        return iter((Chunk("exit", b"0"),))

    api.streams.run = run
    exec_ = api.services.sandbox_streams.exec
    assert [chunk.data for chunk in exec_(kind, "default", "quickstart", ["true"])()] == [b"0"]
    answers[:] = [StreamError("it may have begun")]
    with pytest.raises(StreamError, match="may have begun"):
        exec_(kind, "default", "quickstart", ["true"])()


def test_an_object_on_the_wire_has_kubernetes_shape(api: ApiStack, kind: Kind) -> None:
    api.apply()
    api.services.objects.delete(kind, "default", "quickstart")
    printed = serialize.obj(api.sandbox())
    assert list(printed) == ["apiVersion", "kind", "metadata", "spec"]
    assert printed["metadata"] == {
        "name": "quickstart",
        "namespace": "default",
        "labels": {"app": "demo"},
        "uid": "00000000-0000-4000-8000-000000000001",
        "resourceVersion": "2",
        "generation": 1,
        "creationTimestamp": "2023-11-14T22:13:20Z",
        "deletionTimestamp": "2023-11-14T22:13:20Z",
        "finalizers": ["paddock/container"],
    }


def test_exec_without_a_running_container_names_the_condition(api: ApiStack, kind: Kind) -> None:
    api.apply()
    new = api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"])
    with pytest.raises(StreamError, match="did not start within 30 s yet: it was not observed"):
        new()
    api.set_ready("False", "ImagePullFailed", "no such image")
    with pytest.raises(errors.Conflict, match="has no container: ImagePullFailed: no such image"):
        api.services.sandbox_streams.logs(kind, "default", "quickstart")
    api.view.show(api.sandbox(), State.EXITED)
    with pytest.raises(errors.Conflict, match=r"is not running \(exited\): ImagePullFailed"):
        api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"])
    assert list(api.services.sandbox_streams.logs(kind, "default", "quickstart")())
    api.view.show(api.sandbox())
    api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"], env={"A": "b"})()
    container, requested = api.streams.asked[-1]
    assert (container, requested["command"], requested["env"]) == ("c-quickstart", ("true",), {"A": "b"})


def test_a_blind_engine_is_no_missing_container(api: ApiStack, kind: Kind) -> None:
    api.apply()
    api.view.seen = Observation(blind="connection refused")
    with pytest.raises(errors.ServiceUnavailable, match="connection refused"):
        api.services.sandbox_streams.exec(kind, "default", "quickstart", ["true"])


def test_exec_without_a_command_is_refused(api: ApiStack, kind: Kind) -> None:
    with pytest.raises(errors.BadRequest, match="no command to run"):
        api.services.sandbox_streams.exec(kind, "default", "quickstart", [])
