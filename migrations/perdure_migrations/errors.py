"""Errors of migrations, as a tree.

MigrationError
├── EditedMigrationError     an applied migration differs from that of this release
├── NewerSchemaError         the schema has migrations that this release does not know
├── MigrationLockError       another process holds the lock for too long
└── MigrationPermissionError the role may not read, or create, what it must
"""

from __future__ import annotations


class MigrationError(Exception):
    """The base of the errors that the runner raises."""


class EditedMigrationError(MigrationError):
    """A migration was changed after it had been applied to this schema."""


class NewerSchemaError(MigrationError):
    """The schema is newer than this release; the message names both versions."""


class MigrationLockError(MigrationError):
    """Another process is migrating this schema and did not finish in time. Nothing was changed."""


class MigrationPermissionError(MigrationError):
    """The role lacks a privilege; the message names the role, the database and the command to run."""
