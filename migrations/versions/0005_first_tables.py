"""The first tables, as the first version that left this repository had them: stores of older ones are nowhere.

controller/store/schema.py documents them. Later revisions rewrite some of them.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = None
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _column(name: str, type_: type[sa.types.TypeEngine[Any]]) -> sa.Column[Any]:
    return sa.Column(name, type_(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        _column("instance_id", sa.Text),
        _column("epoch", sa.BigInteger),
        _column("revision", sa.BigInteger),
        _column("pruned_revision", sa.BigInteger),
        sa.CheckConstraint("id = 1", name=op.f("ck_meta_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_meta")),
    )
    op.create_table(
        "objects",
        _column("uid", sa.Text),
        _column("kind", sa.Text),
        _column("namespace", sa.Text),
        _column("name", sa.Text),
        _column("generation", sa.BigInteger),
        _column("resource_version", sa.BigInteger),
        _column("created_at", sa.Double),
        sa.Column("deleted_at", sa.Double()),
        _column("labels", sa.Text),
        _column("annotations", sa.Text),
        _column("finalizers", sa.Text),
        _column("owner_references", sa.Text),
        _column("spec", sa.Text),
        sa.Column("last_applied", sa.Text()),
        _column("status", sa.Text),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_objects")),
        sa.UniqueConstraint("kind", "namespace", "name", name=op.f("uq_objects_kind_namespace_name")),
    )
    op.create_table(
        "instances",
        _column("name", sa.Text),
        _column("parent_uid", sa.Text),
        _column("parent_kind", sa.Text),
        _column("namespace", sa.Text),
        _column("parent_name", sa.Text),
        _column("role", sa.Text),
        _column("cpu_millicores", sa.BigInteger),
        _column("memory_bytes", sa.BigInteger),
        _column("pids", sa.BigInteger),
        _column("cpu_shares", sa.BigInteger),
        _column("created_at", sa.Double),
        _column("memory", sa.Text),
        _column("version", sa.BigInteger),
        _column("uid", sa.Text),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("gpus", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_instances")),
        sa.ForeignKeyConstraint(
            ["parent_uid"], ["objects.uid"], name=op.f("fk_instances_parent_uid"), ondelete="CASCADE"
        ),
        sa.UniqueConstraint("uid", name=op.f("uq_instances_uid")),
    )
    op.create_index(op.f("ix_instances_parent_uid"), "instances", ["parent_uid"])
    op.create_table(
        "events",
        sa.Column("id", _ROW_NUMBER, nullable=False),
        _column("uid", sa.Text),
        _column("digest", sa.Text),
        _column("kind", sa.Text),
        _column("namespace", sa.Text),
        _column("name", sa.Text),
        _column("type", sa.Text),
        _column("reason", sa.Text),
        _column("message", sa.Text),
        _column("count", sa.BigInteger),
        _column("first_at", sa.Double),
        _column("last_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("uid", "digest", name=op.f("uq_events_uid_digest")),
    )
    op.create_index(op.f("ix_events_last_at"), "events", ["last_at"])
    op.create_table(
        "changes",
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        _column("kind", sa.Text),
        _column("uid", sa.Text),
        _column("type", sa.Text),
        _column("object", sa.Text),
        sa.PrimaryKeyConstraint("revision", "position", name=op.f("pk_changes")),
    )
    op.create_table(
        "leases",
        _column("name", sa.Text),
        _column("holder", sa.Text),
        _column("epoch", sa.BigInteger),
        _column("acquired_at", sa.Double),
        _column("expires_at", sa.Double),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        _column("at", sa.Double),
        _column("actor", sa.Text),
        _column("verb", sa.Text),
        _column("kind", sa.Text),
        _column("namespace", sa.Text),
        _column("name", sa.Text),
        _column("uid", sa.Text),
        _column("outcome", sa.Text),
        _column("detail", sa.Text),
        _column("source", sa.Text),
        _column("hash", sa.Text),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"])
    op.create_table(
        "audit_chain",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        _column("last_id", sa.BigInteger),
        _column("last_hash", sa.Text),
        _column("pruned_id", sa.BigInteger),
        _column("pruned_hash", sa.Text),
        sa.CheckConstraint("id = 1", name=op.f("ck_audit_chain_ck_audit_chain_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_chain")),
    )
    op.create_table(
        "tokens",
        _column("id", sa.Text),
        _column("name", sa.Text),
        _column("digest", sa.Text),
        _column("grant", sa.Text),
        _column("created_at", sa.Double),
        _column("created_by", sa.Text),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )


def downgrade() -> None:
    for table in ("tokens", "audit_chain", "audit", "leases", "changes", "events", "instances", "objects", "meta"):
        op.drop_table(table)
