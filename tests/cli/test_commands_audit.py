"""`paddock audit`: entries, and the report of a log that was tampered with."""

from collections.abc import Callable

from click.testing import Result
from sqlalchemy import text

from controller.kinds.access.audit import AuditEntry
from tests.helpers_api import World

Run = Callable[..., Result]


def test_audit_lists_requests(paddock: Run, served: World) -> None:
    assert paddock("audit").stderr == "No entries found.\n"
    served.apply()
    refused = AuditEntry(served.clock.now(), "eve", "tcp 192.0.2.7", "exec", outcome="refused", detail={"a": [1, 2]})
    served.store.audit.append([refused])
    lines = paddock("audit").output.splitlines()
    assert lines[0].split() == ["TIME", "ACTOR", "FROM", "VERB", "OBJECT", "DECISION", "DETAIL"]
    assert lines[1].split()[1:] == ["paddock", "-", "create", "sandbox/default/quickstart", "allowed", "generation=1"]
    assert lines[2].split()[-2:] == ["refused", "a=1,2"]
    assert len(paddock("audit", "--refused").output.splitlines()) == 2
    assert len(paddock("audit", "--actor", "padd").output.splitlines()) == 2
    assert '"kind": "AuditList"' in paddock("audit", "-o", "json").output
    assert paddock("audit", "--since", "1h").stderr == "No entries found.\n"  # the clock of tests is an old one


def test_verify_compares_with_an_earlier_result(paddock: Run, served: World) -> None:
    served.apply()
    first, mark = paddock("audit", "verify").output.splitlines()
    assert first == "1 entries are unchanged"
    served.store.audit.append([AuditEntry(1.0, "eve", "", "exec")])
    assert paddock("audit", "verify", "--expect", mark).exit_code == 0
    assert "differs from the expected one" in paddock("audit", "verify", "--expect", f"2:{'0' * 64}").output
    assert paddock("audit", "verify", "--expect", "x").exit_code == 2
    with served.store._changing("test") as connection:
        connection.execute(text("UPDATE audit SET actor = 'nobody' WHERE id = 1"))
    broken = paddock("audit", "verify")
    assert broken.exit_code == 1
    assert "entry 1 was changed" in broken.output
