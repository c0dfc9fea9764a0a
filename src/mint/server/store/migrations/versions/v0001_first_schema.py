"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("base_model", sa.String(), nullable=False),
        sa.Column("lora", sa.JSON(), nullable=False),
        sa.Column("folder", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("user_metadata", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_checkpoints")),
    )
    op.create_index(op.f("ix_checkpoints_model_id"), "checkpoints", ["model_id"], unique=False)
    op.create_index(op.f("ix_checkpoints_owner"), "checkpoints", ["owner"], unique=False)
    op.create_table(
        "keys",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("hint", sa.String(), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_keys")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_keys_secret_hash")),
    )
    op.create_table(
        "operations",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("seq_id", sa.BigInteger(), nullable=True),
        sa.Column("model_id", sa.String(), nullable=True),
        sa.Column("sampler_id", sa.String(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("fault", sa.String(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
        sa.UniqueConstraint(
            "owner", "scope", "seq_id", name=op.f("uq_operations_owner_scope_seq_id")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_operations_status_finished_at"),
        "operations",
        ["status", "finished_at"],
        unique=False,
    )
    op.create_index(op.f("ix_operations_status_id"), "operations", ["status", "id"], unique=False)
    op.create_table(
        "served_models",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("architecture", sa.String(), nullable=False),
        sa.Column("vocab_size", sa.Integer(), nullable=False),
        sa.Column("max_context", sa.Integer(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("dtype", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("tokenizer_folder", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_served_models")),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("finish_detail", sa.Text(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("user_metadata", sa.JSON(), nullable=False),
        sa.Column("sdk_version", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_sessions")),
        sa.UniqueConstraint(
            "owner", "idempotency_key", name=op.f("uq_sessions_owner_idempotency_key")
        ),
    )
    op.create_index(
        op.f("ix_sessions_finished_at_last_seen_at"),
        "sessions",
        ["finished_at", "last_seen_at"],
        unique=False,
    )
    op.create_table(
        "models",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("base_model", sa.String(), nullable=False),
        sa.Column("lora", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("weights_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_request_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_metadata", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.session_id"], name=op.f("fk_models_session_id")
        ),
        sa.PrimaryKeyConstraint("model_id", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_owner"), "models", ["owner"], unique=False)
    op.create_index(op.f("ix_models_session_id"), "models", ["session_id"], unique=False)
    op.create_table(
        "samplers",
        sa.Column("sampler_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("base_model", sa.String(), nullable=False),
        sa.Column("weights", sa.String(), nullable=True),
        sa.Column("model_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.session_id"], name=op.f("fk_samplers_session_id")
        ),
        sa.PrimaryKeyConstraint("sampler_id", name=op.f("pk_samplers")),
    )
    op.create_index(op.f("ix_samplers_session_id"), "samplers", ["session_id"], unique=False)
