"""README files as tests read them: blocks, headings, links, and commands of `paddock`."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.docs.blocks import ROOT, files

# Pages with tests of their own for what they show; here their links and commands are checked.
ELSEWHERE = frozenset(
    {
        "controller/api/panel/README.md",
        "controller/client/README.md",
        "images/agent/README.md",
    }
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s\s)#.*$", re.MULTILINE)
_OPERATORS = "();<>|&\n"


def name(file: Path) -> str:
    """The path of a file in this repository."""
    return str(file.relative_to(ROOT))


def own() -> list[Path]:
    """The README files whose every block is tested here."""
    return [each for each in files() if name(each) not in ELSEWHERE]


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a file, and the line that it begins at."""

    file: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.file)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """The fenced blocks of all README files; of these languages only, where any are given."""
    found = [each for file in files() for each in blocks_of(file)]
    return [each for each in found if not languages or each.language in languages]


def blocks_of(file: Path) -> list[Block]:
    """The fenced blocks of a file, in order."""
    text = file.read_text()
    return [Block(file, text[: each.start()].count("\n") + 1, each[1], each[2]) for each in _FENCE.finditer(text)]


def prose(file: Path) -> str:
    """The file without its fenced blocks."""
    return _FENCE.sub("", file.read_text())


def anchors(file: Path) -> set[str]:
    """Anchors that a link may name after `#`, as the forges make them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def links(file: Path) -> list[str]:
    """The targets of its links that lead into the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(file))
    return [each for each in found if not each.startswith(("http://", "https://"))]


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `paddock` in a shell text, the name of the program left out."""
    for words in shell(text):
        while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("sudo", "!")):
            words = words[1:]
        if words[:3] == ["docker", "exec", "paddock"]:
            words = words[3:]
        if words and words[0].rpartition("/")[2] == "paddock":
            yield words[1:]


def shell(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text."""
    reader = shlex.shlex(_COMMENT.sub("", text).replace("\\\n", " "), posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    words: list[str] = []
    for word in reader:
        if set(word) <= set(_OPERATORS):
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def inline(file: Path) -> list[str]:
    """Commands that stand in the text, between backquotes."""
    found = re.findall(r"`((?:PADDOCK_\w+=\S+ )?paddock [^`]+)`", prose(file).replace("\\|", "|"))
    return [each for each in found if not each.startswith(("paddock ...", "paddock COMMAND"))]
