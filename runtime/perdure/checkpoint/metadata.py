"""Metadata as JSON text, and the comparison of metadata with a filter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.checkpoint.serde.json import exact_json
from perdure.errors import UnserializableValueError

_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def encode_metadata(metadata: Mapping[str, Any], what: str = "Metadata") -> bytes:
    """Encode metadata as JSON text that a `jsonb` column gives back equal; errors call it `what`.

    Raises UnserializableValueError for values that JSON does not have, and for NUL, which `jsonb` cannot
    hold.
    """
    plain = metadata if type(metadata) is dict else dict(metadata)
    payload = _json_text(plain)
    if payload is not None:
        return payload
    culprits = "; ".join(
        f"{key!r} is {value!r:.100}" for key, value in plain.items() if _json_text({key: value}) is None
    )
    raise UnserializableValueError(
        f"{what} cannot be stored: {culprits}. It may hold str (without NUL and lone surrogates), int of "
        "64 bits, finite float, bool, None, and lists and dicts of them; exactly these types."
    )


def _json_text(value: Any) -> bytes | None:
    payload = exact_json(value)
    if payload is not None and b"\\u0000" in payload and _NUL.search(payload):
        return None
    return payload


def metadata_matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if metadata has every wanted key with an equal value, as JSON understands equality."""
    return all(key in metadata and _equal_json(metadata[key], value) for key, value in wanted.items())


def _equal_json(left: Any, right: Any) -> bool:
    """Compare like `==`, except that true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal_json, left, right))
    return bool(left == right)
