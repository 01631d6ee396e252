"""All statements of the saver and of the cache, composed for one schema."""

from __future__ import annotations

from typing import Final, LiteralString

from psycopg import sql

from perdure_checkpointers.postgres.queries.blocks import BLOCKS
from perdure_checkpointers.postgres.queries.statement import Statement, statement_of

_NUMBERS: Final[tuple[LiteralString, ...]] = ("c_n", "b_n", "w_n")


class _Composer:
    """Puts the schema's name, and other parts, into blocks."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema)

    def _part(self, name: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(BLOCKS[name].folded).format(schema=self._schema, **parts)

    def _compose(self, name: str, **parts: sql.Composable) -> Statement:
        return statement_of(self._part(name, **parts))


class CacheQueries(_Composer):
    """What the node cache says, for one schema, ready to be sent."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.cache_get = self._compose("cache_get")
        self.cache_set = self._compose("cache_set")
        self.cache_clear = self._compose("cache_clear")


class Queries(_Composer):
    """What the saver says, for one schema, ready to be sent.

    Those that wait for a row come in two kinds: the one takes what is free, the other waits.
    """

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.proof = self._compose("proof", settings=sql.SQL(""))
        self.proof_and_settings = self._compose("proof", settings=self._part("settings"))
        self.stop = self._compose("stop")
        of_one = self._rows(of_many=False)
        self.commit = self._compose("commit", rows=self._rows(of_many=True))
        self.commit_one = self._compose("commit_one", rows=of_one, waiting=sql.SQL("SKIP LOCKED"))
        self.commit_waiting = self._compose("commit_one", rows=of_one, waiting=sql.SQL(""))
        self.commit_unfenced = self._compose("commit_unfenced", rows=of_one)
        self.verdict = self._compose("verdict")
        self.already_committed = self._compose("already_committed")
        self.claim_free = self._addressable("claim_free")[False]
        self.claim = self._addressable("claim")
        self.claim_orphan = self._addressable("claim_orphan")
        self.get = self._addressable("get")
        self.holder = self._compose("holder")
        self.abandon = self._compose("abandon")
        self.renew = self._compose("renew")
        self.orphans = self._compose("orphans")
        self.page_blobs = self._compose("page_blobs")
        self.lock_threads = self._compose("lock_threads")
        self.delete_threads = self._compose("delete_threads")
        self.prune_threads = self._compose("prune_threads")
        self.delete_unused_blobs = self._compose("delete_unused_blobs")
        self.threads_of_runs = self._compose("threads_of_runs")
        self.delete_runs = self._compose("delete_runs")
        self.copy_target = self._compose("copy_target")
        self.copy_thread = self._compose("copy_thread")

    def page(self, *conditions: str) -> Statement:
        """The statement for a page of the checkpoints that meet all these conditions (names of blocks)."""
        condition = sql.SQL(" ").join(self._part(name) for name in conditions)
        return self._compose("page", conditions=condition, writes=self._part("writes"))

    def _addressable(self, name: str) -> dict[bool, Statement]:
        """The statement that reads the newest checkpoint (False), or the one asked for by id (True)."""
        parts = {part: self._part(part) for part in ("head", "values", "writes", "record_again")}
        newest, addressed = sql.SQL(""), self._part("addressed")
        return {
            False: self._compose(name, addressed=newest, **parts),
            True: self._compose(name, addressed=addressed, **parts),
        }

    def _rows(self, *, of_many: bool) -> sql.Composed:
        parts: dict[str, sql.Composable] = {
            "n": sql.SQL("n,") if of_many else sql.SQL(""),
            "on_n": sql.SQL("USING (n)") if of_many else sql.SQL("ON true"),
        }
        for column in _NUMBERS:
            parts[column] = sql.SQL("(SELECT %({})s),").format(sql.SQL(column)) if of_many else sql.SQL("")
        return self._part("rows", **parts)
