"""Accepted names and links."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.archive.names import Unsafe, leads_out, parts_of, shown


@pytest.mark.parametrize(
    ("name", "parts"),
    [(b"a", (b"a",)), (b"./a//b/.", (b"a", b"b")), (b".", ()), (b"..a/b..", (b"..a", b"b..")), (b"\xff", (b"\xff",))],
)
def test_names_below_the_folder(name: bytes, parts: tuple[bytes, ...]) -> None:
    assert parts_of(name) == parts


@pytest.mark.parametrize(
    "name", [b"/etc/passwd", b"..", b"a/../../b", b"a/..", b"a\0b", b"x" * 5000, b"x" * 256, b"a/" * 200]
)
def test_refused_names(name: bytes) -> None:
    with pytest.raises(Unsafe):
        parts_of(name)


@pytest.mark.parametrize(
    ("name", "target", "out"),
    [
        (b"a", b"b", False),
        (b"d/a", b"../b", False),
        (b"a", b"./b/c", False),
        (b"a", b"/etc/passwd", True),
        (b"a", b"../b", True),
        (b"d/a", b"../../b", True),
        (b"d/a", b"x/../../b", True),
        (b"a", b"x/..", True),  # after a link, `..` is relative to where that leads
    ],
)
def test_links_that_lead_out_of_the_folder(name: bytes, target: bytes, out: bool) -> None:
    assert leads_out(parts_of(name), target) is out


@pytest.mark.parametrize(
    ("name", "target", "out"),
    [
        (b"copied/a", b"b", False),
        (b"copied/d/a", b"../b", False),
        (b"copied/a", b"../.bashrc", True),
        (b"copied/d/a", b"../../.bashrc", True),
        (b"copied", b"b", True),  # the copied thing itself is a link, to a neighbour
    ],
)
def test_links_that_lead_out_of_the_copied_tree(name: bytes, target: bytes, out: bool) -> None:
    assert leads_out(parts_of(name), target, 1) is out


STEP = st.sampled_from([b"a", b"b", b"c", b"..", b"."])
LINKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3), st.lists(STEP, min_size=1, max_size=4)
    ),
    max_size=8,
)


@given(links=LINKS)
def test_no_set_of_allowed_links_leads_out(
    links: list[tuple[list[bytes], list[bytes]]],
) -> None:
    """Each accepted link, created in a nested folder, resolves below it or to nothing."""
    with tempfile.TemporaryDirectory() as outer:
        top = Path(outer) / "x" / "y" / "top"
        top.mkdir(parents=True)
        created = []
        for way, steps in links:
            name, target = b"/".join(way), b"/".join(steps)
            path = top / os.fsdecode(name)
            if leads_out(parts_of(name), target) or any(entry.is_symlink() for entry in (path, *path.parents)):
                continue  # nothing is ever made through a link
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(os.fsdecode(target))
            except OSError:
                continue
            created.append(path)
        for one_path in created:
            assert Path(os.path.realpath(one_path)).is_relative_to(top), (one_path, os.readlink(one_path))


def test_shown_names_have_no_control_characters() -> None:
    assert shown(b"a\x1b[31m\n\xff") == "a?[31m?\ufffd"
    assert len(shown(b"x" * 1000)) < 210
