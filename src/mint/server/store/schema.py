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


class Words(TypeDecorator[str]):
    """Text from anywhere. PostgreSQL takes no NUL in text, so none gets into either database."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value.replace("\0", "\ufffd") if value else value


class Prose(Words):
    """Words at length."""

    impl = Text
    cache_ok = True


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
    Column("key_id", Words, primary_key=True),
    Column("owner", Words, nullable=False),
    Column("name", Words, nullable=False),
    Column("secret_hash", Words, nullable=False, unique=True),
    Column("hint", Words, nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime),
    Column("last_used_at", UtcDateTime),
)  # fmt: skip

sessions = Table(
    "sessions", metadata,
    Column("session_id", Words, primary_key=True),
    Column("owner", Words, nullable=False),
    Column("idempotency_key", Words),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_seen_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("finish_reason", Words),
    Column("finish_detail", Prose),
    Column("tags", JSON, nullable=False),
    Column("user_metadata", JSON, nullable=False),
    Column("sdk_version", Words, nullable=False),
    Column("display_name", Words),
    Column("project_id", Words),
    Column("key_id", Words),  # the key it was opened with
    # NULLs never collide, in both databases: a call without a key is never a retry.
    UniqueConstraint("owner", "idempotency_key"),
    Index(None, "finished_at", "last_seen_at"),
)  # fmt: skip

models = Table(
    "models", metadata,
    Column("model_id", Words, primary_key=True),
    Column("session_id", Words, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("owner", Words, nullable=False, index=True),
    Column("base_model", Words, nullable=False),
    Column("lora", JSON, nullable=False),
    Column("state", Words, nullable=False),
    Column("weights_version", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_request_at", UtcDateTime, nullable=False),
    Column("user_metadata", JSON, nullable=False),
)  # fmt: skip

samplers = Table(
    "samplers", metadata,
    Column("sampler_id", Words, primary_key=True),
    Column("session_id", Words, ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("owner", Words, nullable=False),
    Column("base_model", Words, nullable=False),
    Column("weights", Words),
    Column("model_id", Words),
    Column("clones", Integer, nullable=False, server_default="0"),
)  # fmt: skip

operations = Table(
    "operations", metadata,
    # BigInteger would lose SQLite's autoincrement, which never gives an id twice.
    Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("owner", Words, nullable=False),
    Column("kind", Words, nullable=False),
    Column("scope", Words, nullable=False),
    Column("seq_id", BigInteger),  # unpickled sampling clients count from 10^9 * k
    # No foreign keys: a request that names a model we do not have still gets a failed operation.
    Column("model_id", Words),
    Column("sampler_id", Words),
    Column("tokens", BigInteger, nullable=False),
    Column("status", Words, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("error", Prose),
    Column("fault", Words),
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
    Column("path", Words, primary_key=True),
    Column("owner", Words, nullable=False, index=True),
    # No foreign key: a checkpoint outlives its model.
    Column("model_id", Words, nullable=False, index=True),
    Column("kind", Words, nullable=False),
    Column("name", Words, nullable=False),
    Column("base_model", Words, nullable=False),
    Column("lora", JSON, nullable=False),
    Column("folder", Words, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("is_public", Boolean, nullable=False),
    Column("user_metadata", JSON, nullable=False),
)  # fmt: skip

served_models = Table(
    "served_models", metadata,
    Column("name", Words, primary_key=True),
    Column("rank", Integer, nullable=False),  # the order the server was told them in
    Column("architecture", Words, nullable=False),
    Column("vocab_size", Integer, nullable=False),
    Column("max_context", Integer, nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("dtype", Words, nullable=False),
    Column("device", Words, nullable=False),
    Column("tokenizer_folder", Words, nullable=False),
)  # fmt: skip

usage = Table(
    "usage", metadata,
    Column("hour", UtcDateTime, primary_key=True),  # UTC, when the work ended
    Column("owner", Words, primary_key=True),
    Column("key_id", Words, primary_key=True),  # "": unknown, as for base_model
    Column("base_model", Words, primary_key=True),
    Column("operations", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("trained_tokens", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("sampled_tokens", BigInteger, nullable=False),
    Column("checkpoints", BigInteger, nullable=False),
)  # fmt: skip
