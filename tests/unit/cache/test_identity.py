"""The digest of code: equal for equal code, different for different code."""

from __future__ import annotations

import functools
import gc
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest

from perdure.cache.identity import CodeEncoder, code_digest
from perdure.checkpoint.serde.refusals import RefusedError


def identity(value: Any) -> bytes:
    return CodeEncoder().encode(value)


def is_private(value: Any) -> bool:
    encoder = CodeEncoder()
    encoder.encode(value)
    return encoder.private


def compiled(source: str, name: str = "node", module: str = "somewhere", line: int = 1) -> FunctionType:
    """Return the function of a module with this source."""
    there: dict[str, Any] = {"__name__": module}
    exec(compile("\n" * (line - 1) + source, f"{module}.py", "exec"), there)
    found = there[name]
    assert isinstance(found, FunctionType)
    return found


SOURCE = "def node(state, k=1, *, q=2):\n    return {'x': state['x'] * 2}\n"


def test_a_function_is_the_same_wherever_it_stands_in_its_module() -> None:
    assert identity(compiled(SOURCE)) == identity(compiled(SOURCE, line=40))
    assert not is_private(compiled(SOURCE))


@pytest.mark.parametrize(
    "other",
    [
        compiled(SOURCE, module="elsewhere"),
        compiled(SOURCE.replace("def node", "def other"), name="other"),
        compiled(SOURCE.replace("* 2", "* 3")),
        compiled(SOURCE.replace("* 2", "* 2.0")),
        compiled(SOURCE.replace("* 2", "* True")),
        compiled(SOURCE.replace("* 2", "+ 2")),
        compiled(SOURCE.replace("'x'", "'y'")),
        compiled(SOURCE.replace("k=1", "k=2")),
        compiled(SOURCE.replace("k=1", "k=1.0")),
        compiled(SOURCE.replace("q=2", "q=3")),
        compiled(SOURCE.replace("q=2", "r=2")),
        compiled(SOURCE.replace("state['x'] * 2", "load(state['x'])")),
        compiled(SOURCE.replace("state['x'] * 2", "fetch(state['x'])")),
        compiled(SOURCE.replace("state['x'] * 2", "state['x'] in {1, 2}")),
        compiled(SOURCE.replace("state['x'] * 2", "state['x'] in {1, 2.0}")),
        compiled(SOURCE.replace("state['x'] * 2", "state['x'] in (1, 2)")),
        compiled(SOURCE.replace("state['x'] * 2", "[n for n in state['x']]")),
        compiled(SOURCE.replace("state['x'] * 2", "(lambda n: n + 1)(state['x'])")),
        compiled(SOURCE.replace("state['x'] * 2", "(lambda n: n + 2)(state['x'])")),
        compiled(SOURCE.replace("state['x'] * 2", "state[...]")),
        compiled(SOURCE.replace("def", "async def")),
    ],
    ids=lambda other: str(other.__code__.co_consts),
)
def test_a_function_is_another_if_its_name_its_code_or_its_defaults_are(other: FunctionType) -> None:
    assert identity(other) != identity(compiled(SOURCE))


def test_constants_of_different_types_are_told_apart() -> None:
    constants = [
        "{True}",
        "{'T'}",
        "(True,)",
        "'T'",
        "b'T'",
        "{1}",
        "(1,)",
        "()",
        "...",
        "None",
        "1",
        "1.0",
        "1j",
    ]
    found = {identity(compiled(f"def node(s):\n    return s in {constant}\n")) for constant in constants}
    assert len(found) == len(constants)


def test_what_is_caught_where_counts() -> None:
    def source(raising: str) -> FunctionType:
        return compiled(f"def node(s):\n    try:\n        s()\n    except {raising}:\n        return 1\n")

    assert identity(source("ValueError")) != identity(source("KeyError"))


def closure(held: Any) -> Callable[[Any], Any]:
    def node(state: Any) -> Any:
        return held

    return node


class Multiply:
    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, state: Any) -> Any:
        return self.by

    def method(self, state: Any) -> Any:
        return self.by


class Slotted:
    __slots__ = ("__by",)

    def __init__(self, by: Any) -> None:
        self.__by = by

    def __call__(self, state: Any) -> Any:
        return self.__by


@dataclass
class Callable_:  # noqa: N801
    by: Any

    def __call__(self, state: Any) -> Any:
        return self.by


APART: list[Callable[[Any], Any]] = [
    closure,
    lambda held: functools.partial(closure, held),
    lambda held: functools.partial(closure, held=held),
    Multiply,
    lambda held: Multiply(held).__call__,
    lambda held: Multiply(held).method,
    Slotted,
    Callable_,
    lambda held: closure(closure(held)),
    lambda held: closure(functools.partial(closure, held)),
    lambda held: closure({"options": [held]}),
    lambda held: functools.lru_cache(closure(held)),
    lambda held: functools.wraps(closure)(closure(held)),
]


@pytest.mark.parametrize("make", APART)
def test_what_code_holds_tells_it_apart(make: Callable[[Any], Any]) -> None:
    held = [
        1,
        1.0,
        True,
        (1,),
        [1],
        "1",
        None,
        {"a": 1},
        len,
        closure,
        closure(1),
        closure(2),
        int,
        "int",
        operator,
    ]
    assert len({identity(make(each)) for each in held}) == len(held)


