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
    return [file for file in files() if name(file) not in ELSEWHERE]


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
    observed = [block for file in files() for block in blocks_of(file)]
    return [block for block in observed if not languages or block.language in languages]


def blocks_of(file: Path) -> list[Block]:
    """The fenced blocks of a file, in order."""
    text = file.read_text()
    return [Block(file, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in _FENCE.finditer(text)]


def prose(file: Path) -> str:
    """The file without its fenced blocks."""
    return _FENCE.sub("", file.read_text())


def anchors(file: Path) -> set[str]:
    """Anchors that a link may name after `#`, as the forges make them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(file: Path) -> list[str]:
    """The targets of its links that lead into the repository."""
    matches = re.findall(r"\]\(([^)\s]+)\)", prose(file))
    return [match for match in matches if not match.startswith(("http://", "https://"))]


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `paddock` in a shell text, the name of the program left out."""
    for arguments in shell(text):
        while arguments and (re.fullmatch(r"\w+=.*", arguments[0]) or arguments[0] in ("sudo", "!")):
            arguments = arguments[1:]
        if arguments[:3] == ["docker", "exec", "paddock"]:
            arguments = arguments[3:]
        if arguments and arguments[0].rpartition("/")[2] == "paddock":
            yield arguments[1:]


def shell(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text."""
    reader = shlex.shlex(_COMMENT.sub("", text).replace("\\\n", " "), posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    arguments: list[str] = []
    for word in reader:
        if set(word) <= set(_OPERATORS):
            if arguments:
                yield arguments
            arguments = []
        else:
            arguments.append(word)
    if arguments:
        yield arguments


def inline(file: Path) -> list[str]:
    """Commands that stand in the text, between backquotes."""
    matches = re.findall(r"`((?:PADDOCK_\w+=\S+ )?paddock [^`]+)`", prose(file).replace("\\|", "|"))
    return [match for match in matches if not match.startswith(("paddock ...", "paddock COMMAND"))]
