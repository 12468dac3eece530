"""Python is never started so that the folder where a person types comes first among the modules."""

import ast
import re
from pathlib import Path

from tests.trees import tree_of

ROOT = Path(__file__).resolve().parents[2]
_IN_SHELL = re.compile(r"python[^ ]* -m (pip|venv|controller)\b|python[^ ]* -c '[^']*import (?!os\b|sys\b|tomllib\b)")


def starts_of_python(path: Path) -> list[str]:
    """Return the first option of each command line of a module that begins with this interpreter."""
    lists = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.List)]
    return [
        ast.unparse(node.elts[1])
        for node in lists
        if len(node.elts) > 1 and ast.unparse(node.elts[0]) == "sys.executable"
    ]


def test_modules_start_python_without_the_current_folder() -> None:
    starts = {
        f"{path.relative_to(ROOT)}: {option}": option
        for folder in ("controller", "deploy")
        for path in (ROOT / folder).rglob("*.py")
        for option in starts_of_python(path)
    }
    assert len(starts) >= 5
    assert [place for place, option in starts.items() if option not in ("'-I'", "'-P'")] == []


def test_scripts_start_python_without_the_current_folder() -> None:
    scripts = [path for folder in ("deploy", "images") for path in (ROOT / folder).rglob("*.sh")]
    commands = [(path.name, line) for path in scripts for line in path.read_text().splitlines()]
    wrong = [(name, line) for name, line in commands if _IN_SHELL.search(re.sub(r'"python [^"]*"', "", line))]
    assert [
        entry for entry in wrong if entry[0] not in ("test.sh", "quickstart.sh")
    ] == []  # in the checkout, a sandbox