@pytest.mark.parametrize("make", APART)
def test_code_that_holds_equal_data_is_the_same_and_not_private(make: Callable[[Any], Any]) -> None:
    def held() -> Any:
        return {"b": (1, {"x"}), "a": closure([1])}

    assert identity(make(held())) == identity(make(held()))
    assert not is_private(make(held()))


@pytest.mark.parametrize("make", APART)
def test_code_that_holds_what_cannot_be_told_is_private_to_that_very_thing(
    make: Callable[[Any], Any],
) -> None:
    one, other = threading.Event(), threading.Event()
    assert is_private(make(one))
    assert identity(make(one)) == identity(make(one))
    assert identity(make(one)) != identity(make(other))


def test_state_that_changes_makes_it_another() -> None:
    node = Multiply(2)
    before = identity(node)
    node.by = 3
    assert identity(node) != before
    node.by = 2
    assert identity(node) == before


def test_two_methods_of_one_object_are_two() -> None:
    node = Multiply(1)
    assert len({identity(node), identity(node.__call__), identity(node.method)}) == 3


def _class(source: str) -> Any:
    there: dict[str, Any] = {"__name__": "somewhere"}
    exec(source, there)
    return there["Node"]()


@pytest.mark.parametrize(
    "change",
    [
        ("n + 1", "n + 2"),
        ("factor = 1", "factor = 2"),
        ("scale = 3", "scale = 4"),
        ("size = 1", "size = 2"),
        ("return 5", "return 6"),
        ("return 7", "return 8"),
    ],
)
def test_the_code_and_data_of_a_class_are_part_of_its_objects(change: tuple[str, str]) -> None:
    source = (
        "class Base:\n"
        "    factor = 1\n"
        "    def help(self, n): return n + 1\n"
        "class Node(Base):\n"
        "    scale = 3\n"
        "    @staticmethod\n"
        "    def fixed(): return 5\n"
        "    @property\n"
        "    def size(self): return 7\n"
        "    def __call__(self, state, size = 1): return self.help(1)\n"
    )

    def members(node: Any) -> bytes:
        encoder = CodeEncoder()
        encoder.unnamed = lambda value: b""  # type: ignore[method-assign]  # no class here is found by name
        return encoder.encode(node)

    assert members(_class(source)) == members(_class(source))
    assert members(_class(source)) != members(_class(source.replace(*change)))


def test_a_function_that_refers_to_itself_comes_to_an_end() -> None:
    def recursive(step: int) -> Callable[[Any], Any]:
        def node(n: Any) -> Any:
            return n and node(n - step)

        return node

    assert identity(recursive(1)) == identity(recursive(1))
    assert identity(recursive(1)) != identity(recursive(2))


def test_an_object_that_refers_to_itself_comes_to_an_end() -> None:
    def make(extra: int) -> Multiply:
        node = Multiply(None)
        node.by = [node, extra]
        return node

    assert identity(make(1)) == identity(make(1))
    assert identity(make(1)) != identity(make(2))


def test_a_variable_that_has_no_value_yet_is_not_one_that_has() -> None:
    def make(assigned: bool) -> Callable[[], Any]:
        if assigned:
            later = None

        def node() -> Any:
            return later

        return node

    assert identity(make(False)) != identity(make(True))


def test_attributes_of_a_function_count() -> None:
    one, other = closure(1), closure(1)
    vars(other)["option"] = 1
    assert identity(one) != identity(other)


class Hidden(functools.partial[Any]):
    pass


class CallableDict(dict[str, int]):
    def __call__(self, state: Any) -> Any:
        return self


@pytest.mark.parametrize("make", [lambda: Hidden(closure, 1), lambda: CallableDict(a=1)])
def test_an_object_that_may_hold_more_than_attributes_is_private(make: Callable[[], Any]) -> None:
    one, other = make(), make()
    assert is_private(one)
    assert identity(one) != identity(other)


def test_an_object_whose_end_nobody_is_told_of_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"operator\.itemgetter, of which nothing tells.*; use a function"):
        identity(operator.itemgetter("x"))


def test_the_token_of_what_is_gone_is_never_another_ones() -> None:
    seen = set()
    for _ in range(20):
        seen.add(identity(closure(threading.Event())))
        gc.collect()
    assert len(seen) == 20


def test_another_value_may_stand_for_one() -> None:
    event = threading.Event()

    def stands_for(value: Any) -> Any:
        return ("event", 1) if value is event else None

    encoder = CodeEncoder(stands_for)
    assert encoder.encode(closure(event)) == CodeEncoder(stands_for).encode(closure(event))
    assert not encoder.private


def test_the_digest_of_code_holds_the_code_inside() -> None:
    def nested(constant: int) -> FunctionType:
        return compiled(
            f"def node():\n    def inner():\n        return lambda: {constant}\n    return inner\n"
        )

    assert code_digest(nested(1).__code__) == code_digest(nested(1).__code__)
    assert code_digest(nested(1).__code__) != code_digest(nested(2).__code__)
