"""The sides: the imports and the Postgres saver of each.

Modules are imported by name at run time, because each environment has only one of the two packages.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Literal

from graphs import Names

Side = Literal["ours", "peer", "ref"]
"""A package to measure. `ref` is our package at another commit, in its own environment."""

POOL_SIZE = 10
"""The number of connections. All are open before a measurement starts."""


def names_of(side: Side) -> Names:
    if side == "peer":
        graph, types = import_module("langgraph.graph"), import_module("langgraph.types")
    else:
        graph = types = import_module("perdure")
    return Names(StateGraph=graph.StateGraph, START=graph.START, END=graph.END, Send=types.Send)


def memory_saver(side: Side) -> Any:
    package = "langgraph" if side == "peer" else "perdure"
    return import_module(f"{package}.checkpoint.memory").InMemorySaver()


@asynccontextmanager
async def postgres_saver(side: Side, uri: str) -> AsyncIterator[Any]:
    """Open a side's saver with a pool of `POOL_SIZE`, and set up its schema."""
    opened = peer_saver(uri) if side == "peer" else our_saver(uri)
    async with opened as saver:
        await saver.setup()
        yield saver


@asynccontextmanager
async def our_saver(uri: str) -> AsyncIterator[Any]:
    postgres = import_module("perdure_checkpointers.postgres")
    async with postgres.PostgresSaver.from_conn_string(uri, min_size=POOL_SIZE, max_size=POOL_SIZE) as saver:
        yield saver


@asynccontextmanager
async def peer_saver(uri: str) -> AsyncIterator[Any]:
    """Open the peer's saver on a pool with the connection arguments of its documentation."""
    psycopg_pool, rows = import_module("psycopg_pool"), import_module("psycopg.rows")
    saver_module = import_module("langgraph.checkpoint.postgres.aio")
    pool = psycopg_pool.AsyncConnectionPool(
        uri,
        min_size=POOL_SIZE,
        max_size=POOL_SIZE,
        kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": rows.dict_row},
        open=False,
    )
    async with pool:
        await pool.wait()
        yield saver_module.AsyncPostgresSaver(pool)
