"""The audit log gets its source and its chain of hashes. No version before this one wrote to it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXTS = ("actor", "verb", "kind", "namespace", "name", "uid", "outcome", "detail")


def upgrade() -> None:
    op.drop_table("audit")
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*_TEXTS, "source", "hash")),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_table(
        "audit_chain",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("last_hash", sa.Text(), nullable=False),
        sa.Column("pruned_id", sa.BigInteger(), nullable=False),
        sa.Column("pruned_hash", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_audit_chain_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_chain"),
    )


def downgrade() -> None:
    op.drop_table("audit_chain")
    op.drop_table("audit")
    op.create_table(
        "audit",
        sa.Column("id", _ROW_NUMBER, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
