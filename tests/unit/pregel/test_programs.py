"""Programs of nodes and channels: against a model, by hand, and on stored threads."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import (
    AnyValue,
    BaseChannel,
    BinaryOperatorAggregate,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    Topic,
    UntrackedValue,
)
from perdure.checkpoint.base import Commit
from perdure.data import Durability
from perdure.errors import GraphRecursionError, InvalidUpdateError
from perdure.pregel import NodeBuilder, Pregel
from perdure.pregel.plan.builder import PregelNode
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import thread
from tests.unit.pregel.model_channels import ClashError, Model, Program, programs, result_of
from tests.unit.pregel.savers import WatchedSaver

LIMIT = 12
MODES: list[Durability] = ["sync", "async", "exit"]
few = hypothesis.settings(max_examples=60)

CHANNELS: dict[str, Callable[[], BaseChannel[Any, Any]]] = {
    "last": lambda: LastValue(int),
    "any": lambda: AnyValue(int),
    "ephemeral": lambda: EphemeralValue(int, False),
    "topic": lambda: Topic(int),
    "pile": lambda: Topic(int, True),
    "sum": lambda: BinaryOperatorAggregate(int, operator.add),
    "after": lambda: LastValueAfterFinish(int),
}


def built(program: Program, began: Callable[[int], None] = lambda node: None, **more: Any) -> Pregel:
    """Build the engine's graph of a program. `began` is called for every body that begins."""
    channels = {f"c{number}": CHANNELS[kind]() for number, kind in enumerate(program.kinds)}
    return Pregel(
        nodes={f"n{number}": _node(program, number, began) for number in range(len(program.subscribes))},
        channels=channels,
        input_channels="c0",
        output_channels=list(channels),
        **more,
    )


def _node(program: Program, number: int, began: Callable[[int], None]) -> NodeBuilder:
    async def action(given: Any) -> int | None:
        began(number)
        return result_of(number, given)

    own, reads = program.subscribes[number], program.reads[number]
    node = NodeBuilder().do(action).write_to(*(f"c{c}" for c in program.writes[number]))
    if reads is None:
        return node.subscribe_only(f"c{own[0]}")
    return node.subscribe_to(*(f"c{c}" for c in own), read=False).read_from(*(f"c{c}" for c in reads))


def ended(program: Program, start: int) -> tuple[dict[str, Any], list[int]]:
    """Return the model's result for a program that ends; others are skipped."""
    model = Model(program)
    try:
        ran = model.run(start, LIMIT)
    except ClashError:
        hypothesis.reject()
    hypothesis.assume(not model.due)
    return {f"c{channel}": value for channel, value in model.values.items()}, ran


# Against the model


@given(programs(), st.integers(1, 9))
async def test_the_engine_does_what_the_model_does(program: Program, start: int) -> None:
    began: list[int] = []
    graph = built(program, began.append)
    model = Model(program)
    try:
        ran = model.run(start, LIMIT)
    except ClashError:
        with pytest.raises(InvalidUpdateError, match="Can receive only one value per step"):
            await graph.ainvoke(start, {"recursion_limit": LIMIT})
        return
    if model.due:
        with pytest.raises(GraphRecursionError):
            await graph.ainvoke(start, {"recursion_limit": LIMIT})
    else:
        result = await graph.ainvoke(start, {"recursion_limit": LIMIT})
        assert result == {f"c{channel}": value for channel, value in model.values.items()}
    assert Counter(began) == Counter(ran)


@few
@given(programs(), st.integers(1, 9), st.sampled_from(MODES))
async def test_what_is_stored_of_a_run_is_its_result(program: Program, start: int, mode: Durability) -> None:
    result, _ = ended(program, start)
    graph = built(program, checkpointer=WatchedSaver())

    assert await graph.ainvoke(start, thread(), durability=mode) == result
    snapshot = await graph.aget_state(thread())
    assert (snapshot.values, snapshot.next) == (result, ())
    assert await graph.ainvoke(None, thread()) == result


@few
@given(programs(), st.integers(1, 9), st.sampled_from(MODES), st.data())
async def test_a_run_one_body_of_which_fails_is_resumed_to_the_same_end(
    program: Program, start: int, mode: Durability, data: st.DataObject
) -> None:
    result, ran = ended(program, start)
    fails_at = data.draw(st.integers(1, len(ran)), "body")
    began: list[int] = []

    def begin(number: int) -> None:
        began.append(number)
        if len(began) == fails_at:
            raise ZeroDivisionError(number)

    graph = built(program, begin, checkpointer=WatchedSaver())
    with pytest.raises(ZeroDivisionError):
        await graph.ainvoke(start, thread(), durability=mode)

    assert await graph.ainvoke(None, thread(), durability=mode) == result
    assert (Counter(began) - Counter(ran)).total() == 1, "only what failed is run again"


