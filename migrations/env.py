"""Alembic's entry: runs migrations on the connection of the store that opens, inside its transaction.

For developers, `alembic -c migrations/alembic.ini -x url=sqlite:////tmp/new.db revision --autogenerate -m words`
uses a database of its own.
"""

from alembic import context
from sqlalchemy import Connection

from controller.store.connect import connect
from controller.store.schema import metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite too: with our own BEGIN, a migration that fails leaves nothing behind.
        transactional_ddl=True,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _main() -> None:
    given = context.config.attributes.get("connection")
    if given is not None:
        _run(given)
        return
    database = connect(context.get_x_argument(as_dictionary=True)["url"])
    try:
        with database.migrating() as connection:
            _run(connection)
    finally:
        database.close()


_main()
