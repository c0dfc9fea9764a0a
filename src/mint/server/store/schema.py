"""The tables. A change here needs a migration beside it (a test compares the two).

Only what SQLite and PostgreSQL both have. Small maps and the LoRA shape are JSON: nothing is
searched by their insides.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class UtcDateTime(TypeDecorator[datetime]):
    """A zone-aware UTC time; SQLite forgets the zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

keys = Table(
    "keys", metadata,
    Column("key_id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("name", String, nullable=False),
    Column("secret_hash", String, nullable=False, unique=True),
    Column("hint", String, nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
)  # fmt: skip

sessions = Table(
    "sessions", metadata,
    Column("session_id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("idempotency_key", String),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_seen_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("finish_reason", String),
    Column("finish_detail", Text),
    Column("tags", JSON, nullable=False),
    Column("user_metadata", JSON, nullable=False),
    Column("sdk_version", String, nullable=False),
    Column("display_name", String),
    # NULLs never collide, in both databases: a call without a key is never a retry.
    UniqueConstraint("owner", "idempotency_key"),
    Index(None, "finished_at", "last_seen_at"),
)  # fmt: skip

models = Table(
    "models", metadata,
    Column("model_id", String, primary_key=True),
    Column("session_id", String, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("owner", String, nullable=False, index=True),
    Column("base_model", String, nullable=False),
    Column("lora", JSON, nullable=False),
    Column("state", String, nullable=False),
    Column("weights_version", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_request_at", UtcDateTime, nullable=False),
    Column("user_metadata", JSON, nullable=False),
)  # fmt: skip

samplers = Table(
    "samplers", metadata,
    Column("sampler_id", String, primary_key=True),
    Column("session_id", String, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("owner", String, nullable=False),
    Column("base_model", String, nullable=False),
    Column("weights", String),
    Column("model_id", String),
)  # fmt: skip

operations = Table(
    "operations", metadata,
    # BigInteger would lose SQLite's autoincrement, which never gives an id twice.
    Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("owner", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("scope", String, nullable=False),
    Column("seq_id", BigInteger),  # unpickled sampling clients count from 10^9 * k
    # No foreign keys: a request that names a model we do not have still gets a failed operation.
    Column("model_id", String),
    Column("sampler_id", String),
    Column("tokens", BigInteger, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("error", Text),
    Column("fault", String),
    # Last, so that reading the columns above never walks through a large value.
    Column("payload", LargeBinary),
    Column("result", LargeBinary),
    # The owner is part of it: nobody can use up the numbers of somebody else's model.
    UniqueConstraint("owner", "scope", "seq_id"),
    Index(None, "status", "id"),
    Index(None, "status", "finished_at"),
    sqlite_autoincrement=True,
)  # fmt: skip

checkpoints = Table(
    "checkpoints", metadata,
    Column("path", String, primary_key=True),
    Column("owner", String, nullable=False, index=True),
    # No foreign key: a checkpoint outlives its model.
    Column("model_id", String, nullable=False, index=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("base_model", String, nullable=False),
    Column("lora", JSON, nullable=False),
    Column("folder", String, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("is_public", Boolean, nullable=False),
    Column("user_metadata", JSON, nullable=False),
)  # fmt: skip

served_models = Table(
    "served_models", metadata,
    Column("name", String, primary_key=True),
    Column("rank", Integer, nullable=False),  # the order the server was told them in
    Column("architecture", String, nullable=False),
    Column("vocab_size", Integer, nullable=False),
    Column("max_context", Integer, nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("dtype", String, nullable=False),
    Column("device", String, nullable=False),
    Column("tokenizer_folder", String, nullable=False),
)  # fmt: skip