@few
@given(programs(), st.integers(1, 9), st.sampled_from(["sync", "async"]))
async def test_a_run_that_is_killed_at_every_second_commit_ends_the_same(
    program: Program, start: int, mode: Durability
) -> None:
    result, _ = ended(program, start)
    clock = FakeClock()
    saver = WatchedSaver(clock)
    graph = built(program, checkpointer=saver, clock=clock)
    left = 1

    async def one_and_no_more(commit: Commit) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("killed")

    saver.before_commit, saver.dead = one_and_no_more, True
    found = None
    try:
        found = await graph.ainvoke(start, thread(), durability=mode)
    except ConnectionError:
        for _ in range(LIMIT + 2):
            clock.advance(saver.lease_seconds)
            [orphan] = await saver.aorphans()
            left = 1
            try:
                found = await graph.acontinue(orphan)
                break
            except ConnectionError:
                continue

    assert found == result


# By hand


async def test_a_loop_through_a_channel_ends_when_nothing_is_written() -> None:
    grow = NodeBuilder().subscribe_only("text").do(lambda text: text * 2 if len(text) < 10 else None)
    graph = Pregel(
        nodes={"grow": grow.write_to("text")},
        channels={"text": EphemeralValue(str), "other": LastValue(str)},
        input_channels="text",
        output_channels="text",
    )

    assert await graph.ainvoke("a" * 11) is None, "nobody wrote to it in the last superstep"
    kept = Pregel(
        nodes={"grow": grow},
        channels={"text": LastValue(str)},
        input_channels="text",
        output_channels="text",
    )
    assert await kept.ainvoke("a") == "a" * 16


async def test_a_topic_gathers_from_many_and_a_barrier_waits_for_them() -> None:
    def square(name: str) -> NodeBuilder:
        return NodeBuilder().subscribe_only("n").do(lambda n: n * n).write_to("squares", ready=name)

    gather = NodeBuilder().subscribe_to("ready", read=False).read_from("squares")
    graph = Pregel(
        nodes={
            "a": square("a"),
            "b": NodeBuilder().subscribe_only("n").write_to("late"),
            "c": NodeBuilder().subscribe_only("late").do(lambda n: [n, n + 1]).write_to("squares", ready="c"),
            "gather": gather.do(lambda given: sorted(given["squares"])).write_to("out"),
        },
        channels={
            "n": LastValue(int),
            "late": LastValue(int),
            "squares": Topic(int, accumulate=True),
            "ready": NamedBarrierValue(str, {"a", "c"}),
            "out": LastValue(list),
        },
        input_channels="n",
        output_channels="out",
    )

    assert await graph.ainvoke(3) == [3, 4, 9]


async def test_words_are_counted() -> None:
    def tally(left: Counter[str], right: Counter[str]) -> Counter[str]:
        return left + right

    lines = NodeBuilder().subscribe_only("text").do(str.splitlines).write_to("even", "odd")
    even = NodeBuilder().subscribe_only("even").do(lambda own: Counter(" ".join(own[::2]).split()))
    odd = NodeBuilder().subscribe_only("odd").do(lambda own: Counter(" ".join(own[1::2]).split()))
    graph = Pregel(
        nodes={"lines": lines, "even": even.write_to("counts"), "odd": odd.write_to("counts")},
        channels={
            "text": EphemeralValue(str),
            "even": LastValue(list),
            "odd": LastValue(list),
            "counts": BinaryOperatorAggregate(Counter, tally),
        },
        input_channels="text",
        output_channels="counts",
    )

    assert await graph.ainvoke("a rose is\na rose is\na rose") == Counter(a=3, rose=3, **{"is": 2})


