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
from controller.store.transaction import list_rows

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
        facts = _look(database)
        return facts if fleet is None or facts.schema != facts.newest else _with_hosts(database, facts, fleet)
    except StoreError as error:
        return StoreFacts(database.name, trouble=str(error))
    except (SQLAlchemyError, OSError, database.driver_error) as error:
        return StoreFacts(database.name, trouble=str(explain(error, database.name).error))
    finally:
        database.close()


def _look(database: Database) -> StoreFacts:
    with database.reading() as connection:
        schema = migrate.current(connection) or ""
        is_known = not schema or schema in migrate.known_revisions() or migrate.is_open_to(connection, migrate.head())
    refuses = _refusal(database) if schema else ""
    return StoreFacts(
        database.name,
        refuses=refuses,
        schema=schema,
        newest=migrate.head(),
        is_supported=is_known,
    )


def _with_hosts(database: Database, facts: StoreFacts, clock: Clock) -> StoreFacts:
    """Add the hosts that share the store, and the difference of its clock."""
    with database.reading() as connection:
        objects = [rows.object_from_row(row) for row in list_rows(connection, "Host", None)]
        skew = None
        if connection.dialect.name == "postgresql":
            skew = float(connection.execute(select(_NOW)).scalar_one()) - clock.now()
    alive = {lease.name for lease in database.leases() if lease.seconds_left > 0}
    hosts = [_sighting(host, is_alive=lease_of(host.name) in alive) for host in objects]
    return replace(facts, hosts=tuple(hosts), skew_seconds=skew)


def _sighting(host: StoredObject, *, is_alive: bool) -> HostSighting:
    """Return a host as its daemon has stored it. What was reported by one that is away may not hold now."""
    version = build_of(host.status)
    reported = host.status.get("conditions", ()) if is_alive else ()
    failing = [
        FailingCondition(
            condition["type"],
            f"{condition['type']} is False ({condition.get('message') or condition.get('reason', '')})",
        )
        for condition in reported
        if condition["type"] in HOLDING and condition["status"] == "False"
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
    folder = next(parent for parent in file.parents if parent.exists())
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"store {file}: can't be created: {folder} is not writable"
