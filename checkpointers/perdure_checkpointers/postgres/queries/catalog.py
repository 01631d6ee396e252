"""All statements of the saver and of the cache, composed for one schema."""

from __future__ import annotations

from typing import Any, Final, LiteralString, TypeVar

from psycopg import sql

from perdure_checkpointers.postgres.queries import rows
from perdure_checkpointers.postgres.queries.blocks import BLOCKS
from perdure_checkpointers.postgres.queries.statement import Statement, statement_of

Row = TypeVar("Row")

_NUMBERS: Final[tuple[LiteralString, ...]] = ("c_n", "b_n", "w_n")
_NOTHING: Final = sql.SQL("")

PAGE_CONDITIONS: Final = ("of_thread", "of_namespace", "addressed", "older_than", "matching", "after")
"""The blocks that a page of checkpoints can be limited by."""


class _Composer:
    """Blocks, with the schema's name and other parts put into them."""

    def __init__(self, schema: str, *, as_written: bool = False) -> None:
        """Compose the statements.

        Args:
            as_written: keep the line breaks and comments of the files, for people.
        """
        self._schema = sql.Identifier(schema)
        self._as_written = as_written

    def _part(self, name: str, **parts: sql.Composable) -> sql.Composed:
        block = BLOCKS[name]
        text = block.text if self._as_written else block.folded
        return sql.SQL(text).format(schema=self._schema, **parts)

    def _compose(self, name: str, row: type[Row], note: str = "", **parts: sql.Composable) -> Statement[Row]:
        return statement_of(BLOCKS[name].sentence + note, self._part(name, **parts), row)


class CacheQueries(_Composer):
    """The statements of the node cache."""

    def __init__(self, schema: str, *, as_written: bool = False) -> None:
        super().__init__(schema, as_written=as_written)
        self.cache_get = self._compose("cache_get", rows.CachedRow)
        self.cache_set = self._compose("cache_set", rows.NoRow)
        self.cache_clear = self._compose("cache_clear", rows.ClearedRow)


class Queries(_Composer):
    """The statements of the saver.

    Of a commit of one thread there are two: `commit_one` skips a row that is locked, `commit_waiting`
    waits for it. A statement that reads a checkpoint reads the newest, or the one with an id if its name
    ends with `_by_id`.
    """

    def __init__(self, schema: str, *, as_written: bool = False) -> None:
        super().__init__(schema, as_written=as_written)
        self.proof = self._compose("proof", rows.ProofRow, settings=sql.SQL("NULL"))
        self.proof_and_settings = self._compose(
            "proof",
            rows.ProofRow,
            " Then set how it plans statements.",
            settings=self._part("settings"),
        )
        self.stop = self._compose("stop", rows.StoppedRow)

        of_one = self._rows(of_many=False)
        self.commit = self._compose("commit", rows.AcceptedRow, rows=self._rows(of_many=True))
        self.commit_one = self._compose(
            "commit_one", rows.AcceptedRow, rows=of_one, waiting=sql.SQL("SKIP LOCKED")
        )
        self.commit_waiting = self._compose(
            "commit_one", rows.AcceptedRow, " Wait if its row is locked.", rows=of_one, waiting=_NOTHING
        )
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
        return self._reading(name, row, " The checkpoint is the newest.", _NOTHING)

    def _by_id(self, name: str, row: type[Row]) -> Statement[Row]:
        return self._reading(name, row, " The checkpoint is named by its id.", self._part("addressed"))

    def _reading(self, name: str, row: type[Row], note: str, addressed: sql.Composable) -> Statement[Row]:
        parts = {part: self._part(part) for part in ("head", "values", "writes", "record_again")}
        return self._compose(name, row, note, addressed=addressed, **parts)

    def _rows(self, *, of_many: bool) -> sql.Composed:
        """Compose the part that stores rows; in a batch of many threads, `n` says whose they are."""
        parts: dict[str, sql.Composable] = {
            "n": sql.SQL("n,") if of_many else _NOTHING,
            "on_n": sql.SQL("USING (n)") if of_many else sql.SQL("ON true"),
        }
        number = sql.SQL("(SELECT %({})s::int4[]),")
        for column in _NUMBERS:
            parts[column] = number.format(sql.SQL(column)) if of_many else _NOTHING
        return self._part("rows", **parts)


def statements_as_written(schema: str) -> dict[str, Statement[Any]]:
    """Return all statements by name, for people; that for a page has all of its conditions."""
    queries = Queries(schema, as_written=True)
    everything = vars(queries) | vars(CacheQueries(schema, as_written=True))
    statements = {name: value for name, value in everything.items() if isinstance(value, Statement)}
    return {**statements, "page": queries.page(*PAGE_CONDITIONS)}
