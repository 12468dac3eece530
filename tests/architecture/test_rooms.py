"""The rules of the house as tests: who may import whom, what is pure, how small files are, and clean tools."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ("kinds", "policy", "plan")
# Calls that read the clock or chance through a type that pure code may well import for other reasons.
IMPURE_CALLS = {"now", "utcnow", "today", "uuid4", "uuid1", "open", "print", "input", "getenv"}


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_keep_to_the_layers() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    run(str(tool), "--no-cache")


def test_ruff_is_clean() -> None:
    run(sys.executable, "-m", "ruff", "check", "--no-cache", ".")
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".")


def test_mypy_is_clean(tmp_path: Path) -> None:
    run(sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path))


@pytest.mark.parametrize(
    "path", sorted(p for room in PURE for p in (ROOT / "controller" / room).rglob("*.py")), ids=str
)
def test_deciding_is_pure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in IMPURE_CALLS, f"{path.name}:{node.lineno} calls {called}"


@pytest.mark.parametrize("path", sorted((ROOT / "controller").rglob("*.py")), ids=str)
def test_every_file_opens_by_saying_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} needs a docstring"


@pytest.mark.parametrize("path", sorted((ROOT / "controller").rglob("*.py")), ids=str)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_every_room_says_what_it_is() -> None:
    for room in sorted(
        each for each in (ROOT / "controller").iterdir() if each.is_dir() and each.name != "__pycache__"
    ):
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room
        assert (ROOT / "tests" / room.name).is_dir(), f"tests/{room.name} mirrors the room"


def test_importing_the_rooms_does_no_work() -> None:
    """No thread, no socket, no file: importing anything only defines names."""
    code = (
        "import sys, threading, pkgutil, importlib, controller\n"
        "def audit(event, arguments):\n"
        "    assert not event.startswith(('socket.connect', 'socket.bind', 'subprocess', 'os.mkdir')), event\n"
        "sys.addaudithook(audit)\n"
        "for module in pkgutil.walk_packages(controller.__path__, 'controller.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    run(sys.executable, "-W", "ignore", "-c", code)
