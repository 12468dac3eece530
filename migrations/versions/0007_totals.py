"""Totals of reservations and objects by scope, an index of owned objects, and the watch log as packed JSON."""

import zlib

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COLUMNS = ("cpu_millicores", "memory_bytes", "pids", "sandboxes", "disk_bytes", "gpus", "objects")
_OWNED = sa.text("owner_references <> '[]'")
_AT_ONCE = 500


def upgrade() -> None:
    op.create_table(
        "totals",
        sa.Column("scope", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COLUMNS),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_totals")),
    )
    _count()
    op.create_index("ix_objects_owned", "objects", ["uid"], sqlite_where=_OWNED, postgresql_where=_OWNED)
    # Rows of before stay plain JSON: readers tell them by their first byte.
    with op.batch_alter_table("changes") as table:
        table.alter_column(
            "object",
            existing_type=sa.Text(),
            type_=sa.LargeBinary(),
            existing_nullable=False,
            postgresql_using="convert_to(object, 'UTF8')",
        )


def downgrade() -> None:
    _unpack()
    with op.batch_alter_table("changes") as table:
        table.alter_column(
            "object",
            existing_type=sa.LargeBinary(),
            type_=sa.Text(),
            existing_nullable=False,
            postgresql_using="convert_from(object, 'UTF8')",
        )
    op.drop_index("ix_objects_owned", "objects")
    op.drop_table("totals")


def _count() -> None:
    """Fill the totals of namespaces, of the host (scope ""), and of pools."""
    amounts = "cpu_millicores, memory_bytes, pids, disk_bytes, gpus"
    seat = "CASE WHEN role = 'sandbox' THEN 1 ELSE 0 END"
    op.execute(
        f"INSERT INTO totals (scope, {amounts}, sandboxes, objects)"  # noqa: S608 - constants
        " SELECT scope, SUM(cpu_millicores), SUM(memory_bytes), SUM(pids), SUM(disk_bytes), SUM(gpus), SUM(seats), 0"
        f" FROM (SELECT namespace AS scope, {amounts}, {seat} AS seats FROM instances WHERE namespace <> ''"
        f" UNION ALL SELECT '', {amounts}, {seat} FROM instances"
        f" UNION ALL SELECT 'pool/' || pool_uid, {amounts}, 0 FROM instances WHERE pool_uid IS NOT NULL) AS parts"
        " GROUP BY scope"
    )
    op.execute(
        f"INSERT INTO totals (scope, {amounts}, sandboxes, objects)"  # noqa: S608 - constants
        " SELECT namespace, 0, 0, 0, 0, 0, 0, COUNT(*) FROM objects WHERE 1 = 1 GROUP BY namespace"
        " ON CONFLICT (scope) DO UPDATE SET objects = excluded.objects"
    )


def _unpack() -> None:
    changes = sa.table("changes", sa.column("revision"), sa.column("position"), sa.column("object", sa.LargeBinary()))
    connection = op.get_bind()
    found = connection.execute(sa.select(changes)).all()
    plain = [
        {"of": revision, "at": position, "text": zlib.decompress(data)}
        for revision, position, data in found
        if not data.startswith(b"{")
    ]
    change = sa.update(changes).where(
        changes.c.revision == sa.bindparam("of"), changes.c.position == sa.bindparam("at")
    )
    for begin in range(0, len(plain), _AT_ONCE):
        connection.execute(change.values(object=sa.bindparam("text")), plain[begin : begin + _AT_ONCE])
