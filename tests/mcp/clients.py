"""MCP clients of others as programs: the official conformance suite, inspector, and agents (deploy/mcp-clients.sh)."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FETCHED = ROOT / ".cache" / "mcp"
_PACKAGES = FETCHED / "node" / "node_modules" / "@modelcontextprotocol"
SUITE = str(_PACKAGES / "conformance" / "dist" / "index.js")
AGENTS = ("pydantic_ai_agent", "openai_agent", "claude_code")
"""Programs of agents/, each of which drives one agent of others."""


@dataclass(frozen=True)
class Endpoint:
    """An MCP server as its clients are told of it: a URL and headers, or a command that speaks on stdio."""

    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


def run(program: str, *words: str, seconds: float = 300, stdin: str = "", home: Path | None = None) -> Any:
    """Run a program of the fetched ones; a client that hangs is killed and fails the test."""
    document = {"PATH": f"{FETCHED / 'venv' / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    document |= {"HOME": str(home or FETCHED), "NO_PROXY": "127.0.0.1,localhost"}
    line = [str(FETCHED / "venv" / "bin" / program), *words]
    return subprocess.run(line, input=stdin, env=document, capture_output=True, text=True, timeout=seconds, check=False)


def conform(endpoint: Endpoint, revision: str, results: Path, *lists: str) -> None:
    """Run what a revision requires of servers; each failure is in a list of conformance/, and nothing else is."""
    expected = results / "expected.yaml"
    texts = [(Path(__file__).parent / "conformance" / f"{name}.yaml").read_text() for name in lists]
    expected.write_text("server:\n" + "".join(text.partition("server:\n")[2] for text in texts))
    arguments = ("--requirements", revision, "--expected-failures", str(expected), "--output-dir", str(results))
    done = run("node", SUITE, "server", "--url", endpoint.url, *arguments)
    summary = done.stdout[done.stdout.find("=== SUMMARY") :]
    assert done.returncode == 0, f"{summary}{done.stderr}{_failures(results)}"
    assert "✓ tools-list" in summary, summary  # it did run


def _failures(results: Path) -> str:
    observed = [entry for file in sorted(results.rglob("checks.json")) for entry in json.loads(file.read_text())]
    wrong = (entry for entry in observed if entry["status"] in ("FAILURE", "WARNING"))
    return "".join(f"{entry['status']} {entry['id']}: {entry.get('errorMessage', '')[:300]}\n" for entry in wrong)


def inspect(endpoint: Endpoint, method: str, *words: str, era: str = "auto") -> subprocess.CompletedProcess[str]:
    """Ask with the inspector's command line."""
    launcher = str(_PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js")
    if endpoint.url:
        headers = [word for name, value in endpoint.headers.items() for word in ("--header", f"{name}: {value}")]
        where = [endpoint.url, "--transport", "http", *headers]
    else:
        where = [*(word for pair in endpoint.env.items() for word in ("-e", "=".join(pair))), *endpoint.command]
    line = [*where, "--protocol-era", era, "--method", method, *words]
    return run("node", launcher, "--cli", *line, seconds=200)


def inspected(endpoint: Endpoint, method: str, *words: str, era: str = "auto") -> Any:
    done = inspect(endpoint, method, *words, era=era)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Step:
    """One call that an agent's scripted model asks for; CONTAINS must be in the text of its answer."""

    tool: str
    arguments: dict[str, Any]
    contains: str = ""


def drive(agent: str, endpoint: Endpoint, steps: list[Step], home: Path) -> list[dict[str, Any]]:
    """Have one of AGENTS call the tools in order; return each call's tool and text as its model saw them."""
    document = {
        "url": endpoint.url,
        "headers": endpoint.headers,
        "command": list(endpoint.command),
        "env": endpoint.env,
        "steps": [{"tool": step.tool, "arguments": step.arguments} for step in steps],
    }
    done = run(
        "python",
        str(Path(__file__).parent / "agents" / f"{agent}.py"),
        stdin=json.dumps(document),
        home=home,
        seconds=240,
    )
    assert done.returncode == 0, f"{agent}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    calls: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    for step, call in zip(steps, calls, strict=True):
        assert call["tool"] == step.tool, calls
        assert step.contains in call["text"].replace('": ', '":'), calls  # however its client writes JSON
    return calls
