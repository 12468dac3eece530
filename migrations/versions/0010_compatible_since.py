"""The store knows the oldest schema whose code may use it: hosts are upgraded one after the other."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("meta") as table:
        table.add_column(sa.Column("compatible_since", sa.Text(), nullable=False, server_default="0009"))


def downgrade() -> None:
    with op.batch_alter_table("meta") as table:
        table.drop_column("compatible_since")
