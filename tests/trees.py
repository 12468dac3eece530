"""Syntax trees of modules."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the module's tree, parsed once for all tests of this process."""
    tree = parsed(path.read_text())
    gc.freeze()  # it stays: no later collection need visit it
    return tree


def parsed(source: str) -> ast.Module:
    """Parse without garbage collection: Python 3.11 can fail if one meanwhile shows a traceback, and so parses, too."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()
