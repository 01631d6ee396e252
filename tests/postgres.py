"""A real Postgres for tests: the server, and databases on it that one test has for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

ROOT = Path(__file__).parents[1]
STOP_SECONDS = 30


@contextmanager
def running_server() -> Iterator[str]:
    """Provide the URL of a server on which databases may be created.

    PERDURE_TEST_DATABASE_URL names one; without it, a throwaway one is started.
    """
    if url := os.environ.get("PERDURE_TEST_DATABASE_URL"):
        yield url
    else:
        with throwaway_server() as url:
            yield url


@contextmanager
def throwaway_server() -> Iterator[str]:
    """Provide the URL of a new server that only this process uses, and remove it afterwards."""
    command = [sys.executable, "-m", "tests.postgres_server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"no Postgres for the tests:\n{process.stderr.read()}")
        try:
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def new_database(server: str, *, template: str = "template0") -> Iterator[str]:
    """Provide the URL of a new copy of `template`, and drop it afterwards despite open connections."""
    name = f"perdure_test_{token_hex(6)}"
    # FILE_COPY: with fsync off, twice as fast as the default for a template of this size.
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    execute(server, create.format(sql.Identifier(name), sql.Identifier(template)))
    try:
        yield on_database(server, name)
    finally:
        execute(server, drop.format(sql.Identifier(name)))


def on_database(url: str, name: str) -> str:
    """Return the URL of another database on this server."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{name}{query}"


def database_name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def execute(url: str, statement: sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        connection.execute(statement)


def migrate(url: str) -> None:
    """Bring a database to the newest schema, in a process of its own: no event loop to share."""
    command = [sys.executable, "-m", "perdure_migrations", url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode:
        raise RuntimeError(f"the migrations failed:\n{result.stdout}{result.stderr}")
