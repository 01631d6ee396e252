"""`python -m perdure_migrations URL [--schema NAME] [--status]`: prints what it did."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import anyio
import psycopg

from perdure_migrations.errors import MigrationError
from perdure_migrations.runner import migrate, status

_CONNECT_SECONDS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perdure_migrations", description="Create or update the schema."
    )
    parser.add_argument("url", help="postgresql://user:password@host:port/database")
    parser.add_argument("--schema", default="perdure", help="default: perdure")
    parser.add_argument("--status", action="store_true", help="only say what is missing")
    options = parser.parse_args(arguments)
    try:
        print(anyio.run(_run, options.url, options.schema, options.status))
    except (MigrationError, psycopg.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(url: str, schema: str, only_status: bool) -> str:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
    async with connection:
        if only_status:
            found = await status(connection, schema)
            return (
                _report(f"schema {schema}: applied", found.applied) + "\n" + _report("missing", found.pending)
            )
        applied = await migrate(connection, schema)
        return _report(f"schema {schema}: applied", applied) if applied else f"schema {schema}: up to date"


def _report(title: str, names: Sequence[str]) -> str:
    return f"{title} {', '.join(names) if names else 'nothing'}"


if __name__ == "__main__":
    sys.exit(main())