async def test_a_graph_can_be_a_node_of_another() -> None:
    inner = Pregel(
        nodes={"double": NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels="x",
        output_channels="y",
    )
    outer = Pregel(
        nodes={"inner": NodeBuilder().subscribe_only("x").do(inner).write_to("y")},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels="x",
        output_channels=["y"],
        checkpointer=WatchedSaver(),
    )

    assert await outer.ainvoke(21, thread()) == {"y": 42}


async def test_a_node_whose_one_channel_is_empty_is_not_run_and_does_not_hold_back_what_waits() -> None:
    graph = Pregel(
        nodes={
            "empty": PregelNode(triggers=("x",), channels="y"),
            "last": NodeBuilder().subscribe_only("end").do(lambda x: x + 1).write_to("out"),
            "first": NodeBuilder().subscribe_only("in").write_to("x", "end"),
        },
        channels={
            "in": LastValue(int),
            "x": LastValue(int),
            "y": LastValue(int),
            "end": LastValueAfterFinish(int),
            "out": LastValue(int),
        },
        input_channels="in",
        output_channels="out",
    )

    assert await graph.ainvoke(1, {"recursion_limit": 2}) == 2


@pytest.mark.parametrize("steps", [1, 3])
async def test_a_chain_of_n_nodes_takes_n_supersteps(steps: int) -> None:
    names = [f"c{number}" for number in range(steps + 1)]
    graph = Pregel(
        nodes={
            f"to_{after}": NodeBuilder().subscribe_only(before).write_to(after)
            for before, after in pairwise(names)
        },
        channels={name: LastValue(int) for name in names},
        input_channels="c0",
        output_channels=names[-1],
    )

    assert await graph.ainvoke(5, {"recursion_limit": steps}) == 5
    if steps > 1:
        with pytest.raises(GraphRecursionError):
            await graph.ainvoke(5, {"recursion_limit": steps - 1})


# On a stored thread


def counting(**more: Any) -> Pregel:
    """Build a graph that keeps and counts its inputs."""
    return Pregel(
        nodes={
            "keep": NodeBuilder().subscribe_only("in").do(lambda item: [item]).write_to("items", total=1),
            "see": NodeBuilder().subscribe_to("items").read_from("secret").write_to("seen").do(len),
        },
        channels={
            "in": EphemeralValue(str),
            "items": BinaryOperatorAggregate(list, operator.add),
            "total": BinaryOperatorAggregate(int, operator.add),
            "secret": UntrackedValue(str),
            "seen": LastValue(int),
        },
        input_channels=["in", "secret"],
        output_channels=["items", "total", "seen"],
        checkpointer=WatchedSaver(),
        **more,
    )


async def test_a_thread_goes_on_with_what_its_channels_hold_and_stores_lists_as_what_changed() -> None:
    graph = counting()
    for item in "abc":
        await graph.ainvoke({"in": item, "secret": "s"}, thread())
    result = await graph.ainvoke({"in": "d"}, thread())
    saver = graph.checkpointer
    assert isinstance(saver, WatchedSaver)
    rows = [row for commit in saver.acknowledged for row in commit.blobs]

    assert result == {"items": ["a", "b", "c", "d"], "total": 4, "seen": 1}
    assert [row.payload for row in rows if row.channel == "items"] == [b'["a"]', b'["b"]', b'["c"]', b'["d"]']
    assert "secret" not in {row.channel for row in rows}


@pytest.mark.parametrize("kinds", [(LastValue, LastValueAfterFinish), (LastValueAfterFinish, LastValue)])
@pytest.mark.parametrize("other", [LastValue, AnyValue, EphemeralValue])
async def test_a_channel_may_begin_or_cease_to_wait_while_a_thread_does(
    kinds: tuple[Any, Any], other: Any
) -> None:
    saver = WatchedSaver()
    before, after = (other if kind is LastValue else kind for kind in kinds)
    broken: list[Exception] = [ZeroDivisionError()]

    def fails_once(given: int) -> int:
        if broken:
            raise broken.pop()
        return given

    def made(kind: Any) -> Pregel:
        late = NodeBuilder().subscribe_only("late").do(lambda late: late + 1).write_to("out")
        return Pregel(
            nodes={
                "first": NodeBuilder().subscribe_only("in").write_to("x", "late"),
                "b": NodeBuilder().subscribe_only("x").do(fails_once).write_to("y"),
                "late": late,
            },
            channels={**{name: LastValue(int) for name in ("in", "x", "y", "out")}, "late": kind(int)},
            input_channels="in",
            output_channels=["y", "out"],
            checkpointer=saver,
        )

    with pytest.raises(ZeroDivisionError):
        await made(before).ainvoke(1, thread())

    assert await made(after).ainvoke(None, thread()) == {"y": 1, "out": 2}


async def test_the_first_checkpoint_is_that_of_the_input_and_steps_count_from_there() -> None:
    graph = counting()
    await graph.ainvoke({"in": "a"}, thread())
    saver = graph.checkpointer
    assert isinstance(saver, WatchedSaver)

    assert [(row.metadata["source"], row.metadata["step"]) for c in saver.sent for row in c.checkpoints] == [
        ("input", -1),
        ("loop", 0),
        ("loop", 1),
    ]


async def test_streams_show_the_channels_as_they_change() -> None:
    graph = counting()
    values = [event async for event in graph.astream({"in": "a"}, thread())]
    updates = [event async for event in graph.astream({"in": "b"}, thread(), stream_mode="updates")]

    assert values == [
        {"in": "a", "items": [], "total": 0},
        {"items": ["a"], "total": 1},
        {"items": ["a"], "total": 1, "seen": 1},
    ]
    assert updates == [{"keep": {"items": ["b"], "total": 1}}, {"see": {"seen": 1}}]


async def test_a_stream_of_one_channel_shows_its_bare_value() -> None:
    graph = counting(stream_channels="items")
    values = [event async for event in graph.astream({"in": "a"}, thread())]
    updates = [event async for event in graph.astream({"in": "b"}, thread(), stream_mode="updates")]

    assert values == [["a"]]
    assert updates == [{"keep": ["b"]}, {"see": None}]
    shown: Any = (await graph.aget_state(thread())).values
    assert shown == ["a", "b"]
