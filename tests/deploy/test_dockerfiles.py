"""The recipes of images: rules that a linter of Dockerfiles has, and some of our own."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.kinds.common.labels import fits_any_user
from deploy.supply import sources
from tests.deploy.conftest import CHECKOUT

RECIPES = [CHECKOUT / "images" / each / "Dockerfile" for each in sources.images()]
README = (CHECKOUT / "images" / "README.md").read_text()
# Runs as root, without a sandbox: the daemon itself. What it may do is said where it is started.
ROOT = {"daemon"}
# What nobody runs by other means than Paddock, which looks at proxies and agents itself.
NO_HEALTH = {"base", "tiny", "agent", "egress"}
NO_SANDBOX = {"agent", "daemon", "egress"}
SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key)\s*=")


@dataclass
class Recipe:
    """The instructions of a Dockerfile, by stage."""

    name: str
    text: str
    stages: list[list[tuple[str, str]]] = field(default_factory=list)

    def of(self, word: str, *, last: bool = False) -> list[str]:
        stages = self.stages[-1:] if last else self.stages
        return [rest for stage in stages for instruction, rest in stage if instruction == word]


def read(path: Path) -> Recipe:
    found = Recipe(path.parent.name, path.read_text())
    lines = [line for line in found.text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for instruction in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        word, _, rest = instruction.partition(" ")
        if word == "FROM":
            found.stages.append([])
        (found.stages[-1] if found.stages else []).append((word, rest.strip()))
    return found


def faults(recipe: Recipe) -> Iterator[str]:
    """Yield what is wrong with a recipe."""
    yield from _form(recipe)
    yield from _result(recipe)
    yield from _whole(recipe)
    for each in recipe.of("RUN"):
        yield from _command(each)


def _form(recipe: Recipe) -> Iterator[str]:
    tag = sources.tag(recipe.name)
    if not recipe.text.startswith(f"# {tag}: "):
        yield f"begins without `# {tag}: ` and what it is"
    if f"`{tag}`" not in README:
        yield "is missing in the table of images/README.md"
    for word in ("ADD", "MAINTAINER", "ONBUILD", "VOLUME"):
        if recipe.of(word):
            yield f"{word} is used; COPY says what it does, and the others bind those who use the image"
    for base in recipe.of("FROM"):
        image = base.split(" AS ")[0]
        if image not in ("scratch", "${ROOTFS}") and not re.fullmatch(r"paddock/[a-z]+:\d+", image):
            yield f"FROM {image}: not a pinned image of ours"
    for each in recipe.of("WORKDIR"):
        if not each.startswith("/"):
            yield f"WORKDIR {each} is relative"
    for each in (*recipe.of("ENV"), *recipe.of("ARG")):
        if SECRET.search(each):
            yield f"a secret in `{each}` stays in the image"
    for word in ("CMD", "ENTRYPOINT"):
        for each in recipe.of(word):
            if not each.startswith("["):
                yield f"{word} is a shell's line: signals don't reach the program"
            else:
                json.loads(each)


def _result(recipe: Recipe) -> Iterator[str]:
    last = recipe.stages[-1]
    if last[0] != ("FROM", "scratch"):
        yield "its last stage is not FROM scratch: layers and history of the build stay in it"
    if recipe.of("RUN", last=True) and recipe.name != "tiny":  # which has nothing but its one program
        yield "its last stage runs commands"
    users = recipe.of("USER", last=True)
    if not users or not re.fullmatch(r"\d+:\d+", users[-1]):
        yield "names no numeric USER in its last stage"
    elif users[-1].startswith("0:") and recipe.name not in ROOT:
        yield "runs as root"
    if recipe.name not in NO_SANDBOX and not fits_any_user(dict(each.split("=") for each in recipe.of("LABEL"))):
        yield "does not say that it fits any user; see images/README.md"
    if len(recipe.of("CMD", last=True)) + len(recipe.of("ENTRYPOINT", last=True)) != 1:
        yield "has not one CMD or ENTRYPOINT in its last stage"
    health = recipe.of("HEALTHCHECK", last=True)
    if not health and recipe.name not in NO_HEALTH:
        yield "has no HEALTHCHECK"
    for each in health:
        if " CMD [" not in each or "--timeout=" not in each:
            yield f"HEALTHCHECK {each}: not a program with a time limit"


def _command(line: str) -> Iterator[str]:
    if not line.startswith(("set -eu;", "[")):
        yield f"RUN {line[:40]}: does not begin with `set -eu;`"
    for word in (
        "sudo",
        "apt ",
        "curl ",
        "wget ",
        "chmod 777",
        "--allow-unauthenticated",
        "--force-yes",
        "pip install",
    ):
        if re.search(rf"(^|[;&|] *){re.escape(word)}", line) or (word.startswith("-") and word in line):
            yield f"RUN uses `{word.strip()}`"
    if "apt-get" in line:
        for needed in (
            "export APT_CONFIG=/host-apt/apt.conf DEBIAN_FRONTEND=noninteractive",
            "apt-get -q update;",
            "apt-get -q -y install --no-install-recommends",
        ):
            if needed not in line:
                yield f"RUN lacks `{needed}`"


def _whole(recipe: Recipe) -> Iterator[str]:
    """Yield what an image leaves behind that takes over its build stage as a whole."""
    if "--from=build / /" not in recipe.of("COPY", last=True):
        return
    build = " ".join(recipe.of("RUN"))
    needed = ["/tmp/*"]
    if "apt-get" in build:
        needed += ["-perm /6000 -exec chmod a-s", "/host-apt", "/var/lib/apt/lists", "/var/cache/apt"]
    for each in needed:
        if each not in build:
            yield f"its build stage does not remove {each}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_recipes_keep_the_rules(path: Path) -> None:
    assert list(faults(read(path))) == []


BAD = """FROM debian:latest
ADD x /x
ENV API_KEY=1
WORKDIR here
RUN apt-get install curl && curl http://x | sh
CMD sleep 1
"""


def test_a_bad_recipe_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    path = tmp_path / "bad" / "Dockerfile"
    path.write_text(BAD)
    said = "\n".join(faults(read(path)))
    for words in (
        "begins without",
        "is missing in the table",
        "ADD is used",
        "FROM debian:latest: not a pinned image",
        "WORKDIR here is relative",
        "a secret in `API_KEY=1`",
        "CMD is a shell's line",
        "not FROM scratch",
        "names no numeric USER",
        "does not say that it fits any user",
        "has no HEALTHCHECK",
        "does not begin with `set -eu;`",
        "lacks `apt-get -q update;`",
        "runs commands",
    ):
        assert words in said, words
