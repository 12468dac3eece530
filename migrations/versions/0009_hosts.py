"""Instances belong to a host, and a user id to one instance of a host; warm members that are ready have a key."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_READY = sa.text("ready_key IS NOT NULL")
_AMOUNTS = ("cpu_millicores", "memory_bytes", "pids", "sandboxes", "disk_bytes", "gpus", "objects")


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("host", sa.Text(), nullable=False, server_default="host"))
        table.add_column(sa.Column("ready_key", sa.Text()))
        table.drop_index("ix_instances_user_id")
        table.create_index("ix_instances_host_user_id", ("host", "user_id"), unique=True)
    columns = ["pool_uid", "ready_key", "created_at"]
    op.create_index("ix_instances_ready", "instances", columns, sqlite_where=_READY, postgresql_where=_READY)


def downgrade() -> None:
    op.drop_index("ix_instances_ready", "instances")
    with op.batch_alter_table("instances") as table:
        table.drop_index("ix_instances_host_user_id")
        table.create_index("ix_instances_user_id", ("user_id",), unique=True)
        table.drop_column("ready_key")
        table.drop_column("host")
    _count_one_host()


def _count_one_host() -> None:
    """Add the totals of all hosts to those of the only one that older versions know (scope "")."""
    sums = ", ".join(f"SUM({name})" for name in _AMOUNTS)
    adding = ", ".join(f"{name} = totals.{name} + excluded.{name}" for name in _AMOUNTS)
    op.execute(
        f"INSERT INTO totals (scope, {', '.join(_AMOUNTS)})"  # noqa: S608 - constants
        f" SELECT '', {sums} FROM totals WHERE scope LIKE 'host/%' HAVING COUNT(*) > 0"
        f" ON CONFLICT (scope) DO UPDATE SET {adding}"
    )
    op.execute("DELETE FROM totals WHERE scope LIKE 'host/%'")
