"""Warnings about the structure of a graph: it compiles, but would not run as it looks.

The warnings rest on what is *certain*: plain edges and joins always fire. For joins, a conditional edge
counts as well if all of its declared ends lead to the same node in the end. Everything that only may happen
(a conditional edge that goes one way, a Command, a Send) is left out, so no warning depends on it.

A node that runs twice
    It is certain to be reached from one common ancestor by several ways, and these differ in length: so
    they fire in different supersteps. There is no warning for exclusive alternatives, which have no
    common certain ancestor, for the edge that closes a loop, or for a deferred node, which waits for
    all ways. If several nodes run twice because one before them does, the warning names that one.

A join that may never fire
    No single node is certain to lead to all of its starts, and one of the starts runs only if a
    conditional edge chooses it. A path that is annotated to return a list is trusted to choose them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perdure.constants import END, START
from perdure.graph.description import Description, StateBranch

Levels = dict[str, int]
"""The number of supersteps between a node and each node that it certainly follows, by the latter."""


def structure_warnings(graph: Description) -> list[str]:
    """Return a text for each fault in the structure of a graph.

    The time grows with the number of nodes and edges, and faster only where many independent ways meet
    again and again.
    """
    ways = _Ways(graph)
    if not ways.meet():
        return []
    return [*_run_twice(ways), *_may_wait(graph, ways)]


class _Way(NamedTuple):
    """An edge into a node, plain or a join.

    Attributes:
        starts: the nodes that it comes from; a plain edge has one.
        levels: the supersteps in which it fires, counted from each node that it certainly follows.
    """

    starts: tuple[str, ...]
    levels: Levels


class _Ways:
    """The ways through a graph that are certain to be taken.

    A node with a single way in is stored as its distance from an anchor, the last node before it that has
    several: there is something to compare only where ways meet.

    Attributes:
        into: by node, the starts of each edge that leads to it.
        twice: by node that runs twice, the common ancestor and the ways from there.
    """

    def __init__(self, graph: Description) -> None:
        self._graph = graph
        self.into: dict[str, list[tuple[str, ...]]] = {}
        edges = sorted(((start,), end) for start, end in graph.edges if end != END)
        for starts, end in (*edges, *sorted(graph.waiting_edges)):
            if end != END:
                self.into.setdefault(end, []).append(starts)
        self.twice: dict[str, tuple[str, list[_Way]]] = {}
        self._anchors: dict[str, tuple[str, int]] = {}
        self._levels: dict[str, Levels] = {}

    def meet(self) -> bool:
        """Follow all ways, if any of them meet. Return True if they do."""
        if all(len(ways) == 1 and len(ways[0]) == 1 for ways in self.into.values()):
            return False
        places = {node: place for place, node in enumerate(self._order())}
        for node, place in places.items():
            ahead = [
                starts for starts in self.into.get(node, ()) if all(places[start] < place for start in starts)
            ]
            self._place(node, ahead)
        return True

    def _place(self, node: str, ahead: list[tuple[str, ...]]) -> None:
        deferred = node != START and self._graph.nodes[node].defer
        if len(ahead) == 1 and len(ahead[0]) == 1 and not deferred:
            anchor, distance = self._anchors[ahead[0][0]]
            self._anchors[node] = (anchor, distance + 1)
            return
        self._anchors[node] = (node, 0)
        self._levels[node] = {} if deferred else self._merged(node, ahead)
        if not self._levels[node]:
            self._levels[node] = {node: 0}

    def _merged(self, node: str, ahead: list[tuple[str, ...]]) -> Levels:
        """Return the supersteps in which the node runs first; note it in `twice` if its ways disagree."""
        ways = [_Way(starts, self._fires(starts)) for starts in ahead]
        merged: Levels = {}
        for way in ways:
            for root, level in way.levels.items():
                if merged.setdefault(root, level) != level:
                    if node not in self.twice:
                        self.twice[node] = root, [way for way in ways if root in way.levels]
                    merged[root] = min(merged[root], level)
        return merged

    def _fires(self, starts: tuple[str, ...]) -> Levels:
        """Return the supersteps in which an edge fires: after the last of its starts.

        They are counted from the nodes that all of the starts certainly follow.
        """
        first, *others = map(self.levels, starts)
        for levels in others:
            first = {root: max(level, levels[root]) for root, level in first.items() if root in levels}
        return {root: level + 1 for root, level in first.items()}

    def levels(self, node: str) -> Levels:
        """Return the number of supersteps until the node runs, by the node that they are counted from."""
        anchor, distance = self._anchors[node]
        levels = self._levels[anchor]
        return {root: level + distance for root, level in levels.items()} if distance else levels

    def certain_steps(self) -> dict[str, set[str]]:
        """Return, by node, nodes that certainly follow it, among them those directly after it."""
        steps: dict[str, set[str]] = {}
        for end, edges in self.into.items():
            for starts in edges:
                if len(starts) == 1:
                    steps.setdefault(starts[0], set()).add(end)
        for node, levels in self._levels.items():
            for root in levels.keys() - {node}:
                steps.setdefault(root, set()).add(node)
        return steps

    def _order(self) -> list[str]:
        """Return all nodes, each after those that lead to it; edges that close a loop do not count."""
        after: dict[str, list[str]] = {}
        for end, ways in self.into.items():
            for starts in ways:
                for start in starts:
                    after.setdefault(start, []).append(end)
        left: list[str] = []
        entered: set[str] = set()
        entries = (START, *sorted(self._graph.nodes.keys() - self.into.keys()), *sorted(self.into))
        for entry in entries:
            if entry in entered:
                continue
            entered.add(entry)
            stack = [(entry, iter(after.get(entry, ())))]
            while stack:
                node, following = stack[-1]
                for end in following:
                    if end not in entered:
                        entered.add(end)
                        stack.append((end, iter(after.get(end, ()))))
                        break
                else:
                    left.append(node)
                    stack.pop()
        return left[::-1]


# A node that runs twice


def _run_twice(ways: _Ways) -> Iterator[str]:
    for node in sorted(ways.twice):
        root, edges = ways.twice[node]
        fires = sorted((way.levels[root], way.starts) for way in edges)
        times = len({level for level, _ in fires})
        reached = ", ".join(f"{_named(starts)} in superstep {level}" for level, starts in fires)
        yield (
            f"Node {node!r} runs {times} times where it looks like once: counted from {_called(root)}, it is "
            f"reached from {reached}. {_remedy(node, [starts for _, starts in fires])}"
        )


def _remedy(node: str, edges: list[tuple[str, ...]]) -> str:
    starts = list(dict.fromkeys(start for starts in edges for start in starts if start != START))
    once = "To run it once, after the last of them, "
    if len(starts) == 1:
        return f"{once}keep only the edge from {starts[0]!r}."
    return f"{once}write add_edge({starts}, {node!r}) in place of these edges, or add it with defer=True."


def _named(starts: tuple[str, ...]) -> str:
    return _called(starts[0]) if len(starts) == 1 else f"the join of {list(starts)}"


def _called(node: str) -> str:
    return "START" if node == START else repr(node)


# A join that may never fire


class _Choice(NamedTuple):
    source: str
    branch: StateBranch


def _may_wait(graph: Description, ways: _Ways) -> Iterator[str]:
    suspects = [
        (starts, end)
        for starts, end in sorted(graph.waiting_edges)
        if end != END and not set.intersection(*(set(ways.levels(start)) for start in starts))
    ]
    if not suspects:
        return
    choices = _Choices(graph, ways)
    for starts, end in suspects:
        before = [choices.certainly_before(start) for start in starts]
        if set.intersection(*before):
            continue
        for start, ancestors in zip(starts, before, strict=True):
            choice = choices.deciding(ancestors)
            if choice is not None:
                yield (
                    f"The join of {list(starts)} may never let {end!r} run: {start!r} runs only if "
                    f"conditional edge {choice.branch.name!r} of {_called(choice.source)} goes that way, and "
                    f"when it does not, the join waits for ever. Give {end!r} an edge of its own from each "
                    "of them and defer=True, which waits for those that run; or, if the path always chooses "
                    "them all, annotate that it returns a list."
                )
                break


class _Choices:
    """The conditional edges of a graph, and the nodes that are certain to run in spite of them."""

    def __init__(self, graph: Description, ways: _Ways) -> None:
        self._into: dict[str, list[_Choice]] = {}
        self._anywhere: list[_Choice] = []
        self._entered = ways.into.keys() | {
            name for node in graph.nodes.values() for name in node.destinations or ()
        }
        self._next = ways.certain_steps()
        self._ends: dict[str, list[set[str]]] = {}
        for source in sorted(graph.branches):
            for branch in graph.branches[source].values():
                self._add(_Choice(source, branch))
        self._before: dict[str, set[str]] = {}
        for source, ends in self._next.items():
            for end in ends:
                self._before.setdefault(end, set()).add(source)

    def _add(self, choice: _Choice) -> None:
        source, branch = choice
        if branch.ends is None:
            self._anywhere.append(choice)
            return
        ends = set(branch.ends.values())
        if not branch.several:
            self._ends.setdefault(source, []).append(ends)
        for end in sorted(ends - {END}):
            self._into.setdefault(end, []).append(choice)

    def certainly_before(self, node: str) -> set[str]:
        """Return the nodes that `node` certainly follows, sooner or later.

        These are all nodes from which it can be reached, without those from which a run may end elsewhere,
        removed one by one until none is left. So a loop that is left only towards `node` leads there.
        """
        certain = self._reaching(node)
        todo = sorted(certain)
        while todo:
            current = todo.pop()
            if current in certain and current != node and not self._stays(current, certain):
                certain.remove(current)
                todo.extend(self._leading_to(current))
        return certain

    def _stays(self, node: str, certain: set[str]) -> bool:
        return not certain.isdisjoint(self._next.get(node, ())) or any(
            ends <= certain for ends in self._ends.get(node, ())
        )

    def _reaching(self, node: str) -> set[str]:
        found, todo = {node}, [node]
        while todo:
            before = self._leading_to(todo.pop()) - found
            found |= before
            todo.extend(before)
        return found

    def _leading_to(self, node: str) -> set[str]:
        return self._before.get(node, set()) | {choice.source for choice in self._into.get(node, ())}

    def deciding(self, ancestors: set[str]) -> _Choice | None:
        """Return the conditional edge that decides whether any of `ancestors` runs, if one alone does."""
        if START in ancestors:
            return None
        found = [choice for node in sorted(ancestors) for choice in self._choosing(node)]
        if any(choice.branch.several for choice in found):
            return None
        return next((choice for choice in found if choice.source not in ancestors), None)

    def _choosing(self, node: str) -> list[_Choice]:
        """Return the conditional edges that may choose a node.

        If none declares the node, these are all whose destinations are left open.
        """
        if node in self._into or node in self._entered:
            return self._into.get(node, [])
        return self._anywhere
