"""Files through the tools: reading, writing, and what is refused in words."""

import base64
import os
import socket
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from images.agent.paddock_agent import files, tools
from images.agent.paddock_agent.files import Workspace
from images.agent.paddock_agent.replies import Reply, ToolError
from images.agent.paddock_agent.settings import Settings
from tests.agent.conftest import HandLoop, Running

OUTSIDE = "path is outside the workspace"


def test_a_file_is_written_and_read(agent: Running) -> None:
    tool = agent.tool("file.write", path="a/b/c.txt", content="grüße\n")["result"]
    assert tool["created"] is True
    read = agent.tool("file.read", path=f"{agent.root}/a/b/c.txt")
    assert read["output"] == "grüße\n"
    assert read["result"]["sha256"] == tool["sha256"] == sha256("grüße\n".encode()).hexdigest()
    assert agent.tool("file.write", path="a/b/c.txt", content="")["result"]["created"] is False
    assert sorted(os.listdir(agent.root / "a" / "b")) == ["c.txt"]


def test_bytes_come_as_base64(agent: Running) -> None:
    data = bytes(range(256))
    agent.tool("file.write", path="b", content=base64.b64encode(data).decode(), encoding="base64")
    assert (agent.root / "b").read_bytes() == data
    read = agent.tool("file.read", path="b")["result"]
    assert read["encoding"] == "base64"
    assert base64.b64decode(read["content"]) == data
    assert "is not UTF-8 text" in agent.tool("file.read", path="b", encoding="text")["error"]


def test_a_large_file_is_read_in_parts(agent: Running) -> None:
    text = "äöü€" * 60_000
    (agent.root / "large").write_text(text)
    parts, at = [], 0
    while True:
        read = agent.tool("file.read", path="large", offset=at, limit=100_001)["result"]
        assert read["encoding"] == "text"
        parts.append(read["content"])
        at = read["nextOffset"]
        if not read["truncated"]:
            break
    assert "".join(parts) == text


def test_a_write_keeps_the_mode_and_heeds_the_sha(agent: Running) -> None:
    agent.tool("file.write", path="s", content="1", mode="0755")
    old = agent.tool("file.stat", path="s", sha256=True)["result"]
    assert old["mode"] == "0755"
    assert agent.tool("file.write", path="s", content="2", if_sha256=old["sha256"])["result"]["mode"] == "0755"
    assert "has changed" in agent.tool("file.write", path="s", content="3", if_sha256=old["sha256"])["error"]
    assert "exists already" in agent.tool("file.write", path="s", content="3", if_sha256="")["error"]
    assert "no such file" in agent.tool("file.write", path="t", content="3", if_sha256=old["sha256"])["error"]
    assert (agent.root / "s").read_text() == "2"


def test_a_link_within_is_written_through(agent: Running) -> None:
    (agent.root / "real").write_text("old")
    (agent.root / "link").symlink_to("real")
    assert agent.tool("file.write", path="link", content="new")["success"]
    assert (agent.root / "link").is_symlink()
    assert (agent.root / "real").read_text() == "new"


def test_a_folder_is_listed_in_parts(agent: Running) -> None:
    for name in ("b/x", "b/y", "a", "b-c", "c"):
        agent.tool("file.write", path=name, content="1")
    (agent.root / "l").symlink_to("a")
    assert agent.tool("file.list")["output"] == "a\nb/\nb-c\nc\nl"
    entries = agent.tool("file.list", recursive=True)["result"]["entries"]
    assert [entry["path"] for entry in entries] == ["a", "b", "b/x", "b/y", "b-c", "c", "l"]
    parts, after = [], ""
    while True:
        tool = agent.tool("file.list", recursive=True, limit=2, after=after)["result"]
        parts += tool["entries"]
        if not tool["truncated"]:
            break
        after = tool["next"]
    assert parts == entries


def test_files_are_moved_and_removed(agent: Running) -> None:
    agent.tool("file.write", path="a", content="1")
    agent.tool("file.write", path="b", content="2")
    assert "exists already" in agent.tool("file.move", **{"from": "a", "to": "b"})["error"]
    assert agent.tool("file.move", **{"from": "a", "to": "b", "overwrite": True})["success"]
    assert agent.tool("file.move", **{"from": "b", "to": "new/c"})["success"]
    assert "not empty" in agent.tool("file.remove", path="new")["error"]
    assert agent.tool("file.remove", path="new", recursive=True)["result"]["removed"] == 2
    assert "no such file" in agent.tool("file.remove", path="new")["error"]
    assert "is the workspace itself" in agent.tool("file.remove", path=".", recursive=True)["error"]


