"""Threads, and cached results of nodes, in Postgres."""

from perdure_checkpointers.postgres.cache import PostgresCache
from perdure_checkpointers.postgres.saver import PostgresSaver

AsyncPostgresSaver = PostgresSaver
"""The name that programs use which come from LangGraph."""

__all__ = ["AsyncPostgresSaver", "PostgresCache", "PostgresSaver"]
