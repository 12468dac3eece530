"""Use of models as the daemon keeps it: sums in the audit log, and budgets in a file."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from controller.gateway.config import Config, Target, User
from controller.gateway.ledger import Ledger
from controller.kinds.access.audit import AuditEntry
from controller.ports import NullMeter, StoreError


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


class Log:
    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []
        self.broken = False

    def append(self, entries: list[AuditEntry]) -> None:
        if self.broken:
            raise StoreError("the store is away")
        self.entries += entries


CONFIG = Config({"p": Target("p", "default", "openai", "OpenAI", ("*",), "https://x/v1")})
USED = {"p": {"seconds": {"1000": 2}, "day": 0, "tokens": 9}}


def report(**outcomes: int) -> dict[str, Any]:
    document = {"target": "p", "outcomes": outcomes, "tokensIn": 5, "tokensOut": 4, "firstBytes": [0.1]}
    users = User("default", "box"), User("default", "token ci", "Token"), User("default", "build-1", "WorkflowRun")
    return {
        "uses": [{**document, "user": asdict(user)} for user in users],
        "used": {**USED, "gone": USED["p"]},
        "running": 1,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "models" / "budgets.json"


def made(file: Path, log: Any, clock: Clock) -> Ledger:
    return Ledger(file, audit=log, clock=clock, meter=NullMeter())


def test_sums_are_audited_and_survive_a_broken_store(file: Path) -> None:
    log, clock = Log(), Clock()
    ledger = made(file, log, clock)
    ledger.take(report(ok=2), CONFIG)
    ledger.write_due(None)
    assert log.entries == []
    clock.at += 31
    log.broken = True
    ledger.write_due(None)
    log.broken = False
    ledger.take(report(ok=1, limited=1), CONFIG)
    clock.at += 31
    ledger.write_due(None)
    assert [(entry.verb, entry.actor, entry.kind, entry.name) for entry in log.entries] == [
        ("models", "paddock", "Sandbox", "box"),
        ("models", "token ci", "Provider", "openai"),
        ("models", "paddock", "WorkflowRun", "build-1"),
    ]
    assert log.entries[0].detail == {
        "provider": "openai",
        "requests": {"ok": 3, "limited": 1},
        "tokensIn": 10,
        "tokensOut": 8,
    }


def test_budgets_survive_a_restart(file: Path) -> None:
    clock = Clock()
    ledger = made(file, Log(), clock)
    ledger.take(report(ok=1), CONFIG)
    clock.at += 11
    ledger.write_due(None)
    assert made(file, Log(), clock).usage() == USED


def test_spent_tokens_survive_an_end_without_warning(file: Path) -> None:
    made(file, Log(), Clock()).take(report(ok=1), CONFIG)
    assert made(file, Log(), Clock()).usage() == USED


@pytest.mark.parametrize("text", ["", "[]", '{"p": 1}', '{"p": {"seconds": {"x": 1}}}', "\x00"])
def test_a_damaged_file_is_none(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert made(file, Log(), Clock()).usage() == {}
