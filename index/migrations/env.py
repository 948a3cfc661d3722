"""Alembic's entry: runs the migrations on the connection that `index.database` hands over.

The caller's transaction holds every step, so a migration that is cut short leaves nothing behind.
"""

from alembic import context

from index.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
