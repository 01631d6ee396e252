"""All statements of the saver and of the cache, composed for one schema."""

from __future__ import annotations

from typing import Final, LiteralString, TypeVar

from psycopg import sql

from perdure_checkpointers.postgres.queries import rows
from perdure_checkpointers.postgres.queries.blocks import BLOCKS
from perdure_checkpointers.postgres.queries.statement import Statement, statement_of

Row = TypeVar("Row")

_NUMBERS: Final[tuple[LiteralString, ...]] = ("c_n", "b_n", "w_n")
_NOTHING: Final = sql.SQL("")


class _Composer:
    """Blocks, with the schema's name and other parts put into them."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema)

    def _part(self, name: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(BLOCKS[name].folded).format(schema=self._schema, **parts)

    def _compose(self, name: str, row: type[Row], **parts: sql.Composable) -> Statement[Row]:
        return statement_of(self._part(name, **parts), row)


class CacheQueries(_Composer):
    """The statements of the node cache."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.cache_get = self._compose("cache_get", rows.CachedRow)
        self.cache_set = self._compose("cache_set", rows.NoRow)
        self.cache_clear = self._compose("cache_clear", rows.ClearedRow)


class Queries(_Composer):
    """The statements of the saver.

    Of a commit of one thread there are two: `commit_one` skips a row that is locked, `commit_waiting`
    waits for it. A statement that reads a checkpoint reads the newest, or the one with an id if its name
    ends with `_by_id`.
    """

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self.proof = self._compose("proof", rows.ProofRow, settings=sql.SQL("NULL"))
        self.proof_and_settings = self._compose("proof", rows.ProofRow, settings=self._part("settings"))
        self.stop = self._compose("stop", rows.StoppedRow)

        of_one = self._rows(of_many=False)
        skipping, waiting = sql.SQL("SKIP LOCKED"), _NOTHING
        self.commit = self._compose("commit", rows.AcceptedRow, rows=self._rows(of_many=True))
        self.commit_one = self._compose("commit_one", rows.AcceptedRow, rows=of_one, waiting=skipping)
        self.commit_waiting = self._compose("commit_one", rows.AcceptedRow, rows=of_one, waiting=waiting)
        self.commit_unfenced = self._compose("commit_unfenced", rows.AcceptedRow, rows=of_one)
        self.verdict = self._compose("verdict", rows.VerdictRow)
        self.already_committed = self._compose("already_committed", rows.RepetitionRow)

        self.claim_free = self._newest("claim_free", rows.FreeGrantRow)
        self.claim = self._newest("claim", rows.AnswerRow)
        self.claim_by_id = self._by_id("claim", rows.AnswerRow)
        self.claim_orphan = self._newest("claim_orphan", rows.AnswerRow)
        self.claim_orphan_by_id = self._by_id("claim_orphan", rows.AnswerRow)
        self.holder = self._compose("holder", rows.HolderRow)
        self.abandon = self._compose("abandon", rows.NoRow)
        self.renew = self._compose("renew", rows.RenewedRow)
        self.orphans = self._compose("orphans", rows.OrphanRow)

        self.get = self._newest("get", rows.HeadRow)
        self.get_by_id = self._by_id("get", rows.HeadRow)
        self.page_blobs = self._compose("page_blobs", rows.PageBlobRow)

        self.lock_threads = self._compose("lock_threads", rows.ThreadRow)
        self.delete_threads = self._compose("delete_threads", rows.NoRow)
        self.prune_threads = self._compose("prune_threads", rows.NoRow)
        self.delete_unused_blobs = self._compose("delete_unused_blobs", rows.NoRow)
        self.threads_of_runs = self._compose("threads_of_runs", rows.ThreadRow)
        self.delete_runs = self._compose("delete_runs", rows.NoRow)
        self.copy_target = self._compose("copy_target", rows.ThreadRow)
        self.copy_thread = self._compose("copy_thread", rows.NoRow)

    def page(self, *conditions: str) -> Statement[rows.PageRow]:
        """Compose the statement for a page of the checkpoints that meet all conditions (names of blocks)."""
        condition = sql.SQL(" ").join(self._part(name) for name in conditions)
        return self._compose("page", rows.PageRow, conditions=condition, writes=self._part("writes"))

    def _newest(self, name: str, row: type[Row]) -> Statement[Row]:
        return self._reading(name, row, _NOTHING)

    def _by_id(self, name: str, row: type[Row]) -> Statement[Row]:
        return self._reading(name, row, self._part("addressed"))

    def _reading(self, name: str, row: type[Row], addressed: sql.Composable) -> Statement[Row]:
        parts = {part: self._part(part) for part in ("head", "values", "writes", "record_again")}
        return self._compose(name, row, addressed=addressed, **parts)

    def _rows(self, *, of_many: bool) -> sql.Composed:
        """Compose the part that stores rows; in a batch of many threads, `n` says whose they are."""
        parts: dict[str, sql.Composable] = {
            "n": sql.SQL("n,") if of_many else _NOTHING,
            "on_n": sql.SQL("USING (n)") if of_many else sql.SQL("ON true"),
        }
        for column in _NUMBERS:
            parts[column] = sql.SQL("(SELECT %({})s),").format(sql.SQL(column)) if of_many else _NOTHING
        return self._part("rows", **parts)