@pytest.fixture
def traps(agent: Running, tmp_path: Path) -> Running:
    (tmp_path / "secret").write_text("secret")
    (agent.root / "out").symlink_to(tmp_path / "secret")
    (agent.root / "up").symlink_to("..")
    (agent.root / "magic").symlink_to(f"/proc/{agent.process.pid}/cwd")
    (agent.root / "root").symlink_to("/")
    os.mkfifo(agent.root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(agent.root / "socket"))
    return agent


@pytest.mark.parametrize(
    "path", ["../secret", "..", "/etc/passwd", "out", "up/secret", "magic/x", "root/etc/passwd", "x/../../secret"]
)
def test_paths_outside_are_refused(traps: Running, tmp_path: Path, path: str) -> None:
    (traps.root / "x").mkdir()
    calls = [
        traps.tool("file.read", path=path),
        traps.tool("file.write", path=path, content="x"),
        traps.tool("file.list", path=path),
        traps.tool("exec", command="true", cwd=path),
        traps.tool("file.remove", path=path + "/secret"),
        traps.tool("file.move", **{"from": path + "/secret", "to": "mine"}),
    ]
    assert [document["success"] for document in calls] == [False] * len(calls)
    assert [OUTSIDE in document["error"] for document in calls[:2]] == [True, True], calls
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize("path", ["fifo", "socket", "up", "."])
def test_only_regular_files_are_read_and_written(traps: Running, path: str) -> None:
    for answer in (traps.tool("file.read", path=path), traps.tool("file.write", path=path, content="x")):
        assert answer["success"] is False
    if path in ("fifo", "socket"):
        assert traps.tool("file.read", path=path)["error"] == f"{path}: is a {path}, not a regular file"


def test_odd_names_are_told_apart(agent: Running) -> None:
    (agent.root / "new\nline").write_text("1")
    with open(os.fsencode(agent.root) + b"/\xff", "w"):
        pass
    assert [entry["path"] for entry in agent.tool("file.list")["result"]["entries"]] == ["new\nline", "\\xff"]
    assert agent.tool("file.read", path="new\nline")["output"] == "1"
    assert "NUL" in agent.tool("file.read", path="a\0b")["error"]
    assert "too long" in agent.tool("file.read", path="x" * 5000)["error"]
    assert agent.tool("file.read", path="\ud800")["success"] is False


def test_a_missing_workspace_is_told(agent: Running) -> None:
    agent.root.rmdir()
    assert "can't be opened" in agent.tool("file.list")["error"]
    agent.root.mkdir()
    assert agent.tool("file.list")["success"]


def test_a_list_says_what_it_leaves_out(agent: Running) -> None:
    at = agent.root
    for _ in range(66):
        at = at / "d"
        at.mkdir()
    listed = agent.tool("file.list", recursive=True)
    entries = listed["result"]["entries"]
    assert len(entries) == 64
    assert [entry for entry in entries[:-1] if "notListed" in entry] == []
    assert entries[-1]["notListed"] == "is deeper than 64 folders; list it by its path"
    assert listed["output"].endswith("d/ [not listed: is deeper than 64 folders; list it by its path]")
    assert len(agent.tool("file.list", path=entries[-1]["path"], recursive=True)["result"]["entries"]) == 2


def test_long_work_leaves_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_SLICE_SECONDS", 0)
    loop, workspace = HandLoop(), Workspace(str(tmp_path))
    created: Any = (Settings(), loop, workspace, None, None)
    for at in range(9):
        (tmp_path / "tree" / str(at)).mkdir(parents=True)
        (tmp_path / "tree" / str(at) / "x").touch()
    answers: list[Reply] = []
    tools.Tools(*created).call("file.remove", {"path": "tree", "recursive": True}, answers.append)
    assert (answers, (tmp_path / "tree").exists()) == ([], True)
    loop.turn()
    assert answers[0].render(1000)[0]["removed"] == 19
    assert not (tmp_path / "tree").exists()
    (tmp_path / "big").write_bytes(b"1" * 1_000_000)
    call = tools.Tools(*created).call("file.stat", {"path": "big", "sha256": True}, answers.append)
    call.abandon()
    loop.turn()
    assert len(answers) == 1


def test_a_file_replaced_while_it_is_compared_is_kept(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"1" * 1_000_000)
    digest = sha256(b"1" * 1_000_000).hexdigest()
    document = {"path": "big", "content": "mine", "encoding": "text", "parents": True, "if_sha256": digest}
    work = files.write(Workspace(str(tmp_path)), document)
    next(work)
    (tmp_path / "new").write_text("theirs")
    (tmp_path / "new").rename(tmp_path / "big")
    with pytest.raises(ToolError, match="has changed just now"):
        list(work)
    assert (tmp_path / "big").read_text() == "theirs"
