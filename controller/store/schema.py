"""Tables of the store. Migrations make them (migrations/versions); a test compares the two.

JSON is kept as canonical text (see rows.py): what was read is written back byte for byte, on both databases, and
"did it change" is a comparison of strings. Times are Unix seconds.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

# The conditions of partial indexes are given for SQLite alone: to name PostgreSQL's, which the migrations make, would
# load SQLAlchemy's dialect of it, 3 MiB, into every daemon.
# Constraints need names that a later migration can refer to, on both databases.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

# Names in the order of their bytes, on both databases: lists are paged in it.
_NAME = Text().with_variant(Text(collation="C"), "postgresql")

# SQLite numbers rows by itself only in a column of exactly this type.
_ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")

# One row. Every writer takes it first: so commits come in the order of their revision, and watchers miss none. What
# only appends to the audit log leaves it alone.
# `pruned_revision`: changes up to and including it are gone. `epoch` moves when the database was restored.
meta = Table(
    "meta",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("instance_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("pruned_revision", BigInteger, nullable=False),
    # The oldest schema whose code may use this one.
    Column("compatible_since", Text, nullable=False, server_default="0009"),
    CheckConstraint("id = 1", name="one_row"),
)

objects = Table(
    "objects",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("namespace", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("resource_version", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("deleted_at", Double),
    Column("labels", Text, nullable=False),
    Column("annotations", Text, nullable=False),
    Column("finalizers", Text, nullable=False),
    Column("owner_references", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("last_applied", Text),
    Column("status", Text, nullable=False),
    UniqueConstraint("kind", "namespace", "name"),
    Index(
        "ix_objects_owned",
        "uid",
        sqlite_where=text("owner_references <> '[]'"),
    ),
)

# What an instance reserves is in columns of its own: totals are sums of them. `pool_uid` is that of its pool. `user_id`
# is the uid and gid that no other record of its host has. `ready_key` is that of a warm member that is ready. `uid` is
# what the container's label bears: the parent's, or for a pool's member one of its own, which the sandbox that claims
# it takes over.
instances = Table(
    "instances",
    metadata,
    Column("name", Text, primary_key=True),
    Column("parent_uid", Text, ForeignKey("objects.uid", ondelete="CASCADE"), nullable=False),
    Column("parent_kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("parent_name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("cpu_millicores", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("pids", BigInteger, nullable=False),
    Column("cpu_shares", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("memory", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("uid", Text, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False, server_default="0"),
    Column("gpus", BigInteger, nullable=False, server_default="0"),
    Column("pool_uid", Text),
    Column("user_id", BigInteger),
    Column("host", Text, nullable=False, server_default="host"),
    Column("ready_key", Text),
    UniqueConstraint("uid"),
    Index(None, "parent_uid"),
    Index(
        "ix_instances_held",
        *("namespace", "role", "cpu_millicores", "memory_bytes", "pids", "disk_bytes", "gpus"),
    ),
    Index(None, "pool_uid"),
    Index(None, "host", "user_id", unique=True),
    Index(
        "ix_instances_ready",
        *("pool_uid", "ready_key", "created_at"),
        sqlite_where=text("ready_key IS NOT NULL"),
    ),
)

# What a scope holds: a namespace, a host ("" or `host/<name>`), or a pool (`pool/<uid>`). Sums over instances, and the
# number of objects, moved in the transaction that moves those (totals.py): a quota is one row, however many sandboxes
# there are.
totals = Table(
    "totals",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("cpu_millicores", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("pids", BigInteger, nullable=False),
    Column("sandboxes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("objects", BigInteger, nullable=False),
)

# `digest` stands for type, reason and message: PostgreSQL refuses to index a long message itself.
events = Table(
    "events",
    metadata,
    Column("id", _ROW_NUMBER, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("first_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    UniqueConstraint("uid", "digest"),
    Index(None, "last_at"),
)

# Watch log: one row per object and commit, each with its own revision (`position` distinguished rows of one
# commit, when they shared one). `object` is the whole object as it was written: its JSON, packed (rows.py).
changes = Table(
    "changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("object", LargeBinary, nullable=False),
)

# Leases with expiry, by name: `daemon` is that of the default host, other hosts' are `host/<host>`. `epoch` fences off
# a holder that was presumed dead.
leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("acquired_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)

# `digest` is the hash of the secret, which is kept nowhere. `grant` is JSON: the role, where, and its bounds.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("grant", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
)

# Audit log: requests and their outcomes. `writer` is what appended the entry: a daemon by its place (a host's name, or
# `api/NAME`), or `offline/NAME`. Each has a chain of its own, with ids without gaps. `detail` is JSON. `hash` covers
# the row and the hash before it: no row can be changed or taken out amid others without its being seen
# (kinds/access/audit.py).
audit_entries = Table(
    "audit_entries",
    metadata,
    Column("writer", _NAME, primary_key=True),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index(None, "at"),
)

# A row for each writer, once it had an entry: the newest entry, and the newest of those that were pruned, which the
# oldest that is left goes on from. Appending locks its writer's row, and no other.
audit_chains = Table(
    "audit_chains",
    metadata,
    Column("writer", _NAME, primary_key=True),
    Column("last_id", BigInteger, nullable=False),
    Column("last_hash", Text, nullable=False),
    Column("pruned_id", BigInteger, nullable=False),
    Column("pruned_hash", Text, nullable=False),
)

# The same as versions before 0011 had it, with one chain for all daemons: that of writer "". It is read, verified and
# pruned.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index(None, "at"),
)

audit_chain = Table(
    "audit_chain",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last_id", BigInteger, nullable=False),
    Column("last_hash", Text, nullable=False),
    Column("pruned_id", BigInteger, nullable=False),
    Column("pruned_hash", Text, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
