"""Builds of Paddock's own images in the background: one at a time, adopted after a kill, backing off when they fail."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.images.recipe_builds import RecipeBuilds
from controller.kinds.planning.outcome import Ok, Outcome, Transient, Waiting
from tests.conftest import HandClock
from tests.daemon import wait_for

NODE, PYTHON = "paddock/node:1", "paddock/python:1"
# It ends once its fifo is written to: with that exit code, and with the image if that is 0.
SCRIPT = """
echo "$PADDOCK_DOCKER_HOST $PADDOCK_INSTALL" >"{folder}/environment"
read -r code <"{folder}/end"
if [ "$code" = 0 ]; then touch "{folder}/built-$1"; else echo "error: no mirror answers"; fi
exit "$code"
"""
# Another process begins a build, and is killed as by kill -9.
KILLED = """
import os, signal, sys
from pathlib import Path
from controller.engine.images.recipe_builds import RecipeBuilds
from tests.conftest import HandClock
folder = Path(sys.argv[1])
builds = RecipeBuilds(lambda _: False, "unix:///nowhere", HandClock(), folder / "state", folder / "build.sh")
builds.ensure("paddock/node:1")
os.kill(os.getpid(), signal.SIGKILL)
"""


class ScriptedBuilder:
    """A script in the place of images/build.sh; the images that it built are files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, HandClock()
        os.mkfifo(folder / "end")
        (folder / "build.sh").write_text(SCRIPT.format(folder=folder))
        self.builds = RecipeBuilds(self.is_here, "unix:///nowhere", self.clock, folder / "state", folder / "build.sh")

    def is_here(self, image: str) -> bool:
        return (self.folder / f"built-{image.removeprefix('paddock/').removesuffix(':1')}").exists()

    def end(self, image: str, code: int = 0) -> Outcome:
        """End the build of an image, and return its outcome."""
        (self.folder / "end").write_text(f"{code}\n")
        outcomes: list[Outcome] = []

        def is_over() -> bool:
            outcomes.append(self.builds.ensure(image))
            return not isinstance(outcomes[-1], Waiting)

        wait_for(f"the build of {image} has ended", is_over)
        return outcomes[-1]


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[ScriptedBuilder]:
    builder = ScriptedBuilder(tmp_path)
    yield builder
    # Opened for both, the fifo never blocks: a build that still runs ends.
    end = os.open(tmp_path / "end", os.O_RDWR)
    os.write(end, b"0\n")
    os.close(end)


def progress(outcome: Outcome) -> str:
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "ImageBuilding"
    return outcome.message


def test_a_build_reports_its_seconds(builder: ScriptedBuilder) -> None:
    assert progress(builder.builds.ensure(NODE)) == f"{NODE} is being built on this host: 0 s"
    builder.clock.advance(47)
    assert progress(builder.builds.ensure(NODE)) == f"{NODE} is being built on this host: 40 s"
    assert isinstance(builder.end(NODE), Ok)
    assert (builder.folder / "environment").read_text() == "unix:///nowhere no\n"


def test_one_image_is_built_at_a_time(builder: ScriptedBuilder) -> None:
    builder.builds.ensure(NODE)
    assert progress(builder.builds.ensure(PYTHON)) == f"{PYTHON} is built next on this host, after {NODE}: 0 s"
    assert isinstance(builder.end(NODE), Ok)
    begins = f"{PYTHON} is being built"
    wait_for("the lock is free", lambda: progress(builder.builds.ensure(PYTHON)).startswith(begins))
    assert isinstance(builder.end(PYTHON), Ok)


def test_a_failed_build_backs_off(builder: ScriptedBuilder) -> None:
    builder.builds.ensure(NODE)
    failed = builder.end(NODE, code=1)
    assert isinstance(failed, Transient)
    assert (failed.reason, "no mirror answers" in failed.message) == ("ImageBuildFailed", True)
    builder.clock.advance(9)
    assert builder.builds.ensure(NODE) == failed
    builder.clock.advance(2)
    assert progress(builder.builds.ensure(NODE))
    assert isinstance(builder.end(NODE, code=1), Transient)
    builder.clock.advance(11)  # twice as long
    assert isinstance(builder.builds.ensure(NODE), Transient)


def test_a_killed_daemons_build_is_adopted(builder: ScriptedBuilder) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(builder.folder)], check=False)
    assert killed.returncode == -9
    assert progress(builder.builds.ensure(NODE)) == f"{NODE} is being built on this host: 0 s"
    assert isinstance(builder.end(NODE), Ok)


@pytest.mark.parametrize(
    ("image", "reason"),
    [(PYTHON, "ImageMissing"), ("paddock/egress:1", "EgressImageMissing"), ("paddock/agent:1", "AgentImageMissing")],
)
def test_without_builds_the_remedy_is_said(image: str, reason: str) -> None:
    builds = RecipeBuilds(lambda _: False, "unix:///nowhere", HandClock(), None)
    ensure = builds.ensure(image)
    assert isinstance(ensure, Transient)
    assert ensure.reason == reason
    assert "the setting build_images is off; build it (`images/build.sh" in ensure.message


def test_a_host_without_docker_says_so(builder: ScriptedBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(builder.folder))
    ensure = builder.builds.ensure(NODE)
    assert isinstance(ensure, Transient)
    assert "this host has no `bash` command" in ensure.message
