"""Values as bytes that are equal only for values that are equal and of the same type.

Unlike stored values, these bytes are never read back. They depend neither on the order of a dict or a set
nor on the process.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

import orjson

from perdure.cache.tokens import token_of
from perdure.checkpoint.serde import tags
from perdure.checkpoint.serde.json import exact_json
from perdure.checkpoint.serde.refusals import RefusedError, index_step, key_step, unknown_type

_BUILTINS: Final = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)


def frame(tag: bytes, *parts: bytes) -> bytes:
    """Join parts to one, which says where it ends. Each kind of value has a tag of its own."""
    content = b"".join(parts)
    return tag + len(content).to_bytes(8, "big") + content


def text(value: str) -> bytes:
    return frame(b"s", value.encode("utf-8", "surrogatepass"))


class TypedEncoder:
    """An encoder of values that are made of data.

    Attributes:
        private: True if the bytes hold something that other processes cannot know.
    """

    def __init__(self) -> None:
        self.private = False

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises RefusedError, with the place in it, for a part that cannot be told apart."""
        if exact_json(value) is not None:
            return frame(b"j", orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
        try:
            return self._encode(value)
        except RecursionError:
            raise RefusedError("is nested too deeply", "pass it in a flatter form") from None

    def _encode(self, value: Any) -> bytes:
        kind = type(value)
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if kind is list:
            return frame(b"l", *self._items(value, value, index_step))
        if kind is dict:
            return frame(b"d", *sorted(self._pairs(value)))
        if kind in tags.LEAVES:
            leaf = tags.LEAVES[kind]
            return frame(b"v", text(leaf.name), self._encode(leaf.take(value)))
        if kind in tags.CONTAINERS:
            container = tags.CONTAINERS[kind]
            items = self._items(value, container.take(value), container.step)
            unordered = kind is set or kind is frozenset
            return frame(b"c", text(container.name), *(sorted(items) if unordered else items))
        return self._structured(kind, value)

    def _structured(self, kind: type, value: Any) -> bytes:
        """Encode an instance of a user's class by its fields."""
        if isinstance(value, Enum):
            return frame(b"e", self.class_of(kind), text(str(value._name_)), self._encode(value._value_))
        if isinstance(value, tuple) and hasattr(kind, "_fields") and not getattr(value, "__dict__", None):
            return frame(b"n", self.class_of(kind), *self._items(value, value, index_step))
        if isinstance(value, _BUILTINS):
            return self.other(value)
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
            return frame(b"a", self.class_of(kind), *self._fields(value, names))
        if hasattr(kind, "__pydantic_fields_set__"):
            # Which fields were set counts: of a model that a node returns, these are written.
            return frame(b"m", self.class_of(kind), *self._fields(value, _PYDANTIC))
        return self.other(value)

    def class_of(self, kind: type) -> bytes:
        """Encode a class by its name if it is found under it, else by its identity."""
        if is_found_by_name(kind):
            return frame(b"t", text(kind.__module__), text(kind.__qualname__))
        return self.unnamed(kind)

    def unnamed(self, value: Any) -> bytes:
        """Encode an object by its identity alone."""
        self.private = True
        return frame(b"u", token_of(value))

    def other(self, value: Any) -> bytes:
        """Encode a value that is not data: here, refuse it."""
        raise unknown_type(value, tags.STORED_TYPES)

    def _items(self, container: Any, items: Iterable[Any], step: Callable[[int], str]) -> list[bytes]:
        encoded: list[bytes] = []
        try:
            for item in items:
                encoded.append(self._encode(item))  # noqa: PERF401  # a refusal counts them
        except RefusedError as refusal:
            refusal.leave(container, step(len(encoded)))
            raise
        return encoded

    def _pairs(self, value: dict[Any, Any]) -> list[bytes]:
        keys = self._items(value, value, lambda index: ".keys()")
        places = list(value)
        values = self._items(value, value.values(), lambda index: key_step(places[index]))
        return [key + item for key, item in zip(keys, values, strict=True)]

    def _fields(self, value: Any, names: Iterable[str]) -> list[bytes]:
        present = [name for name in names if hasattr(value, name)]
        values = (getattr(value, name) for name in present)
        encoded = self._items(value, values, lambda index: f".{present[index]}")
        return [text(name) + item for name, item in zip(present, encoded, strict=True)]


def is_found_by_name(thing: Any) -> bool:
    """Return True if the module of an object has this very object under its name."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


_PYDANTIC: Final = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")

_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: frame(b"N"),
    bool: lambda value: frame(b"T" if value else b"F"),
    int: lambda value: frame(b"i", hex(value).encode()),
    float: lambda value: frame(b"f", value.hex().encode()),
    str: text,
}
