"""Paddock's own templates: a script in each JavaScript runtime, in a sandbox without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, running

pytestmark = pytest.mark.images
SCRIPT = """
type Pair<T> = { left: T; right: T };
const pair: Pair<number> = { left: 6, right: 7 };
const { writeFileSync } = await import("node:fs");
writeFileSync("/workspace/made", "x");
const network = await fetch("http://192.0.2.1/").then(() => "open", () => "closed");
console.log(pair.left * pair.right, process.argv.slice(-1)[0], network);
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("templates")) as created:
        yield created


@pytest.mark.parametrize("template", ["bun", "deno", "node"])
def test_a_typescript_runs_in_its_template(daemon: RunningDaemon, tmp_path: Path, template: str) -> None:
    script = tmp_path / "script.mts"
    script.write_text(SCRIPT)
    done = daemon.paddock("run", "--template", template, "-f", str(script), "--", "last")
    assert done.stdout == "42 last closed\n", done.stderr
    code = daemon.paddock("run", "--template", template, "-c", "console.log('Hello!')")
    assert code.stdout == "Hello!\n", code.stderr
    failed = daemon.paddock("run", "--template", template, "-c", "process.exit(7)", check=False)
    assert failed.returncode == 7
    name = daemon.paddock("run", "-d", "--template", template, "-f", str(script), "--", "last").stdout.strip()
    daemon.paddock("wait", "--for=condition=Finished", "--timeout=60s", f"sandbox/{name}")
    assert daemon.paddock("logs", name).stdout == "42 last closed\n"
