"""Paddock as an MCP server on stdin and stdout, and what starts it: command, variables."""

import os
import shutil
import sys
from pathlib import Path

import click

from controller.cli.errors import UsageProblem
from controller.cli.mcp.bridge import Bridge
from controller.cli.options import Target, located

_ENVIRONMENT = ("PADDOCK_SERVER", "PADDOCK_SOCKET", "PADDOCK_CONTEXT", "PADDOCK_TOKEN_FILE", "PADDOCK_CA_FILE")


_COMMAND = "paddock"


def serve_path(ctx: click.Context, path: str, *, holds: bool = False) -> None:
    """Relay between stdin and stdout and that endpoint. `holds`: its sessions end with this process."""
    if sys.stdin.isatty():
        text = "`paddock mcp` is started by an MCP client, which talks to it; `paddock mcp config claude` shows how"
        raise UsageProblem(f"{text}, `paddock mcp tools` lists the tools")
    out = sys.stdout.buffer

    def write(line: bytes) -> None:
        try:
            out.write(line + b"\n")
            out.flush()
        except OSError:  # the client has gone: what runs for it ends
            os._exit(1)

    bridge = Bridge(located(ctx), path, write, holds=holds)
    try:
        bridge.run(sys.stdin.buffer)
    except KeyboardInterrupt:
        bridge.close()


def command_path() -> str:
    """Return the command by its absolute path: a client has a PATH of its own."""
    if Path(sys.argv[0]).name == _COMMAND:
        return str(Path(sys.argv[0]).absolute())
    beside = Path(sys.executable).absolute().parent / _COMMAND  # started as a module of this interpreter
    return str(beside) if beside.exists() else shutil.which(_COMMAND) or _COMMAND


def environment(ctx: click.Context) -> dict[str, str]:
    """Return the variables that lead to the daemon: addresses and files, never a token itself."""
    variables = {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)}
    target: Target = ctx.find_root().obj
    if target.address or target.context:
        for name in ("PADDOCK_SERVER", "PADDOCK_SOCKET", "PADDOCK_CONTEXT"):
            variables.pop(name, None)
    if target.address:
        variables["PADDOCK_SERVER"] = target.address
    elif target.context:
        variables["PADDOCK_CONTEXT"] = target.context
    return variables
