"""Each writer gets an audit chain of its own. The one of before stays: daemons of before go on with it meanwhile."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TEXTS = ("actor", "source", "verb", "kind", "namespace", "name", "uid", "outcome", "detail", "hash")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("writer", _NAME, nullable=False),
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.PrimaryKeyConstraint("writer", "id", name=op.f("pk_audit_entries")),
    )
    op.create_index("ix_audit_entries_at", "audit_entries", ["at"])
    op.create_table(
        "audit_chains",
        sa.Column("writer", _NAME, nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("last_hash", sa.Text(), nullable=False),
        sa.Column("pruned_id", sa.BigInteger(), nullable=False),
        sa.Column("pruned_hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("writer", name=op.f("pk_audit_chains")),
    )


def downgrade() -> None:
    op.drop_table("audit_chains")
    op.drop_table("audit_entries")
