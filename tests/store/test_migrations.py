"""The schema lives long: up and down with data in it, on both databases, all or nothing."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from controller.kinds.planning.plan import Writes
from controller.ports import StoreError, StoreTooNew
from controller.store import migrate
from controller.store.schema import metadata
from controller.store.sql_store import SqlStore
from tests.contract.store_backends import BACKENDS, Backend, event, insert, instance, make_backend, new_sandbox, refusal

HEAD = migrate.head()

LATER = '''"""A migration of a later version: a new column in a table that others refer to."""

import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{head}"


def upgrade() -> None:
    with op.batch_alter_table("objects", recreate="auto") as table:
        table.add_column(sa.Column("later", sa.Text(), nullable=False, server_default="new"))
        table.alter_column("generation", type_=sa.Integer())
    {then}


def downgrade() -> None:
    with op.batch_alter_table("objects") as table:
        table.drop_column("later")
        table.alter_column("generation", type_=sa.BigInteger())
'''


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with make_backend(request.param, tmp_path, new=True) as created:
        yield created


@pytest.fixture
def later(tmp_path: Path) -> Path:
    return later_scripts(tmp_path, "pass")


def later_scripts(tmp_path: Path, then: str) -> Path:
    """The migrations of a later version."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.scripts_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9001_later.py").write_text(LATER.format(then=then, head=HEAD))
    return folder


def test_the_files_are_named_by_their_revisions_and_in_their_order() -> None:
    """Which lets a daemon with a store up to date start without Alembic."""
    config = Config()
    config.set_main_option("script_location", str(migrate.scripts_folder()))
    chain = ScriptDirectory.from_config(config)
    assert chain.get_current_head() == migrate.head()
    revisions = [script.revision for script in chain.walk_revisions()]
    assert revisions == sorted(migrate.known_revisions(), reverse=True)


def filled(backend: Backend) -> SqlStore:
    store = backend.store()
    [stored] = insert(store, new_sandbox(spec={"unknown": [1, {"deep": None}]}))
    store.record(Writes(instances=(instance(stored),), events=(event(stored),)))
    return store


def contents(store: SqlStore) -> tuple[object, ...]:
    return store.instance_id, store.list("Sandbox"), store.instances(), store.events(), store.changes(0)


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def test_models_and_migrations_agree(backend: Backend) -> None:
    backend.store()
    with backend.database() as database, database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_down_to_nothing_and_up_again(backend: Backend) -> None:
    first = filled(backend)
    before = first.instance_id
    first.close()
    with backend.database() as database, database.migrating() as connection:
        migrate.downgrade(connection, "base")
        assert tables(connection) <= {"alembic_version"}
    again = backend.store()
    assert again.list("Sandbox") == ([], 0)
    assert again.instance_id != before


def test_data_survives_a_later_version_and_the_way_back(backend: Backend, later: Path) -> None:
    store = filled(backend)
    before = contents(store)
    with backend.database() as database:
        with database.migrating() as connection:
            migrate.upgrade(connection, "it", scripts=later)
            observed = connection.execute(text("SELECT later FROM objects")).scalars().all()
            assert (migrate.current(connection), observed) == ("9001", ["new"])
        # What refers to the remade table refers to the new one, and nothing was lost on the way.
        assert contents(store) == before
        with database.migrating() as connection:
            migrate.downgrade(connection, HEAD, scripts=later)
    store.open()
    assert contents(store) == before
    with store.transaction() as transaction:
        transaction.remove(new_sandbox())
    assert list(store.instances()) == []


def test_a_version_of_one_host_has_all_on_it(backend: Backend) -> None:
    store = backend.store()
    objects = insert(store, *(new_sandbox(name) for name in ("a", "b", "c")))
    hosts = ("host", "b", "c")
    store.record(
        Writes(instances=tuple(instance(stored, host=host) for stored, host in zip(objects, hosts, strict=True)))
    )
    assert amounts(backend) == {"": 500, "default": 1500, "host/b": 500, "host/c": 500}
    store.close()
    with backend.database() as database, database.migrating() as connection:
        migrate.downgrade(connection, "0008")
    assert amounts(backend) == {"": 1500, "default": 1500}
    store.open()
    assert {entry.host for entry in store.instances()} == {"host"}
    assert amounts(backend) == {"": 1500, "default": 1500}


