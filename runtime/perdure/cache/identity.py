"""Callables as bytes that change when their code or their own data does.

The bytes hold the name, the code with its constants, the defaults, the values in the closure, the arguments
of a partial, the state of an object. Globals that the code mentions by name are not in them, and neither is
the code of functions that it calls by name.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from perdure.cache.typed import TypedEncoder, frame, is_found_by_name, text
from perdure.checkpoint.serde.refusals import RefusedError

_HEAP_TYPE: Final = 1 << 9
_IMMUTABLE_TYPE: Final = 1 << 8
"""Of `type.__flags__` (Py_TPFLAGS_HEAPTYPE, ..._IMMUTABLETYPE): a class statement sets the first alone."""


class CodeEncoder(TypedEncoder):
    """An encoder of code, and of data beside it.

    A value that is neither, such as a client or a lock, is encoded by its identity, and sets `private`.

    Args:
        stands_for: returns a value to encode in place of another; None for that itself.
    """

    def __init__(self, stands_for: Callable[[Any], Any] = lambda value: None) -> None:
        super().__init__()
        self._stands_for = stands_for
        self._met: dict[int, tuple[int, Any]] = {}  # the values too: while they live, their ids are theirs

    def class_of(self, kind: type) -> bytes:
        """Encode a class: its name, and the code and data of it and of its bases."""
        if kind.__module__ == "builtins":
            return frame(b"t", text(kind.__module__), text(kind.__qualname__))
        members = [
            text(name) + part
            for base in kind.__mro__
            for name in sorted(vars(base))
            for part in _member(name, vars(base)[name])
        ]
        return frame(b"k", super().class_of(kind), *members)

    def other(self, value: Any) -> bytes:
        instead = self._stands_for(value)
        if instead is not None:
            return self._once(value, lambda: frame(b"S", self._encode(instead)))
        match value:
            case types.FunctionType():
                return self._once(value, lambda: self._function(value))
            case types.MethodType():
                return frame(b"M", self._encode(value.__func__), self._bound(value.__self__))
            case functools.partial() if type(value) is functools.partial:
                return self._once(value, lambda: self._partial(value))
            case functools._lru_cache_wrapper():
                return self._once(value, lambda: frame(b"L", self._encode(vars(value))))
            case types.ModuleType():
                return frame(b"O", text(value.__name__))
            case type():
                return self.class_of(value)
            case types.BuiltinFunctionType() if is_found_by_name(value):
                return frame(b"b", text(value.__module__), text(value.__qualname__))
        return self._object(value) if callable(value) else self.unnamed(value)

    def _bound(self, value: Any) -> bytes:
        """Encode the object that a method is bound to: it is part of the call, so its state counts."""
        encoded = self._stands_for(value) is None and not isinstance(value, type | types.ModuleType)
        return self._object(value) if encoded else self._encode(value)

    def _once(self, value: Any, encode: Callable[[], bytes]) -> bytes:
        """Encode a value; met again, perhaps inside itself, it is the number of its first appearance."""
        met = self._met.get(id(value))
        if met is not None:
            return frame(b"R", _number(met[0]))
        self._met[id(value)] = (len(self._met), value)
        return encode()

    def _function(self, function: types.FunctionType) -> bytes:
        return frame(
            b"Fn",
            text(str(function.__module__)),
            text(function.__qualname__),
            code_digest(function.__code__),
            self._encode(function.__defaults__),
            self._encode(function.__kwdefaults__),
            *map(self._cell, function.__closure__ or ()),
            self._encode(vars(function)),
        )

    def _cell(self, cell: types.CellType) -> bytes:
        try:
            content = cell.cell_contents
        except ValueError:  # not yet assigned
            return frame(b"-")
        return self._encode(content)

    def _partial(self, value: functools.partial[Any]) -> bytes:
        return frame(b"P", *map(self._encode, (value.func, value.args, value.keywords, vars(value))))

    def _object(self, value: Any) -> bytes:
        kind = type(value)
        if not _shows_its_state(kind):
            return self.unnamed(value)
        names = [*getattr(value, "__dict__", ()), *_slots(kind)]
        return self._once(
            value, lambda: frame(b"o", self.class_of(kind), *sorted(self._fields(value, names)))
        )


def _member(name: str, member: Any) -> Iterator[bytes]:
    """Yield the encoded parts of a class's attribute, if it is code or data; of others no more is known."""
    for function in _functions_of(member):
        yield code_digest(function.__code__)
        with suppress(RefusedError):
            yield TypedEncoder().encode([function.__defaults__, function.__kwdefaults__])
    if not (name.startswith("__") and name.endswith("__")):
        with suppress(RefusedError):
            yield TypedEncoder().encode(member)


def _functions_of(member: Any) -> Iterator[types.FunctionType]:
    if isinstance(member, property):
        for function in (member.fget, member.fset, member.fdel):
            yield from _functions_of(function)
    elif isinstance(member, staticmethod | classmethod):
        yield from _functions_of(member.__func__)
    elif isinstance(member, types.FunctionType):
        yield member


def _shows_its_state(kind: type) -> bool:
    """Return whether the instances hold everything in attributes: a type made in C may hold more."""
    made = (base.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) for base in kind.__mro__ if base is not object)
    return all(flags == _HEAP_TYPE for flags in made)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{name}" if private else name


@functools.lru_cache(maxsize=4096)
def code_digest(code: types.CodeType) -> bytes:
    """Return a digest of what code does; where it was written, and its line numbers, do not count."""
    parts = frame(
        b"C",
        text(str(sys.implementation.cache_tag)),  # bytes mean another thing to another interpreter
        code.co_code,
        code.co_exceptiontable,
        *map(_number, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
        *(frame(b"N", *map(text, names)) for names in _names_in(code)),
        frame(b"c", *map(_constant, code.co_consts)),
    )
    return blake2b(parts, digest_size=32).digest()


def _names_in(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    return (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _constant(value: Any) -> bytes:
    if isinstance(value, types.CodeType):
        return frame(b"Cc", text(value.co_name), code_digest(value))
    if value is Ellipsis:
        return frame(b"Ce")
    if type(value) is tuple:
        return frame(b"Ct", *map(_constant, value))
    if type(value) is frozenset:
        return frame(b"Cs", *sorted(map(_constant, value)))
    if type(value) is slice:
        return frame(b"Cl", *map(_constant, (value.start, value.stop, value.step)))
    return TypedEncoder().encode(value)
