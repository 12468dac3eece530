"""A minimal shell for tests: write, read, exit and hang."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.kinds.common.chunk import Chunk


@dataclass(frozen=True)
class Run:
    """Return a command's output and exit code; None: it runs until it is killed."""

    output: tuple[Chunk, ...]
    exit_code: int | None


def run(command: Sequence[str] | None, stdin: Iterable[bytes] = ()) -> Run:
    """`sh -c '...'` with statements between `;`, or one plain command: echo, cat, exit, true, false, sleep."""
    if command is None:
        return Run((), None)
    command = tuple(command)
    in_shell = command[0] == "sh" and list(command[1:2]) in (["-c"], ["-ec"])
    statements = re.split(r"[;\n]", command[2]) if in_shell else [shlex.join(command)]
    output: list[Chunk] = []
    code: int | None = 0
    for statement in statements:
        parts = shlex.split(statement)
        if not parts:
            continue
        code = _step(parts, stdin, output)
        if code is None or parts[0] == "exit" or (code and command[1:2] == ("-ec",)):
            break
    return Run(tuple(output), code)


def _step(words: list[str], stdin: Iterable[bytes], output: list[Chunk]) -> int | None:
    name, arguments = words[0], words[1:]
    if name == "echo":
        stream = "stderr" if ">&2" in arguments else "stdout"
        text = " ".join(argument for argument in arguments if argument != ">&2")
        output.append(Chunk(stream, f"{text}\n".encode()))
        return 0
    if name == "cat":
        output += [Chunk("stdout", data) for data in stdin]
        return 0
    if name == "exit":
        return int(arguments[0]) if arguments else 0
    if name == "sleep":
        return None
    if name in ("true", "false", ":", "trap"):
        return int(name == "false")
    output.append(Chunk("stderr", f"sh: {name}: not found\n".encode()))
    return 127
