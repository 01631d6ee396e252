"""The named blocks of the `.sql` files, each with its sentence."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, LiteralString, NamedTuple

_FILES: Final = ("connection.sql", "commit.sql", "claim.sql", "read.sql", "thread.sql", "cache.sql")
_MARKER: Final = re.compile(r"^-- name: (\w+)\n-- (.+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s*--.*")
_SPACE: Final = re.compile(r"\s+")
_NEEDLESS_SPACE: Final = re.compile(r" ?([(),]) ?")


class SqlBlock(NamedTuple):
    """A statement, or a part of one.

    Attributes:
        text: SQL as it stands in the file.
        folded: SQL without comments and needless space; behind a pooler the text travels each time.
    """

    sentence: str
    text: LiteralString
    folded: LiteralString


def _load(filename: str) -> dict[str, SqlBlock]:
    # The file is part of this package, so its text is as literal as the code beside it.
    text = files(__package__).joinpath(filename).read_text("utf-8")
    _, *parts = _MARKER.split(text)
    marked = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: _block(sentence, body.strip().removesuffix(";")) for name, sentence, body in marked}


def _block(sentence: str, text: str) -> SqlBlock:
    folded = _NEEDLESS_SPACE.sub(r"\1", _SPACE.sub(" ", _COMMENT.sub("", text)))
    return SqlBlock(sentence, text, folded.strip())


BLOCKS: Final = {name: block for filename in _FILES for name, block in _load(filename).items()}
"""All blocks by name. Read on import: nothing is read from disk while a loop runs."""
