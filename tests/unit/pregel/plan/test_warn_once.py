"""Warnings that are given once."""

from __future__ import annotations

import pytest

from perdure.constants import START
from perdure.graph.state import StateGraph
from perdure.pregel.plan import warn_once as once
from perdure.pregel.plan.plan import Plan
from tests.unit.pregel.graphs import Log, returns


def plan_of(*nodes: str, name: str = "graph") -> Plan:
    builder = StateGraph(Log)
    for node in nodes:
        builder.add_node(node, returns({})).add_edge(START, node)
    return builder.compile(name=name).plan


def test_the_same_of_one_node_is_new_once() -> None:
    told, plan = once.WarnOnce(), plan_of("a")

    assert told.is_new(plan, "a", "key")
    assert not told.is_new(plan, "a", "key")


@pytest.mark.parametrize(
    ("plan", "node", "what"),
    [
        (plan_of("a", "b"), "a", "other"),
        (plan_of("a", "b"), "b", "key"),
        (plan_of("a", "b", name="other"), "a", "key"),
        (plan_of("a", "b", "c"), "a", "key"),
    ],
)
def test_of_another_key_node_or_graph_it_is_new_again(plan: Plan, node: str, what: str) -> None:
    told, first = once.WarnOnce(), plan_of("a", "b")
    told.is_new(first, "a", "key")

    assert told.is_new(plan, node, what)


def test_after_so_many_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "MOST", 2)
    told, plan = once.WarnOnce(), plan_of("a")

    assert [told.is_new(plan, "a", what) for what in "xyz"] == [True, True, False]
