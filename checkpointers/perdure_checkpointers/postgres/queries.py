"""Reads `queries.sql`: named blocks, each with a sentence, composed with the schema's name once."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, LiteralString

from psycopg import sql

_BLOCK = re.compile(r"^-- name: (\w+)\n-- (.+)\n", re.MULTILINE)
_COMMENT = re.compile(r"\s*--.*")
_SPACE = re.compile(r"\s+")
_NEEDLESS_SPACE = re.compile(r" ?([(),]) ?")


def _folded(body: str) -> str:
    """Without comments and needless space: psycopg remembers what it parsed only of short statements."""
    return _NEEDLESS_SPACE.sub(r"\1", _SPACE.sub(" ", _COMMENT.sub("", body))).strip().removesuffix(";")


def _load() -> dict[str, LiteralString]:
    # The file is part of this package, as literal as the code beside it.
    text = files(__package__).joinpath("queries.sql").read_text("utf-8")
    _, *parts = _BLOCK.split(text)
    return {name: _folded(body) for name, _, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


BLOCKS: Final = _load()
"""Every block by name. Read on import: nothing is read from disk while a loop runs."""


class Queries:
    """The statements for one schema, ready to be sent.

    Those that wait for a row come in two kinds: the one takes what is free, the other waits.
    """

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema)
        self.proof = self._compose("proof")
        self.stop = self._compose("stop")
        rows = self._part("rows")
        self.commit = self._compose("commit", rows=rows, waiting=sql.SQL("SKIP LOCKED"))
        self.commit_waiting = self._compose("commit", rows=rows, waiting=sql.SQL(""))
        self.commit_unfenced = self._compose("commit_unfenced", rows=rows)
        self.already_committed = self._compose("already_committed")
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

    def page(self, *conditions: str) -> bytes:
        """The statement for a page of the checkpoints that meet all these conditions (names of blocks)."""
        condition = sql.SQL(" ").join(self._part(name) for name in conditions)
        return self._compose("page", conditions=condition, writes=self._part("writes"))

    def _addressable(self, name: str) -> dict[bool, bytes]:
        """The statement that reads the newest checkpoint (False), or the one asked for by id (True)."""
        parts = {part: self._part(part) for part in ("head", "values", "writes")}
        newest, addressed = sql.SQL(""), self._part("addressed")
        return {
            False: self._compose(name, addressed=newest, **parts),
            True: self._compose(name, addressed=addressed, **parts),
        }

    def _part(self, name: str) -> sql.Composed:
        return sql.SQL(BLOCKS[name]).format(schema=self._schema)

    def _compose(self, name: str, **parts: sql.Composable) -> bytes:
        return sql.SQL(BLOCKS[name]).format(schema=self._schema, **parts).as_bytes(None)
