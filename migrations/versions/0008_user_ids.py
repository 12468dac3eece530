"""Instances have a user id of their own, which no two share."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("user_id", sa.BigInteger()))
        table.create_index("ix_instances_user_id", ("user_id",), unique=True)


def downgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.drop_index("ix_instances_user_id")
        table.drop_column("user_id")
