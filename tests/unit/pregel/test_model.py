"""The engine compared with a model: bodies and the order of writes are equal, interrupted or not."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.checkpoint.base import Commit
from perdure.data import Durability
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import thread
from tests.unit.pregel.model import run_model
from tests.unit.pregel.modelled import build
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.shapes import Shape, entry, shapes

# Random graphs have every structure that compile() warns of.
pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.GraphStructureWarning")

MODES: list[Durability] = ["sync", "async", "exit"]
modes = st.sampled_from(MODES)
few = hypothesis.settings(max_examples=60)


@given(shapes(), st.sampled_from([None, 1, 3]))
async def test_the_engine_does_what_the_model_does(shape: Shape, limit: int | None) -> None:
    keys, supersteps = run_model(shape)
    began: list[str] = []
    result = (
        await build(shape, began.append)
        .compile()
        .ainvoke({}, {"max_concurrency": limit, "recursion_limit": len(supersteps)})
    )

    assert result == keys
    assert Counter(began) == Counter(keys["log"])


@few
@given(shapes(), modes)
async def test_with_a_saver_it_does_the_same_and_takes_the_same_supersteps(
    shape: Shape, mode: Durability
) -> None:
    keys, supersteps = run_model(shape)
    saver = WatchedSaver()
    graph = build(shape).compile(checkpointer=saver)

    assert await graph.ainvoke({}, thread(), durability=mode) == keys
    assert saver.steps()[-1] == len(supersteps)
    snapshot = await graph.aget_state(thread())
    assert (snapshot.values, snapshot.next) == (keys, ())


@few
@given(shapes(), st.sampled_from(["sync", "async"]))
async def test_a_run_that_is_killed_at_every_second_commit_ends_the_same(
    shape: Shape, mode: Durability
) -> None:
    keys, supersteps = run_model(shape)
    clock = FakeClock()
    saver = WatchedSaver(clock)
    graph = build(shape).compile(checkpointer=saver, clock=clock)
    left = 1

    async def one_and_no_more(commit: Commit) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ConnectionError("killed")

    saver.before_commit, saver.dead = one_and_no_more, True
    result = None
    try:
        result = await graph.ainvoke({}, thread(), durability=mode)
    except ConnectionError:
        for _ in range(len(supersteps) + 2):
            clock.advance(saver.lease_seconds)
            [orphan] = await saver.aorphans()
            left = 1
            try:
                result = await graph.acontinue(orphan)
                break
            except ConnectionError:
                continue

    assert result == keys
    assert await saver.aorphans() == []


@few
@given(shapes(), modes, st.data())
async def test_a_run_one_body_of_which_fails_is_resumed_to_the_same_end(
    shape: Shape, mode: Durability, data: st.DataObject
) -> None:
    keys, supersteps = run_model(shape)
    index = data.draw(st.integers(0, len(supersteps) - 1), "superstep")
    before = sum(len(ran) for ran in supersteps[:index])
    victim = data.draw(st.sampled_from(keys["log"][before : before + len(supersteps[index])]), "victim")
    began: list[str] = []
    fails_at = began.count(victim) + 1

    def begin(own: str) -> None:
        began.append(own)
        if own == victim and began.count(victim) == fails_at:
            raise ZeroDivisionError(own)

    graph = build(shape, begin).compile(checkpointer=WatchedSaver())
    with pytest.raises(ZeroDivisionError):
        await graph.ainvoke({}, thread(), durability=mode)

    assert await graph.ainvoke(None, thread(), durability=mode) == keys
    assert Counter(began) - Counter(keys["log"]) == {victim: 1}, (
        "what had finished beside it is not run again"
    )


@few
@given(shapes(), st.data())
async def test_a_history_resumed_at_any_of_its_checkpoints_ends_the_same(
    shape: Shape, data: st.DataObject
) -> None:
    keys, _ = run_model(shape)
    saver = WatchedSaver()
    graph = build(shape).compile(checkpointer=saver)
    await graph.ainvoke({}, thread())
    stored = [checkpoint async for checkpoint in saver.alist(thread())]
    chosen = data.draw(st.sampled_from(stored), "checkpoint")

    assert await graph.ainvoke(None, chosen.config) == keys


def test_the_model_knows_what_the_description_says() -> None:
    shape = Shape(
        size=3,
        entries=frozenset({0, 1}),
        edges=frozenset(),
        joins=frozenset({((0, 1), 2)}),
        branches=((), (), ()),
        sends=((2, 2), (), ()),
    )
    keys, supersteps = run_model(shape)

    assert keys["log"] == [
        *(entry(0, 0, None), entry(1, 0, None)),
        *(entry(2, 2, None), entry(2, 0, 0), entry(2, 0, 0)),
    ]
    assert [len(ran) for ran in supersteps] == [2, 3]
