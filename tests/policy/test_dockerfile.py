"""Dockerfiles: every refusal with its line, and no instruction that an engine sees where this parser sees none."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.runtime.images import OURS
from controller.policy.build.dockerfile import find_problems, labelled, read_dockerfile, tag_refused, with_tag
from controller.policy.images import ImageRules

RULES = ImageRules(("paddock/*", "registry.example/team/*"))
NO_RUN = "RUN: the operator allows no commands in builds"


def problem_texts(text: str, build_rule: str = "run", rules: ImageRules = RULES) -> list[str]:
    recipe, problems = read_dockerfile("D", text)
    return [str(problem) for problem in (*problems, *find_problems(recipe, rules, build_rule))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "text_part"),
    [
        ("FROM python\n", "D:1:1: FROM: `python` is not an image"),
        ("FROM $BASE\n", "D:1:1: FROM: a variable could name any image"),
        ("FROM --platform=arm64 paddock/base:1\n", "D:1:1: FROM: --platform is not supported"),
        ("FROM paddock/base:1 as\n", "D:1:1: FROM: must be FROM IMAGE"),
        ("RUN make\n", "D:1:1: RUN: a Dockerfile begins with FROM"),
        ("FROM paddock/base:1\nADD a /a\n", "D:2:1: ADD: may fetch from a network; write COPY"),
        ("FROM paddock/base:1\nadd\thttp://a /a\n", "D:2:1: ADD: may fetch"),
        ("FROM paddock/base:1\nONBUILD RUN x\n", "D:2:1: ONBUILD: would run in builds of others"),
        ("FROM paddock/base:1\nMAINTAINER me\n", "D:2:1: MAINTAINER: is obsolete"),
        ("FROM paddock/base:1\nFETCH x\n", "D:2:1: FETCH: is not an instruction"),
        ("FROM paddock/base:1\nRUN --mount=type=secret,id=a make\n", "D:2:1: RUN: --mount is not supported"),
        ("FROM paddock/base:1\nRUN --network=host make\n", "D:2:1: RUN: --network is not supported"),
        ("FROM paddock/base:1\nRUN --security=insecure make\n", "D:2:1: RUN: --security is not supported"),
        ("FROM paddock/base:1\nCOPY --from=evil/x a b\n", "D:2:1: COPY: `evil/x` is not an image"),
        ('FROM paddock/base:1\nCOPY --fr"o"m=evil/x a b\n', 'D:2:1: COPY: `--fr"o"m=evil/x` is not supported'),
        ("FROM paddock/base:1\nCOPY --fr\\om=evil/x a b\n", "is not supported"),
        ("FROM paddock/base:1\nCOPY --from=$X a b\n", "D:2:1: COPY: `--from=$X` is not supported"),
        ("FROM paddock/base:1\nCOPY --from=7 a b\n", "D:2:1: COPY: `7` is not an image"),
        ("FROM paddock/base:1\nCOPY --chown=1:1\\\n --from=evil/x / /x\n", "D:2:1: COPY: `evil/x` is not an image"),
        ("FROM evil/x\\\n as\\\n\ty\n", "D:1:1: FROM: `evil/x` is not an image"),
        ("FROM paddock/base:1 AS a\nCOPY --from=a a b\n", "D:2:1: COPY: `a` is not an image"),
        ("FROM paddock/base:1 AS a\nCOPY --from=0 a b\n", "D:2:1: COPY: `0` is not an image"),
        ("FROM paddock/base:1\nFROM scratch AS a\nCOPY --from=1 a b\n", "D:3:1: COPY: `1` is not an image"),
        ("FROM a AS a\nFROM a\n", "D:1:1: FROM: `a` is not an image"),
        ("FROM paddock/base:1\nCOPY <<EOF /a\nRUN x\nEOF\n", "D:2:1: COPY: here-documents are not supported"),
        ("FROM paddock/base:1\nLABEL paddock.dev/recipe=x\n", "D:2:1: LABEL: labels that begin with `paddock`"),
        ('FROM paddock/base:1\nLABEL a=b \\\n  "paddock/uid"=x\n', "D:2:1: LABEL: labels that begin"),
        ("# syntax=evil/frontend\nFROM paddock/base:1\n", "D:1:1: syntax: another frontend"),
        ("# escape=`\nFROM paddock/base:1\n", "D:1:1: escape: only `\\` continues a line"),
        ("FROM paddock/base:1\nENV A=b\\\\\nRUN x\n", "D:2:1: ends in two backslashes"),
        ("FROM paddock/base:1\nENV A=b \\\n  # note\nRUN x\n", "D:3:1: is a comment inside an instruction"),
        ("FROM paddock/base:1\nENV A=b\u2028RUN x\n", "D:2:1: has a control character"),
        ("FROM paddock/base:1\nENV A=b \\\u00a0\nRUN x\n", "D:2:1: has a control character"),
        ("\ufeffFROM paddock/base:1\n", "D:1:1: has a control character"),
        ("FROM paddock/base:1\nENV A=b \\\n", "D:2:1: is not finished"),
        ("# only a comment\n", "D: is empty; it begins with FROM"),
        ("#" * (300 << 10), "D: is larger than 256 KiB"),
    ],
)
def test_it_is_refused_with_its_line(text: str, text_part: str) -> None:
    names = problem_texts(text)
    assert any(text_part in name for name in names), names


def test_a_plain_dockerfile_is_admitted() -> None:
    text = (
        "# check=skip=all\nARG V=1\nFROM paddock/base:1 AS Build\nENV A=b \\\n\n# note\n  C=d\nRUN make \\\n    all\r\n"
        'FROM scratch\nCOPY --from=build --chown=1:1 /a /a\nCOPY --from=0 ["b c", "/b"]\n'
        "COPY --from=registry.example/team/tool:1 /t /t\nHEALTHCHECK --interval=5s CMD true\n"
    )
    assert problem_texts(text) == []
    recipe, _ = read_dockerfile("D", text)
    assert dict(recipe.bases) == {"paddock/base:1": 3, "registry.example/team/tool:1": 13}
    assert [name for name in problem_texts(text, "copy") if NO_RUN not in name] == []
    assert len(problem_texts(text, "copy")) == 1


def test_the_present_stage_is_no_base_of_its_own() -> None:
    text = "FROM paddock/base:1 AS a\nCOPY --from=a x y\nFROM a AS b\nCOPY --from=a x y\nCOPY --from=0 x y\n"
    assert dict(read_dockerfile("D", text)[0].bases) == {"paddock/base:1": 1, "a": 2}


def test_every_stage_gets_our_label() -> None:
    recipe, _ = read_dockerfile("D", "FROM \\\n a\nRUN x\nFROM b AS c\n")
    assert labelled(recipe, "1").split("\n") == [
        *("FROM a", f'LABEL "{OURS}"="1"', "RUN x", "FROM b AS c", f'LABEL "{OURS}"="1"', "")
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "COPY --chown=1:1\\\n --from=paddock/a:1 \\\n\n# note\n\t/ \\ \n/x\n",
            "COPY --chown=1:1 --from=paddock/a:1 / /x",
        ),
        ("ENV A=b\\\nc\\\n  D=e\n", "ENV A=bc  D=e"),
        ('\\\n  cmd ["a b",\\\n  "c"]\n', 'CMD ["a b",  "c"]'),
        ("HEALTHCHECK --retries=3 --retries=4 CMD  x  y", "HEALTHCHECK --retries=4 CMD  x  y"),
    ],
)
def test_the_engine_gets_the_words_that_were_checked(text: str, line: str) -> None:
    recipe, problems = read_dockerfile("D", f"FROM paddock/base:1\n{text}")
    assert problems == []
    assert labelled(recipe, "1").split("\n")[2:] == [line, ""]


_PIECES = st.sampled_from(
    (
        *(
            "FROM paddock/base:1",
            "RUN evil",
            "ENV A=b",
            "COPY a b",
            "LABEL a=b",
            "\\",
            "\\\\",
            "#",
            "# c",
            "\n",
            "\r\n",
        ),
        *("\n", " ", "\t", "\r", "\x0b", "\x85", "\xa0", "\u2028", "run\tevil", "'", '"', "<<EOF", "EOF", "--from=x"),
    )
)


def _as_engines_do(text: str) -> list[str]:
    """Instructions as the classic parser has them: lines end at `\\n` alone, and `\\` with blanks continues."""
    names, current = list[str](), ""
    for raw in text.split("\n"):
        line = raw.removesuffix("\r").lstrip()
        if line.startswith("#") or not line:
            continue
        continued = re.search(r"\\[ \t]*\Z", line)
        current += line[: continued.start()] if continued else line
        if not continued:
            names.append(current)
            current = ""
    return [*names, current] if current else names


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_no_command_hides_from_the_rules(text: str) -> None:
    text = f"FROM paddock/base:1\n{text}"
    runs = any(re.match(r"\s*run\b", name, re.IGNORECASE) for name in _as_engines_do(text))
    assert not runs or problem_texts(text, "copy")


@pytest.mark.parametrize(
    ("tag", "good"),
    [
        *((entry, True) for entry in ("team/tool:1", "tool", "registry.example:5000/a/b:c", "127.0.0.1:5000/a:1")),
        *(
            (entry, False)
            for entry in ("", "Team/tool", "paddock/egress:1", "docker.io/paddock/x", "index.docker.io/paddock/x")
        ),
        *((entry, False) for entry in ("a:", "a//b", "registry.example:5000", "a@sha256:1", "-a", "a b")),
    ],
)
def test_tags_are_names_outside_of_paddocks_own(tag: str, good: bool) -> None:
    assert (tag_refused(tag) == "") is good


def test_the_tag_is_latest_if_none_is_written() -> None:
    names = ("a", "a:1", "r:5000/a", "r:5000/a:2")
    assert [with_tag(name) for name in names] == ["a:latest", "a:1", "r:5000/a:latest", "r:5000/a:2"]
