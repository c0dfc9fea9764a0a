"""Usage by key and hour; projects of sessions; clones of samplers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("keys", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("sessions", sa.Column("project_id", sa.String(), nullable=True))
    op.add_column("sessions", sa.Column("key_id", sa.String(), nullable=True))
    op.add_column("samplers", sa.Column("clones", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "usage",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("base_model", sa.String(), nullable=False),
        sa.Column("operations", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("trained_tokens", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("sampled_tokens", sa.BigInteger(), nullable=False),
        sa.Column("checkpoints", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hour", "owner", "key_id", "base_model", name=op.f("pk_usage")),
    )
