"""deploy/levels.sh: the guard and the proxy of levels with a network; what can't be done is said, and fails nothing."""

import os

import pytest

from tests.deploy.conftest import FEDORA, Checkout

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
def test_the_guard_is_loaded_once_and_taken_away(checkout: Checkout) -> None:
    checkout.command("nft", NFT)
    assert "Loading the guard" in checkout.run("deploy/levels.sh", "guard").stdout
    assert (checkout.base / "table").exists()
    assert checkout.run("deploy/levels.sh", "guard").stdout == ""
    assert checkout.run("deploy/levels.sh", "unload").returncode == 0
    assert not (checkout.base / "table").exists()


@root
def test_a_guard_of_somebody_else_stays(checkout: Checkout) -> None:
    checkout.command("nft", NFT)
    (checkout.base / "table").touch()
    checkout.run("deploy/levels.sh", "guard")
    checkout.run("deploy/levels.sh", "unload")
    assert (checkout.base / "table").exists()


@root
def test_a_guard_that_does_not_load_fails_nothing(checkout: Checkout) -> None:
    checkout.command("nft", "#!/bin/sh\necho 'no kernel for that'; exit 1\n")
    result = checkout.run("deploy/levels.sh", "guard")
    assert (result.returncode, "could not be loaded: no kernel for that" in result.stderr) == (0, True)
    assert (
        "full-isolation.\n    development, build, production: the guard"
        in checkout.run("deploy/levels.sh", "show").stdout
    )


@root
def test_the_last_lines_say_which_levels_work(checkout: Checkout) -> None:
    checkout.command("docker", DOCKER)
    checkout.system(FEDORA)
    assert "nft is not installed" in checkout.run("deploy/levels.sh", "show").stdout
    checkout.command("nft", NFT)
    checkout.run("deploy/levels.sh", "guard")
    assert (
        "full-isolation, production.\n    development, build: the image"
        in checkout.run("deploy/levels.sh", "show").stdout
    )
    (checkout.base / "image").touch()
    assert "full-isolation, development, build, production." in checkout.run("deploy/levels.sh", "show").stdout


def test_without_root_only_the_strictest_level_is_promised(checkout: Checkout) -> None:
    checkout.command("nft", NFT)
    result = checkout.run("deploy/levels.sh", "show", prefix=checkout.as_nobody())
    assert (
        "work here: full-isolation.\n    development, build, production: the guard of networks needs root"
        in result.stdout
    )
