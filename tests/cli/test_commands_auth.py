"""`paddock auth` and `paddock token`, and the credentials that the client sends."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from tests.api.listeners import opened, token
from tests.helpers_api import ApiStack

Run = Callable[..., Result]


@pytest.fixture
def listeners(api: ApiStack) -> Iterator[ApiStack]:
    api.apply()
    with opened(api, host="127.0.0.1") as created:
        api.tcp = created.url  # type: ignore[attr-defined]
        yield api


@pytest.fixture
def paddock(listeners: ApiStack) -> Run:
    def run(*words: str, tcp: bool = False, **environment: str) -> Result:
        server = listeners.tcp if tcp else f"unix://{listeners.socket}"  # type: ignore[attr-defined]
        return CliRunner().invoke(cli, ["--server", server, *words], env=environment)

    return run


def test_whoami(paddock: Run, listeners: ApiStack) -> None:
    mine = paddock("auth", "whoami").output.splitlines()
    assert mine[1].split() == ["ROLE", "NAMESPACES", "BOUNDS"]
    assert mine[2].split() == ["admin", "*", "none"]
    bounds = {"images": ["a/*"], "limits": {"memory": "1Gi"}, "requireDigest": True}
    text = token(listeners, "user", "team-a", "team-b", name="ci", **bounds)
    assert paddock("auth", "whoami", PADDOCK_TOKEN=text).output.splitlines() == [
        "token ci",
        "ROLE   NAMESPACES      BOUNDS",
        "user   team-a,team-b   images=a/* digests only memory<=1Gi",
    ]
    assert '"role": "user"' in paddock("auth", "whoami", "-o", "json", PADDOCK_TOKEN=text).output


def test_can_i(paddock: Run, listeners: ApiStack) -> None:
    text = token(listeners, "user", "team-a")
    assert paddock("auth", "can-i", "create", "sb", "-n", "team-a", PADDOCK_TOKEN=text).output == "yes\n"
    assert paddock("auth", "can-i", "exec", "sandbox/x", "-n", "team-a", PADDOCK_TOKEN=text).exit_code == 0
    output = paddock("auth", "can-i", "update", "quota", "-n", "team-a", PADDOCK_TOKEN=text)
    assert output.exit_code == 1
    assert output.output.startswith("no\ntoken t0 may not update Quota; it needs the role admin")
    assert paddock("auth", "can-i", "list", "sandboxes", "-A", "-q", PADDOCK_TOKEN=text).exit_code == 1
    assert "there is no kind `boxes`" in paddock("auth", "can-i", "list", "boxes").output
    assert "`eat` is not a verb" in paddock("auth", "can-i", "eat", "sandboxes").output


def test_a_token_is_created_listed_and_revoked(paddock: Run, tmp_path: Path) -> None:
    file = tmp_path / "ci.token"
    output = paddock(
        "token", "create", "ci", "--role", "viewer", "-n", "default", "--expires", "1h", "--out", str(file)
    )
    assert (output.exit_code, output.stdout) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("pdk_")
    mine = {"tcp": True, "PADDOCK_TOKEN_FILE": str(file)}
    assert "quickstart" in paddock("get", "sandboxes", **mine).output
    assert "may not delete Sandbox; it needs the role user" in paddock("delete", "sandbox", "quickstart", **mine).output
    again = paddock("token", "create", "ci", "--role", "viewer", "-n", "default", "--out", str(tmp_path / "b"))
    assert again.exit_code == 1
    assert not (tmp_path / "b").exists()
    listed = paddock("token", "list").output
    assert listed.splitlines()[1].split()[:4] == ["ci", "active", "viewer", "default"]
    assert file.read_text().strip().split("_", 2)[2] not in listed
    assert paddock("token", "revoke", "ci").output == "token/ci revoked\n"
    assert "expired or revoked" in paddock("get", "sandboxes", **mine).output
    assert paddock("token", "revoke", "ci").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--expires", "0d"], "'--expires': `0d` is not a lifetime from 1s to 366d; write one, or never"),
        (["--expires", "400d"], "'--expires': `400d` is not a lifetime from 1s to 366d; write one, or never"),
        (["--expires", "soon"], "'--expires': `soon` is not a valid duration"),
        (["--max-memory", "foo"], "'--max-memory': `foo`"),
        (["--max-memory", "512m"], "'--max-memory': `512m` is 0.512 bytes; write `512Mi`"),
        (["--max-cpu", "1Gi"], "'--max-cpu': `1Gi`: `Gi` is not a unit of CPU"),
    ],
)
def test_wrong_bounds_name_their_option(paddock: Run, words: list[str], said: str) -> None:
    done = paddock("token", "create", "ci", "--role", "user", "-n", "team", *words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert "No tokens found." in paddock("token", "list").stderr


def test_token_without_out_is_alone_on_stdout(paddock: Run) -> None:
    output = paddock(
        "token", "create", "ci", "--role", "user", "-n", "team-*", "--max-memory", "1Gi", "--expires", "never"
    )
    assert output.exit_code == 0, output.output
    (line,) = output.stdout.splitlines()
    assert line.startswith("pdk_")
    assert "memory<=1Gi" in paddock("token", "list").output


@pytest.mark.parametrize("words", [("-n", "team*"), ("-n", "a", "--image", "a*")])
def test_an_invalid_grant_is_refused_by_the_daemon(paddock: Run, words: tuple[str, ...]) -> None:
    output = paddock("token", "create", "ci", "--role", "user", *words)
    assert output.exit_code == 1
    assert paddock("token", "list").stdout == ""


def test_an_unusable_token_is_reported(paddock: Run, tmp_path: Path) -> None:
    assert "can't read the token" in paddock("get", "sb", PADDOCK_TOKEN_FILE=str(tmp_path / "none")).output
    assert "spaces or unexpected characters" in paddock("get", "sb", PADDOCK_TOKEN="a\nb").output
    assert "this listener needs a token" in paddock("get", "sb", tcp=True).output
