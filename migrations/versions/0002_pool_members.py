"""Instances get a uid of their own: a pool's member has one before a sandbox claims it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("uid", sa.Text(), nullable=True))
    op.execute("UPDATE instances SET uid = parent_uid")
    with op.batch_alter_table("instances") as table:
        table.alter_column("uid", existing_type=sa.Text(), nullable=False)
        table.create_unique_constraint("uq_instances_uid", ["uid"])


def downgrade() -> None:
    # An older Paddock knows no members; their containers are removed by hand (label paddock.instance).
    op.execute("DELETE FROM instances WHERE uid <> parent_uid")
    with op.batch_alter_table("instances") as table:
        table.drop_constraint("uq_instances_uid", type_="unique")
        table.drop_column("uid")
