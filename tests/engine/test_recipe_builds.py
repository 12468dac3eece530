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


class World:
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
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    # Opened for both, the fifo never blocks: a build that still runs ends.
    end = os.open(tmp_path / "end", os.O_RDWR)
    os.write(end, b"0\n")
    os.close(end)


def progress(outcome: Outcome) -> str:
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "ImageBuilding"
    return outcome.message


def test_a_build_reports_its_seconds(world: World) -> None:
    assert progress(world.builds.ensure(NODE)) == f"{NODE} is being built on this host: 0 s"
    world.clock.advance(47)
    assert progress(world.builds.ensure(NODE)) == f"{NODE} is being built on this host: 40 s"
    assert isinstance(world.end(NODE), Ok)
    assert (world.folder / "environment").read_text() == "unix:///nowhere no\n"


def test_one_image_is_built_at_a_time(world: World) -> None:
    world.builds.ensure(NODE)
    assert progress(world.builds.ensure(PYTHON)) == f"{PYTHON} is built next on this host, after {NODE}: 0 s"
    assert isinstance(world.end(NODE), Ok)
    begins = f"{PYTHON} is being built"
    wait_for("the lock is free", lambda: progress(world.builds.ensure(PYTHON)).startswith(begins))
    assert isinstance(world.end(PYTHON), Ok)


def test_a_failed_build_backs_off(world: World) -> None:
    world.builds.ensure(NODE)
    failed = world.end(NODE, code=1)
    assert isinstance(failed, Transient)
    assert (failed.reason, "no mirror answers" in failed.message) == ("ImageBuildFailed", True)
    world.clock.advance(9)
    assert world.builds.ensure(NODE) == failed
    world.clock.advance(2)
    assert progress(world.builds.ensure(NODE))
    assert isinstance(world.end(NODE, code=1), Transient)
    world.clock.advance(11)  # twice as long
    assert isinstance(world.builds.ensure(NODE), Transient)


def test_a_killed_daemons_build_is_adopted(world: World) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(world.folder)], check=False)
    assert killed.returncode == -9
    assert progress(world.builds.ensure(NODE)) == f"{NODE} is being built on this host: 0 s"
    assert isinstance(world.end(NODE), Ok)


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


def test_a_host_without_docker_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(world.folder))
    ensure = world.builds.ensure(NODE)
    assert isinstance(ensure, Transient)
    assert "this host has no `bash` command" in ensure.message
