"""The code base's rules as tests: purity, the size of functions and packages. Linters and types: `make check`."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.trees import tree_of

ROOT = Path(__file__).resolve().parents[2]
PURE = ("kinds", "policy", "plan")
# Calls that read the clock or chance through a type that pure code may well import for other reasons.
IMPURE_CALLS = {"now", "utcnow", "today", "uuid4", "uuid1", "open", "print", "input", "getenv"}


# Functions of more lines than the limit: an entry goes when its function is shortened. No new ones.
LONG_FUNCTIONS: set[str] = set()
# Packages of more modules than the limit: an entry goes when the package is divided. No new ones.
LARGE_PACKAGES: set[str] = set()
MOST_LINES = 60  # of a function
# Names that say nothing: participles and pronouns. The packages whose names are nouns; an entry comes when one is done.
VAGUE_NAMES = frozenset(
    "made found asked known wanted held own each more gone going told said given seen kept moved written shown taken"  # noqa: SIM905
    " added left used named words began begun ended one others rest awaited passing refused allowed leaving lacks short"
    " crowded busy decided hers his its theirs whole part other another same then here there".split()
)
NAMED_PACKAGES = (
    *("api", "app", "archive", "cli", "client", "documents", "e2b", "engine", "gateway", "kinds", "loop", "mcp"),
    *("metrics", "plan", "policy", "ports", "scheduler", "service", "ssh", "store"),
)
MOST_VAGUE = 0.02  # of a package's names: those of fields on the wire stay
MOST_MODULES = 26  # of a package, of which about 20 are enough
MOST_VAGUE_IN_TESTS = 0.04
LARGE_RECORD = 10  # fields, from which on each is described where it stands
LEAST_DESCRIBED = 0.95  # of the fields of large records: some have a type that is described itself


@cache
def product() -> dict[str, ast.Module]:
    """Every module of the product, by its path."""
    return {str(path.relative_to(ROOT)): tree_of(path) for path in (ROOT / "controller").rglob("*.py")}


def modules(*below: str) -> Iterator[tuple[str, ast.Module]]:
    """Every module of the product in there, by its path."""
    for path, tree in sorted(product().items()):
        if path.startswith(below or ("controller/",)):
            yield path, tree


def functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function in there, by its qualified name."""
    for iter_child_node in ast.iter_child_nodes(node):
        name = inside
        if isinstance(iter_child_node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}.{iter_child_node.name}".lstrip(".")
            if not isinstance(iter_child_node, ast.ClassDef):
                yield name, iter_child_node
        yield from functions(iter_child_node, name)


def names(tree: ast.AST) -> Iterator[str]:
    """Every variable that is assigned, parameter and function in there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.strip("_")


def test_deciding_is_pure() -> None:
    observed = []
    for path, tree in modules(*(f"controller/{name}/" for name in PURE)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in IMPURE_CALLS:
                    observed.append(f"{path}:{node.lineno} calls {called}")
    assert not observed


def imported_modules(path: str, tree: ast.Module) -> Iterator[str]:
    """The modules of the product that one module imports, also in functions and for types alone."""
    package = Path(path).parent.as_posix().split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = [*package[: len(package) - node.level + 1], node.module] if node.level else [node.module]
            module = ".".join(filter(None, parts))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def floors() -> dict[str, dict[str, set[str]]]:
    """The sub-packages and modules of each package, each with those beside it that it imports."""
    graph: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in modules():
        source = Path(path.removesuffix("/__init__.py").removesuffix(".py")).parts
        for imported in imported_modules(path, tree):
            target = imported.split(".")
            depth = next((n for n, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), 0)
            if depth:
                graph[".".join(source[:depth])][source[depth]].add(target[depth])
    return graph


def test_packages_are_floors() -> None:
    """No two sub-packages of one package import each other, directly or round a circle."""
    circles = {}
    for package, graph in floors().items():
        beside = {name: set(imported) for name, imported in graph.items()}
        while lowest := [name for name, imported in beside.items() if not imported & beside.keys() - {name}]:
            for name in lowest:
                del beside[name]
        if beside:
            circles[package] = beside
    assert not circles, "a circle, or what stands on one; move what both need below both"


def test_every_module_has_a_docstring() -> None:
    assert [path for path, tree in modules() if not ast.get_docstring(tree)] == []


@pytest.mark.parametrize("package", NAMED_PACKAGES)
def test_names_say_what_a_thing_is(package: str) -> None:
    counts = Counter(name for _, tree in modules(f"controller/{package}/") for name in names(tree))
    vague = {name: count for name, count in counts.items() if name in VAGUE_NAMES}
    assert sum(vague.values()) <= MOST_VAGUE * counts.total(), f"use nouns of the domain and verbs instead: {vague}"


def test_names_in_tests_say_what_a_thing_is() -> None:
    trees = (ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
    counts = Counter(name for tree in trees for name in names(tree))
    vague = Counter({name: count for name, count in counts.items() if name in VAGUE_NAMES})
    assert vague.total() <= MOST_VAGUE_IN_TESTS * counts.total(), f"use nouns instead: {vague.most_common(20)}"


def undescribed_fields(record: ast.ClassDef) -> tuple[int, list[str]]:
    """Return how many fields a record has, and those with neither a sentence below them nor a `description`."""
    fields, undescribed = 0, []
    for statement, below in zip_longest(record.body, record.body[1:]):
        if not isinstance(statement, ast.AnnAssign) or "ClassVar" in ast.unparse(statement.annotation):
            continue
        fields += 1
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if not is_text and "description=" not in ast.unparse(statement):
            undescribed.append(f"{record.name}.{ast.unparse(statement.target)}")
    return fields, undescribed


def test_fields_of_large_records_are_described() -> None:
    records = [node for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    counts = [count for count in map(undescribed_fields, records) if count[0] >= LARGE_RECORD]
    undescribed = [name for _, unnamed in counts for name in unnamed]
    assert len(undescribed) <= (1 - LEAST_DESCRIBED) * sum(fields for fields, _ in counts), undescribed


def test_functions_have_at_most_sixty_lines() -> None:
    long = {
        f"{path}: {name}"
        for path, tree in modules()
        for name, node in functions(tree)
        if (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES
    }
    assert long - LONG_FUNCTIONS == set(), "too long: divide it by what it does"
    assert LONG_FUNCTIONS - long == set(), "short by now, or gone: take it out of LONG_FUNCTIONS"


def test_packages_have_at_most_26_modules() -> None:
    counted = Counter(str(Path(path).parent) for path, _ in modules() if not path.endswith("__init__.py"))
    large = {package for package, count in counted.items() if count > MOST_MODULES}
    assert large - LARGE_PACKAGES == set(), "too many modules: make sub-packages by capability"
    assert LARGE_PACKAGES - large == set(), "small by now, or gone: take it out of LARGE_PACKAGES"


def test_every_package_has_a_docstring_and_tests() -> None:
    for package in (path.parent for path in (ROOT / "controller").glob("*/__init__.py")):
        assert ast.get_docstring(tree_of(package / "__init__.py")), package
        tests = ROOT / "tests" / ("contract" if package.name == "ports" else package.name)
        assert tests.is_dir(), f"{tests} mirrors {package}"


def test_importing_the_packages_does_no_work() -> None:
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
    command = [sys.executable, "-B", "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
