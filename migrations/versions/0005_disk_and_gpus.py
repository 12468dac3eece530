"""Instances reserve disk and GPUs, too."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("disk_bytes", sa.BigInteger(), nullable=False, server_default="0"))
        table.add_column(sa.Column("gpus", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.drop_column("gpus")
        table.drop_column("disk_bytes")
