"""Every change has its entry: who, from where, what, and the decision; and no value that anybody wrote."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import unix_connect

from controller.kinds.access.access import AccessRequest, Caller, Grant
from controller.kinds.access.audit import AuditEntry
from controller.kinds.common.owner_reference import Propagation
from controller.kinds.meta import StoredObject
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import new_registry
from controller.ports import Audit, StoreError
from controller.service import errors
from controller.service.access import access, audit
from controller.service.access.audit import Recorder, auditing
from tests.api.listeners import API, client, opened, token
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

ANN = Caller("ann (uid 1000)", "unix pid 7 uid 1000", (Grant(role="admin"),))


def told(api: ApiStack) -> list[tuple[str, str, str, str]]:
    return [(entry.actor, entry.verb, entry.name, entry.outcome) for entry in api.store.audit.entries()]


def test_each_change_is_audited_once_without_values(api: ApiStack) -> None:
    with access.acting(ANN):
        api.apply()
        api.apply()
        api.apply(QUICKSTART.replace("512Mi", "256Mi").replace("app: demo", "app: web"))
        sandbox = next(kind for kind in api.services.registry if kind.name == "Sandbox")
        api.services.patch.patch(sandbox, "default", "quickstart", {"spec": {"priority": 3}}, type_="merge")
        api.services.objects.delete(sandbox, "default", "quickstart")
    entries = api.store.audit.entries()
    assert [entry.verb for entry in entries] == ["create", "update", "update", "delete"]
    assert {entry.actor for entry in entries} == {"ann (uid 1000)"}
    assert {entry.source for entry in entries} == {"unix pid 7 uid 1000"}
    assert entries[1].detail == {"generation": 2, "fields": ["labels", "spec.resources"]}
    assert entries[2].detail["fields"] == ["spec.priority"]
    assert {entry.uid for entry in entries} == {"00000000-0000-4000-8000-000000000001"}
    assert api.store.audit.verify().problem == ""


def test_what_is_not_written_is_not_told(api: ApiStack) -> None:
    api.apply(dry_run=True)
    with pytest.raises(errors.Invalid):
        api.apply(QUICKSTART.replace("512Mi", "512m"))
    assert told(api) == []
    api.apply()
    assert told(api) == [("paddock", "create", "quickstart", "allowed")]


def test_everything_that_a_deletion_takes_along_is_told(api: ApiStack) -> None:
    api.apply()
    owner = api.sandbox()
    reference = f"{{apiVersion: paddock/v1alpha1, kind: Sandbox, name: quickstart, uid: {owner.uid}}}"
    child = QUICKSTART.replace("name: quickstart", f"name: child\n  ownerReferences: [{reference}]")
    api.apply(child)
    sandbox = next(kind for kind in api.services.registry if kind.name == "Sandbox")
    how: Propagation = "Background"
    api.services.objects.delete(sandbox, "default", "quickstart", propagation=how)
    assert sorted(group[2] for group in told(api) if group[1] == "delete") == ["child", "quickstart"]


def test_a_change_needs_its_audit_entry(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr("controller.store.transaction.append", full)
    with pytest.raises(errors.ServiceUnavailable, match="no room"):
        api.apply()
    assert api.store.get("Sandbox", "default", "quickstart") is None


def without_trace(entry: AuditEntry) -> dict[str, object]:
    """Return an entry's detail without the request's id, which must be there."""
    assert re.fullmatch("[0-9a-f]{32}", entry.detail["traceId"])
    return {name: value for name, value in entry.detail.items() if name != "traceId"}


def test_every_entry_of_a_request_names_its_trace(api: ApiStack) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    document = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    with opened(api):
        with client(api) as root:
            assert root.post(f"{API}/apply", json={"documents": [{"text": QUICKSTART}]}, headers=document).is_success
            (created,) = [entry for entry in api.store.audit.entries() if entry.kind == "Sandbox"]
            (printed,) = [entry for entry in root.get(f"{API}/audit").json()["items"] if entry["id"] == created.id]
        with client(api, "pdk_bad") as nobody:
            nobody.get(f"{API}/tokens", headers=document)
        wait_for("the refusal is told", lambda: told(api)[-1][0] == "unknown")
    assert created.detail["traceId"] == printed["detail"]["traceId"] == trace
    assert api.store.audit.entries()[-1].detail["traceId"] == trace
    assert api.store.audit.verify().problem == ""


def test_what_paddock_does_of_itself_has_no_trace(api: ApiStack) -> None:
    api.apply()
    assert all("traceId" not in entry.detail for entry in api.store.audit.entries())


def test_entries_and_write_failures_are_counted(api: ApiStack) -> None:
    registry = new_registry("0.1.0")
    meter = PrometheusMeter(registry, strict=True)
    store = auditing(api.store, api.clock, meter)
    with store.transaction() as transaction:
        transaction.put(StoredObject(kind="Quota", namespace="default", name="all", uid="u", spec={}))
    recorder = Recorder(api.store.audit, api.clock, meter)
    sandbox_streams = AccessRequest("use", "Sandbox", "default", "box", "exec")
    recorder.record_use(sandbox_streams, {})
    recorder.record_refusal(AccessRequest("delete", "Sandbox", "default", "box"), "no")
    api.store.close()
    recorder.record_refusal(AccessRequest("delete", "Sandbox", "default", "box"), "no")
    with pytest.raises(errors.ServiceUnavailable):
        recorder.record_use(sandbox_streams, {})
    api.store.open()
    counted = {
        entry: registry.get_sample_value("paddock_audit_events_total", {"category": entry})
        for entry in ("change", "use", "refusal")
    }
    assert counted == {"change": 1, "use": 1, "refusal": 1}
    assert registry.get_sample_value("paddock_audit_write_failures_total") == 2


def test_ends_of_uses_are_written_together(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = new_registry("0.1.0")
    meter = PrometheusMeter(registry, strict=True)
    content: list[int] = []

    class Counting:
        def append(self, entries: Sequence[AuditEntry]) -> None:
            content.append(len(entries))
            api.store.audit.append(entries)

    monkeypatch.setattr(audit, "_LATER_SECONDS", 3600)
    recorder = Recorder(cast("Audit", Counting()), api.clock, meter)
    with access.acting(ANN):
        for seconds in (1, 2):
            recorder.record_end(AccessRequest("use", "Sandbox", "default", "box", "mcp"), {"durationSeconds": seconds})
        recorder.record_call("sandbox.get", "default", {}, allowed=True)
        recorder.record_call("sandbox.get", "default", {}, allowed=False)
    assert content == []
    for _ in range(2):
        recorder.flush()
    assert content == [4]
    ann = ANN.name
    ends = [(ann, "mcp", "box", "allowed")] * 2
    assert told(api) == [*ends, *((ann, "call", "sandbox.get", entry) for entry in ("allowed", "refused"))]
    assert registry.get_sample_value("paddock_audit_events_total", {"category": "use"}) == 3
    api.store.close()
    recorder.record_call("sandbox.get", "default", {}, allowed=True)
    recorder.flush()
    assert registry.get_sample_value("paddock_audit_write_failures_total") == 1


def test_reading_the_log_shows_what_has_ended(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_LATER_SECONDS", 3600)
    with opened(api), client(api, token(api, "admin", "*", name="root")) as root:
        api.services.recorder.record_call("sandbox.get", "default", {}, allowed=True)
        items = root.get(f"{API}/audit").json()["items"]
    assert [entry["verb"] for entry in items if entry["object"]["name"] == "sandbox.get"] == ["call"]


def test_commands_and_refusals_over_the_doors(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    path = f"ws://paddock{API}/namespaces/default/sandboxes/quickstart/exec?command=/bin/sh&command=-c&command=x"
    with opened(api):
        text = token(api, "viewer", "default", name="eve")
        with unix_connect(str(api.socket), uri=path) as created:
            list(created)
        with pytest.raises(InvalidStatus):
            unix_connect(str(api.socket), uri=path, additional_headers={"Authorization": f"Bearer {text}"})
        with client(api, text) as eve, client(api, "pdk_bad") as nobody:
            requested: tuple[Callable[[], Any], ...] = (
                lambda: None,
                lambda: eve.delete(f"{API}/namespaces/default/sandboxes/quickstart"),
                lambda: eve.get(f"{API}/namespaces/other/sandboxes/quickstart"),
                lambda: eve.post(f"{API}/apply", json={"documents": [{"text": QUICKSTART}]}),
                lambda: eve.post(f"{API}/apply", json={"documents": [{"text": "x" * 20_000}]}),
                lambda: eve.get(f"{API}/audit"),
                lambda: nobody.get(f"{API}/tokens"),
            )
            for count, ask in enumerate(requested, 1):
                ask()  # what is refused is told behind its answer
                wait_for("it is told", lambda count=count: [group[3] for group in told(api)].count("refused") == count)
    entries = [entry for entry in api.store.audit.entries() if entry.kind != "Token"][1:]
    assert [(entry.actor.split(" (")[0], entry.verb, entry.kind, entry.outcome) for entry in entries] == [
        (entries[0].actor.split(" (")[0], "exec", "Sandbox", "allowed"),
        ("token eve", "exec", "Sandbox", "refused"),
        ("token eve", "delete", "Sandbox", "refused"),
        ("token eve", "get", "Sandbox", "refused"),
        ("token eve", "apply", "", "refused"),  # before its documents are read
        ("token eve", f"{API}/apply", "", "refused"),
        ("token eve", f"{API}/audit", "", "refused"),
        ("unknown", "authenticate", "", "refused"),
    ]
    assert without_trace(entries[0]) == {"program": "/bin/sh", "arguments": 2}
    assert entries[0].source == f"unix pid {os.getpid()} uid {os.getuid()}"
    assert api.store.audit.verify().problem == ""


def test_of_every_command_the_program_is_told(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    with opened(api), client(api) as root:
        for door in ("exec", "execs"):
            path = f"{API}/namespaces/default/sandboxes/quickstart/{door}"
            assert root.post(path, json={"command": ["/bin/sh", "-c", "secret"]}).is_success
            root.post(path, json=[door])
            entries = [entry for entry in api.store.audit.entries() if entry.verb == door]
            assert without_trace(entries[0]) == {"program": "/bin/sh", "arguments": 2}
            assert len(entries) <= 2


def test_asking_for_more_than_is_granted_is_a_refusal(api: ApiStack) -> None:
    with opened(api):
        text = token(api, "user", "default", name="eve", images=["other/*"])
        with client(api, text) as eve:
            assert eve.post(f"{API}/apply", json={"documents": [{"text": QUICKSTART}]}).status_code == 422
        wait_for("it is told", lambda: told(api)[-1][3] == "refused")
    last = api.store.audit.entries()[-1]
    assert (last.actor, last.kind, last.name) == ("token eve", "Sandbox", "quickstart")
    assert without_trace(last) == {"reason": "more than is granted: spec.template.image"}


def test_no_command_without_its_entry(api: ApiStack) -> None:
    api.apply()
    api.view.show(api.sandbox())
    path = f"ws://paddock{API}/namespaces/default/sandboxes/quickstart/exec?command=true"
    with opened(api):
        api.store.close()
        with pytest.raises(InvalidStatus) as refusal:
            unix_connect(str(api.socket), uri=path)
        api.store.open()
    assert refusal.value.response.status_code == 503
    assert api.streams.asked == []


def test_whoever_knocks_all_night_does_not_fill_the_log(api: ApiStack) -> None:
    recorder = Recorder(api.store.audit, api.clock)
    for _ in range(200):
        recorder.record_unknown("tcp 192.0.2.7", "no")
    recorder.record_unknown("tcp 192.0.2.8", "no")
    with access.acting(ANN):
        recorder.record_refusal(AccessRequest("delete", "Sandbox", "default", "box"), "no")
    assert len(told(api)) == 62
    assert "not recorded" in str(api.store.audit.entries()[59].detail)
    api.clock.advance(61)
    recorder.record_unknown("tcp 192.0.2.7", "no")
    assert len(told(api)) == 63


def test_nor_does_whoever_knocks_from_everywhere(api: ApiStack) -> None:
    recorder = Recorder(api.store.audit, api.clock)
    for number in range(3000):
        recorder.record_unknown(f"tcp 2001:db8::{number:x}", "no")
    with access.acting(ANN):
        recorder.record_refusal(AccessRequest("delete", "Sandbox", "default", "box"), "no")
    entries = api.store.audit.entries(limit=5000)
    assert len(entries) == 121, "and who is known has a place of their own"
    assert "not recorded" in str(entries[119].detail)
    assert entries[120].actor == "ann (uid 1000)"


def test_nor_does_a_name_as_long_as_a_request_may_be(api: ApiStack) -> None:
    long = "x" * 20_000
    with opened(api):
        with client(api, token(api, "user", "default", name="eve")) as eve:
            for place in ("default", long):
                assert eve.get(f"{API}/namespaces/{place}/sandboxes/{long}/files?path=/x").status_code == 404
        wait_for("the refusal is told", lambda: told(api)[-1][3] == "refused")
    for entry in api.store.audit.entries():
        assert len(str(entry)) < 2000


def test_a_canary_is_nowhere(api: ApiStack, capfd: pytest.CaptureFixture[str]) -> None:
    """Secrets that pass through: in no file of the store, no log line, no entry."""
    canary = f"canary{os.urandom(8).hex()}"
    api.apply()
    api.view.show(api.sandbox())
    query = f"command=sh&command=-c&command=echo+{canary}&env=PASSWORD={canary}&stdin=true"
    path = f"ws://paddock{API}/namespaces/default/sandboxes/quickstart/exec?{query}"
    with opened(api):
        secret = token(api, "viewer", "default", name="eve").split("_", 2)[2]
        with unix_connect(str(api.socket), uri=path) as created:
            with suppress(ConnectionClosed):  # the command may end first
                created.send(b"\x00" + canary.encode())
            list(created)
        with client(api, f"pdk_000000000000_{canary}{'A' * 21}") as wrong:
            assert wrong.get(f"{API}/tokens?x={canary}").status_code == 401
        with client(api, f"pdk_{api.store.tokens.all()[0].id}_{secret}") as eve:
            eve.get(f"{API}/namespaces/other/sandboxes")
        wait_for("the last is told", lambda: told(api)[-1][1] == "list")
    output = str(api.store.audit.entries()) + "".join(capfd.readouterr())
    api.store.close()
    text = b"".join(entry.read_bytes() for entry in Path(api.folder).rglob("*") if entry.is_file())
    for name in (canary, secret):
        assert name not in output
        assert name.encode() not in text
    api.store.open()
