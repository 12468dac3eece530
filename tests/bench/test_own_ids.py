"""Price of a sandbox's own id: cold starts and warm claims by turns with `user: "20000:20000"`, on one daemon."""

import json
import statistics
from pathlib import Path

import pytest

from tests.bench.test_claims import LIMITS, TEMPLATE, Eyes, eyes_on
from tests.daemon import RunningDaemon, running

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.timeout(900)]
ROUNDS, WARM = 40, 4
COMMAND = "[sleep, '1000000']"
OPEN = ", securityLevel: production, security: {network: {mode: none}}"
SHARED = ', user: "20000:20000"'


def by_turns(daemon: RunningDaemon, eyes: Eyes, *, warm: int, more: str = "") -> tuple[list[float], list[float]]:
    """Seconds from apply to Ready with own ids, and with the shared user; which one is first changes by turns."""
    kinds = {f"own{warm}{len(more)}": more, f"shared{warm}{len(more)}": more + SHARED}
    for name, text in kinds.items():
        eyes.apply(TEMPLATE % {"name": name, "warm": warm, "command": COMMAND, "limits": LIMITS, "more": text})
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(ROUNDS):
        for name in kinds if number % 2 else reversed(kinds):
            if warm:
                for kind in kinds:
                    eyes.fill(kind, warm)
            took[name].append(eyes.start(f"{name}-{number}", name, "Require" if warm else "Never"))
            status = json.loads(daemon.paddock("get", f"sandbox/{name}-{number}", "-o", "json").stdout)["status"]
            assert ("userShared" in status, status["launchType"]) == (
                name.startswith("shared"),
                "Warm" if warm else "Cold",
            )
            daemon.paddock("delete", f"sandbox/{name}-{number}", "--timeout=60s")
    own_numbers, shared = took.values()
    daemon.paddock("delete", "sandboxpools", "--all", "--timeout=60s")
    return own_numbers, shared


def test_own_ids_cost_next_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    with running(tmp_path) as daemon, eyes_on(daemon) as eyes:
        for kind, warm, further in (("cold", 0, ""), ("cold, writable root", 0, OPEN), ("warm", WARM, "")):
            own_numbers, shared = by_turns(daemon, eyes, warm=warm, more=further)
            # The median of the pairs' differences: each pair met the same load.
            more_seconds = statistics.median(
                own_number - second for own_number, second in zip(own_numbers, shared, strict=True)
            )
            ratio = statistics.median(own_numbers) / statistics.median(shared)
            paired = 1 + more_seconds / statistics.median(shared)
            lines.append(
                f"{kind}: own id p50 {statistics.median(own_numbers) * 1000:.1f} ms, shared user p50 "
                f"{statistics.median(shared) * 1000:.1f} ms; ratio {ratio:.3f}, of pairs {paired:.3f} (wanted 1.03)"
            )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
