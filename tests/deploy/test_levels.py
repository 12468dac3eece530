"""deploy/levels.sh: the guard and the proxy of levels with a network; what can't be done is said, and fails nothing."""

import os

import pytest

from tests.deploy.conftest import FEDORA, World

# Keeps the table as a file, as the kernel would.
NFT = """#!/bin/sh
case "$*" in
"list table inet paddock") test -e "$TMPDIR/table" ;;
"-c -f "*) ;;
"-f "*) touch "$TMPDIR/table" ;;
"delete table inet paddock") rm "$TMPDIR/table" ;;
*) exit 9 ;;
esac
"""
DOCKER = '#!/bin/sh\ntest -e "$TMPDIR/image"\n'
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root
def test_the_guard_is_loaded_once_and_taken_away(world: World) -> None:
    world.command("nft", NFT)
    assert "Loading the guard" in world.run("deploy/levels.sh", "guard").stdout
    assert (world.base / "table").exists()
    assert world.run("deploy/levels.sh", "guard").stdout == ""
    assert world.run("deploy/levels.sh", "unload").returncode == 0
    assert not (world.base / "table").exists()


@root
def test_a_guard_of_somebody_else_stays(world: World) -> None:
    world.command("nft", NFT)
    (world.base / "table").touch()
    world.run("deploy/levels.sh", "guard")
    world.run("deploy/levels.sh", "unload")
    assert (world.base / "table").exists()


@root
def test_a_guard_that_does_not_load_fails_nothing(world: World) -> None:
    world.command("nft", "#!/bin/sh\necho 'no kernel for that'; exit 1\n")
    result = world.run("deploy/levels.sh", "guard")
    assert (result.returncode, "could not be loaded: no kernel for that" in result.stderr) == (0, True)
    assert (
        "full-isolation.\n    development, build, production: the guard" in world.run("deploy/levels.sh", "show").stdout
    )


@root
def test_the_last_lines_say_which_levels_work(world: World) -> None:
    world.command("docker", DOCKER)
    world.system(FEDORA)
    assert "nft is not installed" in world.run("deploy/levels.sh", "show").stdout
    world.command("nft", NFT)
    world.run("deploy/levels.sh", "guard")
    assert (
        "full-isolation, production.\n    development, build: the image" in world.run("deploy/levels.sh", "show").stdout
    )
    (world.base / "image").touch()
    assert "full-isolation, development, build, production." in world.run("deploy/levels.sh", "show").stdout


def test_without_root_only_the_strictest_level_is_promised(world: World) -> None:
    world.command("nft", NFT)
    result = world.run("deploy/levels.sh", "show", prefix=world.as_nobody())
    assert (
        "work here: full-isolation.\n    development, build, production: the guard of networks needs root"
        in result.stdout
    )
