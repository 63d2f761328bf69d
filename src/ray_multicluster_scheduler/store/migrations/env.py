"""Runs inside Alembic: use the connection, and the transaction, that the store has open."""

from alembic import context

from ray_multicluster_scheduler.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
