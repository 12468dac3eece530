"""Contexts of builds as the client sends them: folders, links, and what .dockerignore leaves out."""

import io
import tarfile
from pathlib import Path

import pytest

from controller.cli.calls.images import Ignored, _pack

FILES = (
    "Dockerfile",
    "src/a.py",
    "src/a.pyc",
    "src/deep/b.pyc",
    "node_modules/x/y.js",
    "keep/node_modules/z",
    ".git/HEAD",
)


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("", set(FILES)),
        ("# note\n\n*.pyc\n", set(FILES)),
        ("**/*.pyc\n/node_modules/\n.git", {"Dockerfile", "src/a.py", "keep/node_modules/z"}),
        ("**/node_modules\n", set(FILES) - {"node_modules/x/y.js", "keep/node_modules/z"}),
        ("*\n!src\n!Dockerfile\nsrc/**/*.pyc\n", {"Dockerfile", "src/a.py"}),
        ("src/?.py\n./.git\n", set(FILES) - {"src/a.py", ".git/HEAD"}),
    ],
)
def test_dockerignore_leaves_files_out(tmp_path: Path, rules: str, left: set[str]) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("src/a.py")
    if rules:
        (tmp_path / ".dockerignore").write_text(rules)
    with tarfile.open(fileobj=io.BytesIO(b"".join(_pack(str(tmp_path))))) as tree:
        names = {member.name for member in tree if member.isfile()} - {".dockerignore"}
        assert names == left
        assert ("link" in tree.getnames()) == (not rules.startswith("*\n"))
        assert tree.extractfile("Dockerfile").read() == b"Dockerfile"  # type: ignore[union-attr]


def test_other_letters_of_a_pattern_are_plain() -> None:
    assert Ignored("a[").leaves_out("a[")
    assert not Ignored("a.b").leaves_out("axb")
