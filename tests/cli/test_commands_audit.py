"""`paddock audit`: entries, and the report of a log that was tampered with."""

import json
from collections.abc import Callable

from click.testing import Result
from sqlalchemy import text

from controller.kinds.access.audit import AuditEntry
from controller.store.sql_store import SqlStore
from tests.helpers_api import ApiStack
from tests.store.older_audit import append_older

Run = Callable[..., Result]


def test_audit_lists_requests(paddock: Run, served: ApiStack) -> None:
    assert paddock("audit").stderr == "No entries found.\n"
    served.apply()
    entry = AuditEntry(served.clock.now(), "eve", "tcp 192.0.2.7", "exec", outcome="refused", detail={"a": [1, 2]})
    served.store.audit.append([entry])
    lines = paddock("audit").output.splitlines()
    assert lines[0].split() == ["TIME", "ACTOR", "FROM", "VERB", "OBJECT", "DECISION", "DETAIL"]
    assert lines[1].split()[1:] == ["paddock", "-", "create", "sandbox/default/quickstart", "allowed", "generation=1"]
    assert lines[2].split()[-2:] == ["refused", "a=1,2"]
    assert len(paddock("audit", "--refused").output.splitlines()) == 2
    assert len(paddock("audit", "--actor", "padd").output.splitlines()) == 2
    assert '"kind": "AuditList"' in paddock("audit", "-o", "json").output
    assert paddock("audit", "--since", "1h").stderr == "No entries found.\n"  # the clock of tests is an old one


def of_another_host(served: ApiStack, *numbers: int) -> None:
    """Entries of the daemon of host b, as it would append them."""
    at = served.clock.now()
    entries = [AuditEntry(at + number, "eve", "", "exec", "Sandbox", "default", f"box-{number}") for number in numbers]
    store = SqlStore(f"sqlite:///{served.folder / 'paddock.db'}", writer="b")
    store.open()
    store.audit.append(entries)
    store.close()


def test_writers_are_shown_where_there_are_several(paddock: Run, served: ApiStack) -> None:
    served.apply()
    assert paddock("audit", "-o", "wide").output.splitlines()[0].split()[:2] == ["TIME", "WRITER"]
    of_another_host(served, 5, 6)
    lines = [line.split() for line in paddock("audit").output.splitlines()]
    assert [line[1:3] for line in lines] == [["WRITER", "ACTOR"], ["host", "paddock"], ["b", "eve"], ["b", "eve"]]
    document = json.loads(paddock("audit", "-o", "json").output)["items"]
    assert [(entry["writer"], entry["id"]) for entry in document] == [("host", 1), ("b", 1), ("b", 2)]
    of_b = paddock("audit", "--writer", "b", "--limit", "1").output.splitlines()
    assert (of_b[0].split()[1], len(of_b)) == ("ACTOR", 2)
    assert "box-6" in of_b[1]


def test_verify_compares_with_an_earlier_result(paddock: Run, served: ApiStack) -> None:
    served.apply()
    first, mark = paddock("audit", "verify").output.splitlines()
    assert first == "1 entries are unchanged"
    assert mark.startswith("host:1:")
    served.store.audit.append([AuditEntry(1.0, "eve", "", "exec")])
    assert paddock("audit", "verify", "--expect", mark).exit_code == 0
    assert "differs from the expected one" in paddock("audit", "verify", "--expect", f"host:2:{'0' * 64}").output
    assert "differs from the expected one" in paddock("audit", "verify", "--expect", f"b:1:{'0' * 64}").output
    assert paddock("audit", "verify", "--expect", "x").exit_code == 2
    change(served, "UPDATE audit_entries SET actor = 'nobody' WHERE id = 1")
    broken = paddock("audit", "verify")
    assert broken.exit_code == 1
    assert "chain of host: entry 1 was changed" in broken.output


def test_verify_names_the_broken_chain_of_several(paddock: Run, served: ApiStack) -> None:
    served.apply()
    of_another_host(served, 1, 2, 3)
    first, *marks = paddock("audit", "verify").output.splitlines()
    assert first == "4 entries in 2 chains are unchanged"
    assert [mark.rpartition(":")[0] for mark in marks] == ["b:3", "host:1"]
    of_another_host(served, 4)
    expected = [word for mark in marks for word in ("--expect", mark)]
    assert paddock("audit", "verify", *expected).exit_code == 0
    change(served, "DELETE FROM audit_entries WHERE writer = 'b' AND id = 4")
    assert "chain of b: the log ends at entry 3, and 4 were written" in paddock("audit", "verify").output
    change(served, "DELETE FROM audit_entries WHERE writer = 'b'")
    change(served, "DELETE FROM audit_chains WHERE writer = 'b'")
    assert paddock("audit", "verify").exit_code == 0, "a whole chain is missed by its line alone"
    assert "entry 3 of b differs from the expected one" in paddock("audit", "verify", *expected).output


def test_verify_takes_lines_of_older_versions(paddock: Run, served: ApiStack) -> None:
    """They had one chain for all, and lines without a writer."""
    append_older(served.store, [AuditEntry(1.0, "eve", "", "exec"), AuditEntry(2.0, "eve", "", "exec")])
    served.apply()
    _, mark, _ = paddock("audit", "verify").output.splitlines()
    assert mark.startswith("2:")
    assert paddock("audit", "verify", "--expect", mark).exit_code == 0
    assert "entry 2 differs" in paddock("audit", "verify", "--expect", f"2:{'0' * 64}").output
    assert paddock("audit").output.splitlines()[1].split()[1] == "-"


def change(served: ApiStack, statement: str) -> None:
    with served.store._changing("test") as connection:
        connection.execute(text(statement))
