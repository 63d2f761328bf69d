"""Run by Alembic: uses the open connection and transaction of the store."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
