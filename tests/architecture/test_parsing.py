"""Documents of callers are read in one place of each use-case, and only in a turn of the parsing queue."""

import ast
from pathlib import Path

from tests.trees import tree_of

ROOT = Path(__file__).resolve().parents[2] / "controller"
_READERS = {"parse", "read_compose", "project_name", "read", "Reading"}
_MODULES = ("controller.documents.document", "controller.documents.yaml_tree", "controller.documents.compose.compose")


def _reads_documents(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and node.module in _MODULES and _READERS & {name.name for name in node.names}
        for node in ast.walk(tree)
    )


def test_readers_of_documents_require_a_turn() -> None:
    reading = {}
    for package in ("service", "api", "mcp", "gateway", "loop", "app"):
        for path in (ROOT / package).rglob("*.py"):
            if _reads_documents(tree_of(path)):
                reading[str(path.relative_to(ROOT))] = "check_turn(" in path.read_text()
    assert reading == {f"service/objects/{name}.py": True for name in ("apply", "compose", "write")}
