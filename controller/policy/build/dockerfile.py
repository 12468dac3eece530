"""Dockerfiles as instructions with positions, and every reason to refuse one.

A build is carried out by the engine outside of any sandbox. So it may copy files and set the image's configuration;
commands (RUN) need the operator's permission, and nothing may fetch from a network in the host's name.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.kinds.common.problem import Problem
from controller.kinds.runtime.images import OURS
from controller.policy import images
from controller.policy.images import ImageRules

Allowed = Literal["off", "copy", "run"]
SCRATCH = "scratch"
MAX_BYTES = 256 << 10
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S.*?)\s*\Z")
_FLAG = re.compile(r"""--([a-z-]+)(?:=([^\s"'\\$]*))?\Z""")
_LABEL = re.compile(r"""(?:^|\s)["']?paddock[./]""", re.IGNORECASE)
_INDEX = re.compile(r"[0-9]{1,3}")
_KNOWN = (
    *("FROM", "COPY", "RUN", "ENV", "ARG", "LABEL", "WORKDIR", "USER", "CMD", "ENTRYPOINT", "EXPOSE", "STOPSIGNAL"),
    *("SHELL", "VOLUME", "HEALTHCHECK"),
)
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "COPY": ("from", "chown"),
    "HEALTHCHECK": ("interval", "timeout", "retries", "start-period"),
}
_REFUSED = {
    "ADD": "may fetch from a network; write COPY, and unpack archives in the context",
    "ONBUILD": "would run in builds of others; write the instruction into those",
    "MAINTAINER": 'is obsolete; write LABEL maintainer="..."',
}
_NO_RUN = (
    "the operator allows no commands in builds (setting image_build); run it in a sandbox, and COPY its result, or ask"
    ' the operator for `image_build = "run"`'
)
_VARIABLE = "a variable could name any image; write the name out"
_SYNTAX = "another frontend would be fetched and run by the engine; remove the line"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, its first line (from 1), its flags, and the rest as written."""

    line: int
    name: str
    flags: Mapping[str, str]
    arguments: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Dockerfile. `bases` are the images that it needs on the host, by their line."""

    file: str
    instructions: tuple[Instruction, ...]
    bases: Mapping[str, int]


def read_dockerfile(file: str, text: str) -> tuple[Recipe, list[Problem]]:
    """Return a Dockerfile's instructions, and the problems of its form."""
    problems: list[Problem] = []
    if len(text) > MAX_BYTES:
        problems.append(Problem(file, 0, 0, "", f"is larger than {MAX_BYTES >> 10} KiB; move content into files"))
        return Recipe(file, (), {}), problems
    text = text.replace("\r\n", "\n")
    instructions: list[Instruction] = []
    for first, line in _logical(file, text, problems):
        if not line.strip():  # of odd spaces, which are a problem already
            continue
        head, *tail = line.split(None, 1)
        flags, arguments = {}, tail[0] if tail else ""
        while arguments.startswith("--"):
            flag, *tail = arguments.split(None, 1)
            match, arguments = _FLAG.match(flag), tail[0] if tail else ""
            if match is None:  # the engine would read quotes and escapes in it
                problems.append(Problem(file, first, 1, head.upper(), f"`{flag}` is not supported; remove it"))
                break
            flags[match[1]] = match[2] or ""
        instructions.append(Instruction(first, head.upper(), flags, arguments))
    if not instructions and not problems:
        problems.append(Problem(file, 0, 0, "", "is empty; it begins with FROM"))
    return Recipe(file, tuple(instructions), _bases(instructions)), problems


def find_problems(recipe: Recipe, rules: ImageRules, image_build: Allowed) -> list[Problem]:
    """Return every reason to refuse the Dockerfile under the operator's rules."""
    problems: list[Problem] = []
    outside = {instruction.line: image for instruction, image in _outside(recipe.instructions)}
    for number, instruction in enumerate(recipe.instructions):
        messages = list(_instruction(instruction, image_build))
        if number == 0 and instruction.name not in ("FROM", "ARG"):
            messages.append("a Dockerfile begins with FROM")
        if instruction.name == "FROM":
            messages += _from(instruction)[2]
        if instruction.line in outside:
            messages += images.image_refusals(outside[instruction.line], rules)
        problems += [Problem(recipe.file, instruction.line, 1, instruction.name, message) for message in messages]
    return problems


def labelled(recipe: Recipe, value: str) -> str:
    """Return the Dockerfile with our label in each stage, so that what a broken build leaves behind is removed.

    It is written anew from the instructions, so that the engine reads the words that were checked.
    """
    lines = []
    for instruction in recipe.instructions:
        flags = (f"--{name}={setting}" for name, setting in instruction.flags.items())
        lines.append(" ".join((instruction.name, *flags, instruction.arguments)))
        if instruction.name == "FROM":
            lines.append(f"LABEL {json.dumps(OURS)}={json.dumps(value)}")
    return "\n".join((*lines, ""))


def tag_refused(tag: str) -> str:
    """Return why a build or push may not use this name; "" if it may."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._/:-]*", tag) or tag.endswith((":", "/")) or "//" in tag:
        return f"`{tag}` is not a name with a tag; write lower-case letters, such as `team/tool:1`"
    if images.is_own(tag):
        return f"`{tag}` is one of Paddock's own names; choose another"
    if "." in tag.partition(":")[0] and "/" not in tag:
        return f"`{tag}` is not a name with a tag; write it as `team/tool:1`"
    return ""


def with_tag(name: str) -> str:
    """Return the name with the tag that the engine assumes."""
    folder, slash, last = name.rpartition("/")
    return name if ":" in last or "@" in last else f"{folder}{slash}{last}:latest"


def _logical(file: str, text: str, problems: list[Problem]) -> Iterator[tuple[int, str]]:
    """Yield each instruction's first line, and its text in one line.

    Engines differ in a few details of form, so that one could see an instruction where another sees part of the line
    before. Those are problems here.
    """
    first_line, parts = 0, list[str]()
    directives = True
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t")
        content = (
            raw.rstrip(" \t") if parts else line
        )  # as engines do: the blanks before a continued line separate words
        if not line.isprintable() and not line.replace("\t", " ").isprintable():
            problems.append(Problem(file, number, 1, "", "has a control character or an odd space; remove it"))
        if directives and (match := _DIRECTIVE.match(line)):
            problems += _directive(file, number, match)
            continue
        directives = False
        if line.startswith("#") and parts and raw != line:
            problems.append(Problem(file, number, 1, "", "is a comment inside an instruction; put it above that"))
        if line.startswith("#") or not line:
            continue
        if line.endswith("\\\\"):
            problems.append(Problem(file, number, 1, "", "ends in two backslashes, which engines read differently"))
        first_line = first_line if parts else number
        continues = line.endswith("\\")
        parts.append(content[:-1] if continues else content)
        if not continues:
            yield first_line, "".join(parts)
            parts = []
    if parts:
        problems.append(Problem(file, first_line, 1, "", "is not finished: the file ends after a `\\`"))


def _directive(file: str, line: int, directive: re.Match[str]) -> Iterator[Problem]:
    name = directive[1].lower()
    if name == "syntax":
        yield Problem(file, line, 1, "syntax", _SYNTAX)
    elif name == "escape" and directive[2] != "\\":
        yield Problem(file, line, 1, "escape", "only `\\` continues a line here; remove the line")


def _outside(instructions: Sequence[Instruction]) -> Iterator[tuple[Instruction, str]]:
    """Yield the images that are no stages of the file, with the instruction that names each.

    To engines a stage exists once the next one begins: until then its name is that of an image.
    """
    stages: list[str] = []
    current: str | None = None
    for instruction in instructions:
        if instruction.name == "FROM":
            stages += [current] if current is not None else []
            base, current, _ = _from(instruction)
            if base and base.lower() not in (SCRATCH, *stages):
                yield instruction, base
        source = instruction.flags.get("from", "") if instruction.name == "COPY" else ""
        # Engines take a number for a stage; one that is too high is the name of an image.
        indexed = _INDEX.fullmatch(source) is not None and int(source) < len(stages)
        if source and source.lower() not in stages and not indexed:
            yield instruction, source


def _bases(instructions: Sequence[Instruction]) -> dict[str, int]:
    bases: dict[str, int] = {}
    for instruction, image in _outside(instructions):
        bases.setdefault(image, instruction.line)
    return bases


def _from(instruction: Instruction) -> tuple[str, str, list[str]]:
    """Return the base, the stage's name, and problems."""
    arguments = instruction.arguments.split()
    if "$" in instruction.arguments:
        return "", "", [_VARIABLE]
    if len(arguments) == 3 and arguments[1].upper() == "AS":
        return arguments[0], arguments[2].lower(), []
    if len(arguments) != 1:
        return "", "", ["must be FROM IMAGE, or FROM IMAGE AS NAME"]
    return arguments[0], "", []


def _instruction(instruction: Instruction, image_build: Allowed) -> Iterator[str]:
    if instruction.name in _REFUSED:
        yield _REFUSED[instruction.name]
        return
    if instruction.name not in _KNOWN:
        yield f"is not an instruction; known here: {', '.join(_KNOWN)}"
        return
    for flag in instruction.flags:
        if flag not in _FLAGS.get(instruction.name, ()):
            yield f"--{flag} is not supported; remove it"
    if instruction.name == "RUN" and image_build != "run":
        yield _NO_RUN
    if "<<" in instruction.arguments and instruction.name in ("RUN", "COPY"):
        yield "here-documents are not supported; put the content into a file of the context"
    if instruction.name == "LABEL" and _LABEL.search(instruction.arguments):
        yield "labels that begin with `paddock` are Paddock's own; remove them"
