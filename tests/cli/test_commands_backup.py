"""`paddock backup`: atomic, and readable by one user."""

import stat
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from controller.store.sql_store import SqlStore
from tests.api.listeners import opened, token
from tests.helpers_api import ApiStack

Run = Callable[..., Result]


def test_a_backup_holds_the_store(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.apply()
    file = tmp_path / "copy.db"
    done = paddock("backup", str(file))
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"({file.stat().st_size} bytes)" in done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    copy = SqlStore(f"sqlite:///{file}")
    copy.open()
    assert [stored.name for stored in copy.list("Sandbox")[0]] == ["quickstart"]
    assert copy.audit.entries()[-1].verb == "backup"
    copy.close()
    assert "file exists" in paddock("backup", str(file)).output


def test_a_planted_file_receives_no_backup(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("mine")
    (tmp_path / ".a.db.part").symlink_to(path)
    (tmp_path / ".b.db.part").touch(mode=0o666)
    for name in ("a.db", "b.db"):
        assert paddock("backup", str(tmp_path / name)).exit_code == 0
        assert not (tmp_path / name).is_symlink()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert path.read_text() == "mine"


def test_a_failed_backup_leaves_no_file(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.store.close()
    assert paddock("backup", str(tmp_path / "copy.db")).exit_code == 1
    assert paddock("backup", str(tmp_path / "none" / "copy.db")).exit_code == 1
    served.store.open()
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


def test_backup_needs_an_admin_of_all_namespaces(api: ApiStack, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from controller.cli.main import cli

    with opened(api):
        arguments = ["--server", f"unix://{api.socket}", "backup", str(tmp_path / "copy.db")]
        environment = {"PADDOCK_TOKEN": token(api, "admin", "default")}
        done = CliRunner().invoke(cli, arguments, env=environment)
    assert done.exit_code == 1
    assert "it needs the role admin in every namespace" in done.output
