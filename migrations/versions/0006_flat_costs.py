"""Sums of reservations over an index, of pools by a column; names in the order of their bytes."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_HELD = ("namespace", "role", "cpu_millicores", "memory_bytes", "pids", "disk_bytes", "gpus")


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("pool_uid", sa.Text()))
        table.create_index("ix_instances_held", _HELD)
        table.create_index("ix_instances_pool_uid", ("pool_uid",))
    _name_pools()
    _collate("C")


def downgrade() -> None:
    _collate("default")
    with op.batch_alter_table("instances") as table:
        table.drop_index("ix_instances_pool_uid")
        table.drop_index("ix_instances_held")
        table.drop_column("pool_uid")


def _name_pools() -> None:
    """Fill the column from what the planner remembers of each instance."""
    instances = sa.table("instances", sa.column("name"), sa.column("memory"), sa.column("pool_uid"))
    connection = op.get_bind()
    found = connection.execute(sa.select(instances.c.name, instances.c.memory)).all()
    pools = [{"of": name, "pool": json.loads(memory).get("pool") or ""} for name, memory in found]
    moved = [each for each in pools if each["pool"]]
    if moved:
        change = sa.update(instances).where(instances.c.name == sa.bindparam("of"))
        connection.execute(change.values(pool_uid=sa.bindparam("pool")), moved)


def _collate(collation: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for column in ("namespace", "name"):
            op.execute(f'ALTER TABLE objects ALTER COLUMN {column} TYPE TEXT COLLATE "{collation}"')
