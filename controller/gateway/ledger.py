"""Use of models as the daemon keeps it: metrics, sums in the audit log, and budgets that survive a restart."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from controller.gateway.config import Config, User
from controller.kinds.access.audit import AuditEntry
from controller.kinds.planning.snapshot import Snapshot
from controller.ports import Audit, Clock, Meter, StoreError
from controller.processes.channel import Message

VERB = "models"
_AUDIT_SECONDS = 30.0
_SAVE_SECONDS = 10.0
_MOST_BYTES = 16 << 20
_MOST_LETTERS = 300
_log = structlog.get_logger("paddock.models")


@dataclass(slots=True)
class _Sum:
    outcomes: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0


class Ledger:
    """Thread-safe. `file` holds the budgets' use; `write_due` is called about every second."""

    def __init__(self, file: Path, *, audit: Audit, clock: Clock, meter: Meter) -> None:
        self._file, self._audit, self._clock, self._meter = file, audit, clock, meter
        self._lock = threading.Lock()
        self._used: dict[str, Any] = _read(file)
        self._saved: dict[str, Any] = dict(self._used)
        self._saving, self._failing = threading.Lock(), False
        self._sums: dict[tuple[User, str], _Sum] = {}
        self._audited_at = self._saved_at = clock.now()

    def usage(self) -> dict[str, Any]:
        """Return the use of all budgets, for a process that starts."""
        with self._lock:
            return dict(self._used)

    def take(self, message: Message, config: Config) -> None:
        """Take a report of the process."""
        for report in message["uses"]:
            target = config.targets.get(report["target"])
            user = User.of_json(report["user"])
            outcomes = {str(name)[:_MOST_LETTERS]: int(count) for name, count in report["outcomes"].items()}
            tokens_in, tokens_out = max(0, int(report["tokensIn"])), max(0, int(report["tokensOut"]))
            labels = {"namespace": user.namespace, "provider": target.name if target else ""}
            for outcome, count in outcomes.items():
                self._meter.count("paddock_model_requests_total", count, **labels, outcome=outcome)
            for direction, tokens in (("in", tokens_in), ("out", tokens_out)):
                if tokens:
                    self._meter.count("paddock_model_tokens_total", tokens, **labels, direction=direction)
            for seconds in report["firstBytes"]:
                self._meter.observe("paddock_model_first_byte_seconds", float(seconds), **labels)
            with self._lock:
                total = self._sums.setdefault((user, labels["provider"]), _Sum())
                total.outcomes.update(outcomes)
                total.tokens_in, total.tokens_out = total.tokens_in + tokens_in, total.tokens_out + tokens_out
        self._meter.gauge("paddock_model_requests_in_flight", int(message["running"]))
        with self._lock:
            self._used = {uid: _use(use) for uid, use in message["used"].items() if uid in config.targets}
            by_source = {uid: use["tokens"] for uid, use in self._used.items()}
        # Spent tokens survive an end of the daemon; requests of a minute may be saved later.
        if by_source != {uid: use["tokens"] for uid, use in self._saved.items()} and not self._failing:
            self._save_budgets()

    def write_due(self, snapshot: Snapshot | None) -> None:
        """Write what is due to the audit log and to the file of the budgets."""
        now = self._clock.now()
        if not 0 <= now - self._audited_at < _AUDIT_SECONDS:
            self._audited_at = now
            self._write_audit(snapshot)
        if not 0 <= now - self._saved_at < _SAVE_SECONDS:
            self._saved_at = now
            self.save()

    def save(self) -> None:
        """Write the sums and the budgets now. A failure is logged."""
        self._write_audit(None)
        self._save_budgets()

    def _save_budgets(self) -> None:
        with self._saving:
            with self._lock:
                usage = dict(self._used)
            if usage == self._saved:
                return
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fresh = self._file.with_suffix(".new")
                fresh.write_text(json.dumps(usage, separators=(",", ":")))
                fresh.replace(self._file)
            except OSError as error:
                _log.warning("budgets of models not saved", error=str(error))
                self._failing = True  # until one of the timer's succeeds
                return
            self._saved, self._failing = usage, False

    def _write_audit(self, snapshot: Snapshot | None) -> None:
        with self._lock:
            sums, self._sums = self._sums, {}
        if not sums:
            return
        sandboxes = snapshot.desired.sandboxes.items() if snapshot else ()
        uids = {User(sandbox.obj.namespace, sandbox.obj.name): uid for uid, sandbox in sandboxes}
        entries = [self._entry(user, provider, total, uids.get) for (user, provider), total in sums.items()]
        try:
            self._audit.append(entries)
        except StoreError as error:
            _log.warning("audit of models delayed", reason=str(error))
            with self._lock:
                for key, total in sums.items():
                    later = self._sums.setdefault(key, _Sum())
                    later.outcomes.update(total.outcomes)
                    later.tokens_in, later.tokens_out = (
                        later.tokens_in + total.tokens_in,
                        later.tokens_out + total.tokens_out,
                    )

    def _entry(self, user: User, provider: str, total: _Sum, uid_of: Callable[[User], str | None]) -> AuditEntry:
        """Return the entry on what a user used of a provider.

        A token is a person's: its name is the actor, and the provider what was acted on. Sandboxes and runs act for
        nobody in particular: Paddock passed their requests on, and the entry is found with them.
        """
        is_token = user.kind == "Token"
        return AuditEntry(
            at=self._clock.now(),
            actor=user.name if is_token else "paddock",
            source="",
            verb=VERB,
            kind="Provider" if is_token else user.kind,
            namespace=user.namespace,
            name=provider if is_token else user.name,
            uid=uid_of(user) or "",
            detail={
                "provider": provider,
                "requests": dict(total.outcomes),
                "tokensIn": total.tokens_in,
                "tokensOut": total.tokens_out,
            },
        )


def _use(use: Any) -> dict[str, Any]:
    """Return the use of one budget, checked."""
    seconds = {str(int(second)): int(count) for second, count in use["seconds"].items()}
    return {"seconds": seconds, "day": int(use["day"]), "tokens": int(use["tokens"])}


def _read(file: Path) -> dict[str, Any]:
    """Return the saved use. A file that can't be read counts as none, and is said in the log."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("too large")
        saved = json.loads(file.read_text())
        return {str(uid): _use(use) for uid, use in saved.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("budgets of models not read; they begin anew", error=str(error))
        return {}
