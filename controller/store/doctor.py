"""Inspection of the database for `paddock doctor`: creates and migrates nothing, safe beside a daemon."""

import os
from dataclasses import replace
from pathlib import Path

from sqlalchemy import func, make_url, select, update
from sqlalchemy.exc import SQLAlchemyError

from controller.kinds.host import HOLDING, build_of, lease_of
from controller.kinds.meta import StoredObject
from controller.kinds.observed.doctor import FailingCondition, HostSighting, StoreFacts
from controller.ports import Clock, StoreError
from controller.store import migrate, rows
from controller.store.connect import connect
from controller.store.database import Database
from controller.store.errors import explain
from controller.store.schema import meta
from controller.store.transaction import listed

_NOW = func.extract("epoch", func.clock_timestamp())


def inspect_store(
    url: str, fleet: Clock | None = None, *, schema: str | None = None, wait_seconds: float = 5.0
) -> StoreFacts:
    """Return the state of the store at that URL; of many hosts, with a clock of this one, their states too.

    Never raises.
    """
    try:
        database = connect(url, schema=schema, wait_seconds=wait_seconds)
    except StoreError as error:
        return StoreFacts("", trouble=str(error))
    try:
        file = _sqlite_file(url)
        if file is not None and not file.exists():  # connecting would make it
            return StoreFacts(str(file), refuses=_no_place(file), newest=migrate.head())
        found = _look(database)
        return found if fleet is None or found.schema != found.newest else _with_hosts(database, found, fleet)
    except StoreError as error:
        return StoreFacts(database.name, trouble=str(error))
    except (SQLAlchemyError, OSError, database.driver_error) as error:
        return StoreFacts(database.name, trouble=str(explain(error, database.name).error))
    finally:
        database.close()


def _look(database: Database) -> StoreFacts:
    with database.reading() as connection:
        schema = migrate.current(connection) or ""
        known = not schema or schema in migrate.known_revisions() or migrate.is_open_to(connection, migrate.head())
    refuses = _refusal(database) if schema else ""
    return StoreFacts(database.name, refuses=refuses, schema=schema, newest=migrate.head(), known=known)


def _with_hosts(database: Database, found: StoreFacts, clock: Clock) -> StoreFacts:
    """Add the hosts that share the store, and the difference of its clock."""
    with database.reading() as connection:
        objects = [rows.object_from_row(row) for row in listed(connection, "Host", None)]
        skew = None
        if connection.dialect.name == "postgresql":
            skew = float(connection.execute(select(_NOW)).scalar_one()) - clock.now()
    alive = {each.name for each in database.leases() if each.seconds_left > 0}
    hosts = [_sighting(each, is_alive=lease_of(each.name) in alive) for each in objects]
    return replace(found, hosts=tuple(hosts), skew_seconds=skew)


def _sighting(host: StoredObject, *, is_alive: bool) -> HostSighting:
    """Return a host as its daemon has stored it. What was reported by one that is away may not hold now."""
    version = build_of(host.status)
    reported = host.status.get("conditions", ()) if is_alive else ()
    failing = [
        FailingCondition(each["type"], f"{each['type']} is False ({each.get('message') or each.get('reason', '')})")
        for each in reported
        if each["type"] in HOLDING and each["status"] == "False"
    ]
    address, images = str(host.status.get("address") or ""), frozenset(host.status.get("images") or ())
    return HostSighting(host.name, version, is_alive, address, tuple(failing), images=images)


def _refusal(database: Database) -> str:
    """Try a write, and roll it back."""
    try:
        database.check()
        with database.writing() as connection:
            connection.execute(update(meta).values(revision=meta.c.revision))
            connection.rollback()
    except StoreError as error:
        return str(error)
    except (SQLAlchemyError, OSError, database.driver_error) as error:
        return str(explain(error, database.name).error)
    return ""


def _sqlite_file(url: str) -> Path | None:
    parsed = make_url(url)
    return Path(str(parsed.database)).absolute() if parsed.get_backend_name() == "sqlite" else None


def _no_place(file: Path) -> str:
    folder = next(each for each in file.parents if each.exists())
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"store {file}: can't be created: {folder} is not writable"