def amounts(backend: Backend) -> dict[str, int]:
    """Each scope's total of CPU."""
    with backend.database() as database, database.reading() as connection:
        rows = connection.execute(text("SELECT scope, cpu_millicores FROM totals"))
        return {row.scope: row.cpu_millicores for row in rows}


def test_a_migration_that_fails_leaves_nothing_behind(backend: Backend, tmp_path: Path) -> None:
    scripts = later_scripts(tmp_path, "raise ArithmeticError('halfway')")
    store = filled(backend)
    before = contents(store)
    with backend.database() as database:
        with pytest.raises(ArithmeticError, match="halfway"), database.migrating() as connection:
            migrate.upgrade(connection, "it", scripts=scripts)
        with database.reading() as connection:
            assert migrate.current(connection) == HEAD
            assert "later" not in {column["name"] for column in inspect(connection).get_columns("objects")}
    store.open()
    assert contents(store) == before


def test_a_database_of_a_newer_version_is_refused_and_left_alone(backend: Backend, later: Path) -> None:
    store = filled(backend)
    before = contents(store)
    store.close()
    with backend.database() as database, database.migrating() as connection:
        migrate.upgrade(connection, "it", scripts=later, compatible_since="9001")
    error = refusal(store.open)
    assert isinstance(error, StoreTooNew)
    assert "written by a newer paddock" in str(error)
    assert "9001" in str(error)
    assert "not open" in store.ping()
    with backend.database() as database, database.migrating() as connection:
        assert migrate.current(connection) == "9001"
        migrate.downgrade(connection, HEAD, scripts=later)
    store.open()
    assert contents(store) == before


def test_a_store_of_before_the_first_migration_is_refused_as_old(backend: Backend) -> None:
    store = filled(backend)
    store.close()
    with backend.database() as database, database.migrating() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    error = refusal(store.open)
    assert not isinstance(error, StoreTooNew)
    assert "schema 0004; the oldest that it knows is 0005" in str(error)


def test_tables_of_something_else_are_left_alone(backend: Backend) -> None:
    backend.store().close()
    with backend.database() as database, database.migrating() as connection:
        migrate.downgrade(connection, "base")
        connection.execute(text("CREATE TABLE instances (theirs TEXT)"))
    assert "exists" in str(refusal(backend.store))
    with backend.database() as database, database.reading() as connection:
        assert tables(connection) <= {"instances", "alembic_version"}


def test_migrations_are_found_in_an_installed_package_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "controller"
    shutil.copytree(migrate.scripts_folder(), package / "migrations")
    (package / "__init__.py").touch()
    spec = importlib.util.spec_from_file_location(
        "controller", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert migrate.scripts_folder() == package / "migrations"
    shutil.rmtree(package / "migrations")
    assert "install paddock again" in str(refusal(migrate.scripts_folder))


@pytest.mark.parametrize(("since", "opens"), [(HEAD, True), ("9001", False)])
def test_older_code_uses_a_newer_store_that_says_so(backend: Backend, later: Path, since: str, opens: bool) -> None:
    """Hosts are upgraded one after the other."""
    store = filled(backend)
    before = contents(store)
    store.close()
    with backend.database() as database, database.migrating() as connection:
        migrate.upgrade(connection, "it", scripts=later, compatible_since=since)
    if not opens:
        assert isinstance(refusal(store.open), StoreTooNew)
        return
    store.open()
    assert contents(store) == before
    insert(store, new_sandbox("new"))
    assert [stored.name for stored in store.list("Sandbox")[0]] == ["box", "new"]
    assert not store.figures().schema_current, "this daemon is not of the store's version"


def test_running_daemons_are_not_migrated_away_from(backend: Backend, later: Path) -> None:
    store = filled(backend)
    store.close()
    texts = ["host/b: pid 7 on b"]
    with backend.database() as database:
        with database.migrating() as connection, pytest.raises(StoreError, match="stop them first") as refused:
            migrate.upgrade(connection, "it", scripts=later, other_daemons=texts, compatible_since="9001")
        assert "host/b: pid 7 on b" in str(refused.value)
        with database.migrating() as connection:
            assert migrate.current(connection) == HEAD
            migrate.upgrade(connection, "it", scripts=later, other_daemons=texts, compatible_since=HEAD)
            assert migrate.current(connection) == "9001"
            migrate.downgrade(connection, HEAD, scripts=later)
