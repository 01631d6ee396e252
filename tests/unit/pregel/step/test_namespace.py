"""Namespaces lead down to a child graph and back up to the graph around it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace


class Call(NamedTuple):
    """One step down: a task, and which of its child graphs."""

    node: str
    task_id: str
    ordinal: int


names = st.text(min_size=1).filter(lambda name: not set(name) & set("|:"))
task_ids = st.uuids().map(str)
calls = st.builds(Call, names, task_ids, st.integers(0, 12))
paths = st.lists(calls, max_size=4)


def below(path: list[Call]) -> Namespace:
    namespace = ROOT_NAMESPACE
    for step in path:
        namespace = namespace.child(step.node, step.task_id).call(step.ordinal)
    return namespace


@given(paths, calls)
def test_the_parent_of_a_child_is_where_it_came_from(path: list[Call], last: Call) -> None:
    assert below([*path, last]).parent == below(path)


@given(paths)
def test_a_namespace_has_the_names_of_the_nodes_it_leads_through(path: list[Call]) -> None:
    assert below(path).names == tuple(step.node for step in path)


@given(paths)
def test_a_path_is_the_text_in_parts(path: list[Call]) -> None:
    namespace = below(path)

    assert Namespace("|".join(namespace.path)) == namespace
    assert len(namespace.path) == len(path) + sum(step.ordinal > 0 for step in path)


@given(paths)
def test_from_the_text_that_is_stored_the_same_namespace_is_made(path: list[Call]) -> None:
    namespace = below(path)
    again = Namespace(namespace.text)

    assert (again, again.parent, again.names) == (namespace, namespace.parent, namespace.names)


@given(paths, paths)
def test_different_ways_down_have_different_namespaces(path: list[Call], other: list[Call]) -> None:
    assert (below(path) == below(other)) == (path == other)


def test_the_root_has_no_parent_no_path_and_no_names() -> None:
    assert (ROOT_NAMESPACE.text, ROOT_NAMESPACE.parent) == ("", None)
    assert (ROOT_NAMESPACE.path, ROOT_NAMESPACE.names) == ((), ())


@pytest.mark.parametrize(
    ("ordinal", "text"), [(0, "a:id"), (1, "a:id|1"), (10, "a:id|10")], ids=["first", "second", "11th"]
)
def test_only_the_first_child_graph_of_a_task_has_no_ordinal(ordinal: int, text: str) -> None:
    assert ROOT_NAMESPACE.child("a", "id").call(ordinal) == Namespace(text)


def test_a_node_whose_name_is_a_number_is_no_ordinal() -> None:
    namespace = ROOT_NAMESPACE.child("1", "id").call(2).child("2", "id")

    assert namespace.names == ("1", "2")
    assert namespace.parent == Namespace("1:id|2")
