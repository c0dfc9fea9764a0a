"""Alembic's entry: runs on the connection that `mint.server.store.migrate` hands over."""

from alembic import context

from mint.server.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
