"""Generates the blocking client from that of asyncio: `python -m tests.sdk.unasync`."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "controller/client/src/paddock"
SOURCE, TARGET = PACKAGE / "_async", PACKAGE / "_sync"
_HEAD = "# Generated from {name} by `python -m tests.sdk.unasync`: change that one.\n"
_RULES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r" *@opening\n", ""),
    (r", opening\b", ""),
    (r"\bpaddock\._async\b", "paddock._sync"),
    (r"\bpaddock\._transport\.aio\b", "paddock._transport.blocking"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"an `with`", "a `with`"),
    (r"the `with`", "the `with`"),
    (r"\bAny task may\b", "Any thread may"),
    (r"The client of asyncio\. .*\n", "The client that blocks, generated from that of asyncio.\n"),
)


def blocking(source: str, name: str) -> str:
    """Return the blocking form of a module."""
    for pattern, replacement in _RULES:
        source = re.sub(pattern, replacement, source)
    if name == "__init__.py":
        source = '"""The client that blocks. Its modules are generated from those of `_async`."""\n'
    return _HEAD.format(name=f"_async/{name}") + source


def generate() -> dict[str, str]:
    """Return all modules, formatted."""
    blockings = {path.name: blocking(path.read_text(), path.name) for path in sorted(SOURCE.glob("*.py"))}
    return {name: _formatted(text, name) for name, text in blockings.items()}


def _formatted(text: str, name: str) -> str:
    for command in (("check", "--select", "I", "--fix", "--quiet"), ("format", "--quiet")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET / name), "-"],
            input=text,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    for name, text in generate().items():
        (TARGET / name).write_text(text)
