"""Path confinement: whatever the path and the links, nothing outside the workspace is opened or changed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.agent.paddock_agent import files
from images.agent.paddock_agent.files import Workspace
from images.agent.paddock_agent.replies import Reply, ToolError
from tests.examples import examples

parts = st.sampled_from(["a", "b", "..", ".", "", "secret", "link", "proc", "self", "root", "workspace", "a\n"])
paths = st.lists(parts, max_size=8).map("/".join) | st.text(max_size=12)
targets = st.sampled_from(
    ["..", "../..", "/", "/proc/self/root", "a", "../secret", "../workspace", "link", "../outside"]
)


@pytest.fixture
def ground() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="paddock-confine-"))
    yield path
    shutil.rmtree(path)


def outside(ground: Path) -> dict[str, bytes]:
    document = {}
    for folder, folders, names in os.walk(ground):
        if folder == str(ground) and "workspace" in folders:
            folders.remove("workspace")
        for name in names:
            document[os.path.join(folder, name)] = Path(folder, name).read_bytes()
        document[folder] = b""
    return document


def reset(ground: Path, links: dict[str, str]) -> None:
    shutil.rmtree(ground)
    (ground / "workspace" / "a" / "b").mkdir(parents=True)
    (ground / "outside").mkdir()
    (ground / "secret").write_text("secret")
    (ground / "outside" / "secret").write_text("secret")
    for at, target in links.items():
        (ground / "workspace" / at).symlink_to(target)


def done(work: Any) -> Reply:
    """Take long work to its end."""
    try:
        while not isinstance(work, Reply):
            next(work)
        return work
    except StopIteration as end:
        return end.value


@settings(max_examples=examples(300))
@given(paths, paths, st.dictionaries(st.sampled_from(["link", "a/link", "a/b/link", "b"]), targets))
def test_no_path_leads_out(path: str, other: str, links: dict[str, str]) -> None:
    ground = Path(tempfile.mkdtemp(prefix="paddock-confine-"))
    try:
        reset(ground, links)
        before = outside(ground)
        workspace = Workspace(str(ground / "workspace"))
        calls = (
            (files.read, {"path": path, "offset": 0, "limit": 1000, "encoding": "auto"}),
            (files.write, {"path": path, "content": "mine", "encoding": "text", "parents": True}),
            (files.read, {"path": path, "offset": 0, "limit": 1000, "encoding": "auto"}),
            (files.listing, {"path": path, "recursive": True, "limit": 1000}),
            (files.describe, {"path": path, "sha256": False}),
            (files.move, {"from": path, "to": other, "overwrite": True, "parents": True}),
            (files.remove, {"path": other, "recursive": True}),
            (files.remove, {"path": path, "recursive": True}),
        )
        for function, arguments in calls:
            try:
                text = done(function(workspace, arguments)).render(1000)[1]
            except ToolError:
                continue
            if function is files.read:
                assert text in ("mine", "")
        assert outside(ground) == before
        os.close(workspace.fd())
    finally:
        shutil.rmtree(ground)
