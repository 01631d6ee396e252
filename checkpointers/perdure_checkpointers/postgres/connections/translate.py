"""Errors of the driver as errors of ours, by SQLSTATE, with the original as the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from perdure.errors import (
    PerdureError,
    SaverTimeoutError,
    SaverUnavailableError,
    SchemaError,
    UnserializableValueError,
)
from perdure_migrations import MigrationError

Failure = psycopg.Error | TimeoutError | MigrationError | UnicodeEncodeError

_MISSING = {
    "42P01": "has not been set up",
    "3F000": "has not been set up",
    "42703": "is older than this release",
}
_TOO_LATE = {
    "57014": "the statement was cancelled on the server",
    "55P03": "a lock was not given in time",
    "40P01": "the server ended a deadlock",
}
_ROLLED_BACK = ("40001", "40P01")
_READ_ONLY = "25006"
_FORBIDDEN = "42501"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlace:
    """The name of a database and a schema in messages. It holds no password.

    Attributes:
        owner: the object that a program uses, "saver" or "cache", in messages that say what to call.
    """

    host: str
    port: str
    database: str
    schema: str
    owner: str = "saver"

    @classmethod
    def of(cls, conninfo: str | None, settings: Mapping[str, Any], schema: str) -> SchemaPlace:
        """Return the place that a pool connects to; `conninfo` is None if it is known only when needed."""
        if conninfo is None:
            return cls(host="the host", port="the port", database="of the pool", schema=schema)
        try:
            known = {key: value for key, value in settings.items() if key in _OPTIONS}
            options = conninfo_to_dict(conninfo, **known)
        except psycopg.ProgrammingError:
            options = {}
        return cls(
            host=str(options.get("host") or options.get("hostaddr") or "the local socket"),
            port=str(options.get("port") or "5432"),
            database=str(options.get("dbname") or options.get("user") or "the default one"),
            schema=schema,
        )

    def __str__(self) -> str:
        return f"database {self.database!r} on {self.host}:{self.port}"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate the errors that the driver raises inside."""
        try:
            yield
        except (psycopg.Error, TimeoutError, MigrationError, UnicodeEncodeError) as error:
            if isinstance(error, PerdureError):
                raise
            raise explain(error, self) from error


def check_address(url: str) -> None:
    """Raise ValueError if `url` is no address, without showing it: there may be a password in it."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        scheme = url.partition("://")[0] if "://" in url else None
        raise ValueError(
            "This is not the address of a Postgres"
            + (f" (it begins with {scheme}://)" if scheme else "")
            + ". Pass postgresql://user:password@host:port/database."
        ) from None


_OPTIONS = ("host", "hostaddr", "port", "dbname", "user")


def is_lost(error: BaseException) -> bool:
    """Return True if the connection was lost, so that the statement can be repeated on another one.

    A server that only reads counts as lost: after a failover, the old primary is of no use to a writer.
    """
    if not isinstance(error, psycopg.Error) or isinstance(error, (PoolTimeout, PoolClosed, TooManyRequests)):
        return False
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(("08", "57P")) or error.sqlstate == _READ_ONLY


def is_repeatable(error: BaseException) -> bool:
    """Return True if a statement may succeed when it is sent again."""
    return is_lost(error) or (isinstance(error, psycopg.Error) and error.sqlstate in _ROLLED_BACK)


def is_about_values(error: BaseException) -> bool:
    """Return True if the server or the driver refuses a value; other commits of a batch may be fine."""
    if isinstance(error, (UnicodeEncodeError, psycopg.DataError, psycopg.IntegrityError)):
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("54")


def explain(error: Failure, place: SchemaPlace) -> PerdureError:
    """Return the error that says what a failure means to a user of the saver, and what to do about it."""
    if isinstance(error, MigrationError):
        return SchemaError(f"{error} (This is about schema {place.schema!r} of {place}.)")
    if is_about_values(error):
        return UnserializableValueError(
            f"The {place} cannot store a value of this commit: {_reason(error)}. Remove it from the "
            "state, the metadata or the ids, or encode it (text columns hold neither NUL nor lone "
            "surrogates)."
        )
    if isinstance(error, psycopg.Error):
        return _explain_server(error, place)
    return SaverTimeoutError(f"The {place} did not answer in time. The run can be resumed.")


def _explain_server(error: psycopg.Error, place: SchemaPlace) -> PerdureError:
    state = error.sqlstate or ""
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        return SaverTimeoutError(
            f"No connection to {place} became free: {_reason(error)}. Enlarge the pool (max_size), or find "
            "what keeps its connections. The run can be resumed."
        )
    if state in _MISSING:
        return SchemaError(
            f"Schema {place.schema!r} of {place} {_MISSING[state]} ({_reason(error)}). Call `await "
            f"{place.owner}.setup()`, or run `python -m perdure_migrations URL --schema {place.schema}`."
        )
    if state == _FORBIDDEN:
        return SchemaError(
            f"The role may not use schema {place.schema!r} of {place} ({_reason(error)}). Grant it USAGE on "
            "the schema and SELECT, INSERT, UPDATE, DELETE on its tables."
        )
    if state in _TOO_LATE:
        return SaverTimeoutError(
            f"A statement on {place} took too long: {_TOO_LATE[state]} ({_reason(error)}). The run can be "
            "resumed."
        )
    return SaverUnavailableError(
        f"The {place} is not available: {_reason(error)}. Check the server and its address; the run can be "
        "resumed."
    )


def _reason(error: Failure) -> str:
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return primary or " ".join(str(error).split())
