"""Alembic migrations of the catalogue, shipped inside the package."""
