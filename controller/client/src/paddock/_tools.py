"""Tools of one sandbox for a model, as plain functions: the adapters hand them to a framework."""

import functools
from collections.abc import Callable, Sequence

from paddock._client.errors import Refused, TooLarge
from paddock._models import CommandResult
from paddock._sync.sandbox import Sandbox

MAX_CHARACTERS = 20_000
MAX_FILE_BYTES = 1 << 23


def functions(sandbox: Sandbox, *, timeout: float = 120.0) -> Sequence[Callable[..., str]]:
    """Return the tools. Names, annotations and docstrings are what the model sees; errors are told to it as text."""

    def run_command(command: str) -> str:
        """Run a shell line in the sandbox. Returns its exit code and output.

        Args:
            command: The line, such as `ls -l /tmp | head`.

        """
        return _as_text(sandbox.run(command, timeout=timeout))

    def run_python(code: str) -> str:
        """Run a Python program in a new interpreter in the sandbox. Returns its exit code and output.

        Args:
            code: The program; it prints what you want to see, or ends in an expression with that value.

        """
        return _as_text(sandbox.run_code(code, timeout=timeout))

    def read_file(path: str) -> str:
        """Read a text file of the sandbox.

        Args:
            path: Path of the file; a relative one starts where commands run.

        """
        return _cut(sandbox.files.read(path, errors="replace", max_bytes=MAX_FILE_BYTES))

    def write_file(path: str, content: str) -> str:
        """Create or replace a text file in the sandbox.

        Args:
            path: Path of the file; a relative one starts where commands run.
            content: The whole content.

        """
        sandbox.files.write(path, content)
        return f"wrote {len(content)} characters to {path}"

    def list_files(path: str = ".") -> str:
        """List a folder of the sandbox: one entry a line, folders with a slash at the end.

        Args:
            path: Path of the folder; a relative one starts where commands run.

        """
        entries = sandbox.files.list(path)
        return _cut("\n".join(entry.name + ("/" if entry.type == "folder" else "") for entry in entries))

    return tuple(_telling(function) for function in (run_command, run_python, read_file, write_file, list_files))


def _telling(function: Callable[..., str]) -> Callable[..., str]:
    """Return the function with refusals as its result: a model can correct a wrong path."""

    @functools.wraps(function)
    def call(*args: str, **kwargs: str) -> str:
        try:
            return function(*args, **kwargs)
        except (Refused, TooLarge) as error:
            return f"error: {error}"

    return call


def _as_text(result: CommandResult) -> str:
    outcome = "timed out" if result.timed_out else f"exit code {result.exit_code}"
    parts = [
        outcome,
        *(
            f"{name}:\n{text}"
            for name, text in (("stdout", result.stdout), ("stderr", result.stderr), ("value", result.value))
            if text
        ),
    ]
    return _cut("\n".join(parts))


def _cut(text: str) -> str:
    """Return long text without its middle."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
