"""The history of the schema, and the runner that applies it.

python -m perdure_migrations postgresql://… [--schema NAME]
"""

from perdure_migrations.catalog import MIGRATIONS, Migration
from perdure_migrations.errors import (
    EditedMigrationError,
    MigrationError,
    MigrationLockError,
    MigrationPermissionError,
    NewerSchemaError,
)
from perdure_migrations.runner import Status, migrate, status

__all__ = [
    "MIGRATIONS",
    "EditedMigrationError",
    "Migration",
    "MigrationError",
    "MigrationLockError",
    "MigrationPermissionError",
    "NewerSchemaError",
    "Status",
    "migrate",
    "status",
]
