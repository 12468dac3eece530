"""The guard: whether it stands is read off the rules that are loaded, and nothing but all of them will do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from controller.engine.kernel.firewall import RULES, NftFirewall, missing

FILE = Path(__file__).parents[2] / "deploy" / "paddock-guard.nft"


def listing(rules: frozenset[str] = RULES, hooks: tuple[str, ...] = ("input", "forward")) -> str:
    chains = [{"chain": {"name": each, "hook": each}} for each in hooks]
    return json.dumps({"nftables": [*chains, *({"rule": {"comment": each}} for each in rules)]})


def test_all_of_it_is_a_guard() -> None:
    assert missing(listing()) == ""


@pytest.mark.parametrize("gone", sorted(RULES))
def test_a_rule_that_is_gone_is_told(gone: str) -> None:
    assert f"lacks {gone}" in missing(listing(RULES - {gone}))


def test_a_chain_that_hangs_nowhere_is_told() -> None:
    assert "lacks forward" in missing(listing(hooks=("input",)))


def test_an_answer_that_is_none_guards_nothing() -> None:
    assert "can't be read" in missing("nonsense")


def test_without_nft_nothing_is_guarded() -> None:
    assert "not installed" in NftFirewall(("/nonexistent/nft",)).unguarded()


def test_every_rule_that_is_looked_for_is_in_the_file() -> None:
    text = FILE.read_text()
    assert all(f'comment "{each}"' in text for each in RULES)


@pytest.mark.docker
@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft")
def test_the_file_loads_twice_and_a_flush_is_noticed() -> None:
    """In a network namespace of its own."""
    script = f"""
        import subprocess
        from controller.engine.kernel.firewall import NftFirewall
        def nft(*words): subprocess.run(["nft", *words], check=True)
        assert "can't be read" in NftFirewall().unguarded()
        for _ in range(2):
            nft("-c", "-f", "{FILE}"), nft("-f", "{FILE}")
            assert NftFirewall().unguarded() == "", NftFirewall().unguarded()
        nft("flush", "chain", "inet", "paddock", "forward")
        assert "lacks paddock-into" in NftFirewall().unguarded()
        nft("flush", "ruleset")
        assert "can't be read" in NftFirewall().unguarded()
    """
    import sys
    import textwrap

    command = ["unshare", "--net", sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FILE.parents[1])
    assert done.returncode == 0, done.stderr
