from __future__ import annotations

import json
from functools import partial

from perdure.constants import END, START
from perdure.graph.drawing import Graph, Node
from tests.unit.graph.drawing.graphs import builder, compiled, describe

HERE = ["tests", "unit", "graph", "drawing", "graphs"]


def test_nodes_say_what_they_run_and_edges_where_they_lead() -> None:
    graph = compiled("ab", [(START, "a")], branches=[("a", {"on": "b", END: END})]).get_graph()

    assert graph.to_json() == {
        "nodes": [
            {"id": "__start__", "type": "schema", "data": {"id": [*HERE, "State"], "name": "__start__"}},
            {"id": "a", "type": "runnable", "data": {"id": [*HERE, "work"], "name": "a"}},
            {"id": "b", "type": "runnable", "data": {"id": [*HERE, "work"], "name": "b"}},
            {"id": "__end__", "type": "schema", "data": {"id": [*HERE, "State"], "name": "__end__"}},
        ],
        "edges": [
            {"source": "__start__", "target": "a"},
            {"source": "a", "target": "__end__", "conditional": True},
            {"source": "a", "target": "b", "data": "on", "conditional": True},
            {"source": "b", "target": "__end__"},
        ],
    }


def test_what_a_node_runs_is_named_by_its_class_if_it_has_no_name() -> None:
    form = Graph({"a": Node("a", "a", partial(print))}).to_json()

    assert form["nodes"][0]["data"] == {"id": ["functools", "partial"], "name": "a"}


def test_metadata_is_there_as_far_as_json_can_hold_it() -> None:
    metadata = {"n": 1, "none": None, "list": (1, "a", 2.5, True), 3: {"deep": {4}}}
    description = builder("a", [(START, "a")])
    describe(description, "a", metadata=metadata)

    form = description.compile().get_graph().to_json()["nodes"][1]

    assert form["metadata"] == {
        "n": 1,
        "none": None,
        "list": [1, "a", 2.5, True],
        "3": {"deep": "{4}"},
    }
    assert json.loads(json.dumps(form)) == form
