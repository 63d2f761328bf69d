"""Runs inside Alembic: use the connection, and the transaction, that the store has open."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
