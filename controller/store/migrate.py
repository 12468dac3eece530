"""Brings a database to the newest schema, all or nothing, inside the caller's transaction."""

import importlib.util
import threading
import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, select

from controller.ports import StoreError, StoreTooNew
from controller.store.schema import meta

# Alembic hands env.py its connection through globals of a module: one migration at a time in a process.
_one_at_a_time = threading.Lock()


def scripts_folder() -> Path:
    """Where the migrations are: inside the installed package, or beside it in a checkout."""
    package = importlib.util.find_spec("controller")
    if package is None or not package.submodule_search_locations:
        raise StoreError("store: paddock is not installed whole; install it again")
    for root in map(Path, package.submodule_search_locations):
        for folder in (root / "migrations", root.parent / "migrations"):
            if (folder / "env.py").is_file():
                return folder
    raise StoreError("store: the migrations are missing from this installation; install paddock again")


def current(connection: Connection) -> str | None:
    """The revision of the database's schema; None for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """The newest revision that this code knows."""
    config = Config()
    config.set_main_option("script_location", str(scripts_folder()).replace("%", "%%"))
    return ScriptDirectory.from_config(config).get_current_head() or ""


def upgrade(connection: Connection, name: str, *, scripts: Path | None = None, revision: str = "head") -> None:
    """Bring the schema up. Raises StoreTooNew for a revision that this code does not know; `name` is for words."""
    config = _config(connection, scripts)
    known = _revisions(config)
    found = current(connection)
    if found is not None and found not in known:
        raise StoreTooNew(
            f"store {name} was written by a newer paddock (its schema is {found}, which this version does not know);"
            " install that version again, or restore a backup made with this one"
        )
    with _one_at_a_time:
        command.upgrade(config, revision)


def known_revisions() -> set[str]:
    """The schemas that this code can read, by migrating them where it has to."""
    config = Config()
    config.set_main_option("script_location", str(scripts_folder()).replace("%", "%%"))
    return _revisions(config)


def _revisions(config: Config) -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}


def downgrade(connection: Connection, revision: str, *, scripts: Path | None = None) -> None:
    """Take the schema back to `revision` (`base`: nothing left)."""
    with _one_at_a_time:
        command.downgrade(_config(connection, scripts), revision)


def identify(connection: Connection) -> str:
    """The store's instance id, made now if this is a new store."""
    found: str | None = connection.execute(select(meta.c.instance_id)).scalar_one_or_none()
    if found is not None:
        return found
    made = str(uuid.uuid4())
    connection.execute(insert(meta).values(id=1, instance_id=made, epoch=1, revision=0, pruned_revision=0))
    return made


def _config(connection: Connection, scripts: Path | None) -> Config:
    config = Config()
    folder = str(scripts or scripts_folder())
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
