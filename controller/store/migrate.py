"""Migration of a database to the newest schema, atomically in the caller's transaction."""

import importlib.util
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, column, insert, inspect, select, table, update

from controller.ports import StoreError, StoreTooNew
from controller.store.schema import meta

# The oldest schema whose code may read and write the newest one, so that hosts are upgraded one after the other. A
# migration that only adds what older code leaves alone (columns with defaults, tables, indexes) keeps it. 0012 writes
# fields into specs, which older code refuses to run.
COMPATIBLE_SINCE = "0012"
# Alembic hands env.py its connection through globals of a module: one migration at a time in a process.
_one_at_a_time = threading.Lock()
_WINDOW = "0010"  # the schema that has `compatible_since`
# Alembic's own table, by its documented name.
_VERSION = table("alembic_version", column("version_num"))


def scripts_folder() -> Path:
    """Return the folder of the migrations: in the installed package, or beside it in a checkout."""
    package = importlib.util.find_spec("controller")
    if package is None or not package.submodule_search_locations:
        raise StoreError("store: the paddock package is incomplete; install paddock again")
    for root in map(Path, package.submodule_search_locations):
        for folder in (root / "migrations", root.parent / "migrations"):
            if (folder / "env.py").is_file():
                return folder
    raise StoreError("store: the migrations are missing from this installation; install paddock again")


def current(connection: Connection) -> str | None:
    """Return the revision of the database's schema; None for an empty database."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    revision: str | None = connection.execute(select(_VERSION.c.version_num)).scalar_one_or_none()
    return revision


def head() -> str:
    """Return the newest revision that this code knows."""
    return max(known_revisions())


def known_revisions(scripts: Path | None = None) -> frozenset[str]:
    """Return all revisions that this code can read or migrate, in order: the names of the migration files."""
    versions = (scripts or scripts_folder()) / "versions"
    return frozenset(file.name.partition("_")[0] for file in versions.glob("[0-9]*_*.py"))


def upgrade(
    connection: Connection,
    name: str,
    *,
    scripts: Path | None = None,
    revision: str = "head",
    other_daemons: Sequence[str] = (),
    compatible_since: str = COMPATIBLE_SINCE,
) -> None:
    """Upgrade the schema; `name` is for messages. `other_daemons` use the store now.

    One of a newer version is used as it is if that says that this code may. Raises StoreTooNew for any other newer one,
    and StoreError for one that is too old or where a running daemon could not use the new schema: nothing is migrated.
    """
    known_ids = known_revisions(scripts)
    stored_revision = current(connection)
    if stored_revision is not None and stored_revision not in known_ids:
        refuse_older(f"store {name}", stored_revision, known_ids)
        if is_open_to(connection, max(known_ids)):
            return
        raise StoreTooNew(
            f"store {name} was written by a newer paddock (its schema is {stored_revision}, which this version does not"
            " know); install that version again, or restore a backup made with this one"
        )
    target = max(known_ids) if revision == "head" else revision
    if stored_revision == target:
        return
    if stored_revision is not None and stored_revision < compatible_since and other_daemons:
        raise StoreError(
            f"store {name} has to be migrated from schema {stored_revision} to {target}, which daemons that run now"
            f" can't use ({', '.join(other_daemons)}); stop them first, upgrade all, and start them again"
        )
    _run("upgrade", connection, scripts, revision)
    if target >= _WINDOW:
        connection.execute(update(meta).values(compatible_since=compatible_since))


def refuse_older(what: str, schema: str, known_ids: frozenset[str]) -> None:
    """Raise StoreError for a schema of before the first that this code knows."""
    if schema < min(known_ids):
        raise StoreError(
            f"{what} is of a paddock that this one can't upgrade (schema {schema}; the oldest that it knows is"
            f" {min(known_ids)}); upgrade the store with the version before this one first"
        )


def is_open_to(connection: Connection, newest: str) -> bool:
    """Return True if a store of a newer version says that code whose newest schema is this one may use it."""
    if "compatible_since" not in {table_column["name"] for table_column in inspect(connection).get_columns(meta.name)}:
        return False
    oldest_compatible: str | None = connection.execute(select(meta.c.compatible_since)).scalar_one_or_none()
    return oldest_compatible is not None and oldest_compatible <= newest


def downgrade(connection: Connection, revision: str, *, scripts: Path | None = None) -> None:
    """Downgrade the schema to `revision` (`base`: no tables)."""
    _run("downgrade", connection, scripts, revision)


def _run(what: Literal["upgrade", "downgrade"], connection: Connection, scripts: Path | None, revision: str) -> None:
    # Here, not above: a daemon's store is nearly always up to date, and Alembic is a tenth of all that it would import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts or scripts_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        getattr(command, what)(config, revision)


def identify(connection: Connection) -> str:
    """Return the store's instance id; a new store gets one."""
    instance_id: str | None = connection.execute(select(meta.c.instance_id)).scalar_one_or_none()
    if instance_id is not None:
        return instance_id
    new_id = str(uuid.uuid4())
    first = {"id": 1, "instance_id": new_id, "epoch": 1, "revision": 0, "pruned_revision": 0}
    connection.execute(insert(meta).values(**first, compatible_since=COMPATIBLE_SINCE))
    return new_id
