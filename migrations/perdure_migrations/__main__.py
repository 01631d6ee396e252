"""A command that migrates: `python -m perdure_migrations URL [--schema NAME] [--status]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import anyio
import psycopg
from psycopg.conninfo import conninfo_to_dict

from perdure_migrations.errors import MigrationError
from perdure_migrations.runner import migrate, status

_CONNECT_SECONDS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for, and say so; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure_migrations", description="Create or update the schema."
    )
    parser.add_argument(
        "url",
        nargs="?",
        default=os.environ.get("PERDURE_DATABASE_URL"),
        help="postgresql://user:password@host:port/database; default: the variable PERDURE_DATABASE_URL",
    )
    parser.add_argument("--schema", default="perdure", help="default: perdure")
    parser.add_argument(
        "--status", action="store_true", help="only report what is missing; exit with 2 if anything is"
    )
    options = parser.parse_args(arguments)
    if not _is_address(options.url):
        # Not shown: there may be a password in it.
        parser.error("the address of a database is missing or malformed")
    try:
        text, code = anyio.run(_run, options.url, options.schema, options.status)
    except (MigrationError, psycopg.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text)
    return code


def _is_address(url: str | None) -> bool:
    try:
        return url is not None and bool(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        return False


async def _run(url: str, schema: str, only_status: bool) -> tuple[str, int]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
    async with connection:
        if only_status:
            found = await status(connection, schema)
            lines = (_report(f"schema {schema}: applied", found.applied), _report("missing", found.pending))
            return "\n".join(lines), 2 if found.pending else 0
        applied = await migrate(connection, schema)
        return _report(f"schema {schema}: applied", applied) if applied else f"schema {schema}: up to date", 0


def _report(title: str, names: Sequence[str]) -> str:
    return f"{title} {', '.join(names) if names else 'nothing'}"


if __name__ == "__main__":
    sys.exit(main())
