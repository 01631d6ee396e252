"""The migrations of this release: files, in the order in which they apply."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Final, LiteralString

_ID_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A step of the schema's history. `{schema}` in its text stands for the schema's name."""

    id: int
    name: str
    text: LiteralString

    @property
    def checksum(self) -> str:
        """The checksum that tells an edited migration from the one that was applied."""
        return sha256(self.text.encode()).hexdigest()


def _load() -> tuple[Migration, ...]:
    folder = files(__package__).joinpath("postgres")
    found = [
        (entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    ]
    return tuple(_parse(name, text) for name, text in sorted(found))


def _parse(filename: str, text: str) -> Migration:
    # The files are part of this package, so their text is as literal as the code beside them.
    stem = filename.removesuffix(".sql")
    return Migration(id=int(stem[:_ID_DIGITS]), name=stem, text=text)


MIGRATIONS: Final = _load()
"""All migrations, oldest first. Read on import: nothing is read from disk while a loop runs."""
