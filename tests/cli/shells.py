"""A command in a shell, with the pipes and redirections of its line."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shell(script: str, socket: Path | str = "/nowhere.sock") -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `paddock` is the command."""
    message = f'paddock() {{ "{sys.executable}" -m controller --server "unix://{socket}" "$@"; }}; {script}'
    return subprocess.run(["bash", "-c", message], cwd=ROOT, capture_output=True, text=True, check=False)
