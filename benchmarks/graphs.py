"""The measured graphs, written once for all sides.

Nothing here imports either package. A side passes its names (`Names`), so all sides build the same graph.
"""

import operator
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, cast

type_of_state = cast(Any, TypedDict)
"""`TypedDict` without the type checker's demand for literal keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of one side for the parts of a graph."""

    StateGraph: Any
    START: str
    END: str
    Send: Any


class Counter(TypedDict):
    x: int


class Conversation(TypedDict):
    messages: Annotated[list[dict[str, str]], operator.add]


class Chat(TypedDict):
    messages: Annotated[list[dict[str, str]], operator.add]
    left: int


class FanOut(TypedDict):
    width: int
    results: Annotated[list[int], operator.add]


class Item(TypedDict):
    index: int


async def increment(state: Counter) -> dict[str, int]:
    return {"x": state["x"] + 1}


def circle(names: Names, state_type: Any, nodes: Mapping[str, Any], again: Any) -> Any:
    """Build a row of nodes whose last one has a path to the first or to END."""
    builder = names.StateGraph(state_type)
    previous = names.START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    builder.add_conditional_edges(previous, again, [next(iter(nodes)), names.END])
    return builder


def chain(names: Names, length: int) -> Any:
    """Build `length` nodes in a row, each of which adds one."""
    builder = names.StateGraph(Counter)
    previous = names.START
    for position in range(length):
        builder.add_node(f"node_{position}", increment)
        builder.add_edge(previous, f"node_{position}")
        previous = f"node_{position}"
    builder.add_edge(previous, names.END)
    return builder


def loop(names: Names, steps: int) -> Any:
    """Build one node that adds one and runs until `x` is `steps`."""

    def again(state: Counter) -> str:
        return "node" if state["x"] < steps else names.END

    return circle(names, Counter, {"node": increment}, again)


def agent(names: Names, loops: int) -> Any:
    """Build an agent that uses tools `loops` times and then answers: 2 * loops + 1 supersteps."""

    async def answer(state: Conversation) -> dict[str, Any]:
        return {"messages": [message("assistant", len(state["messages"]), 60)]}

    async def tools(state: Conversation) -> dict[str, Any]:
        return {"messages": [message("tool", len(state["messages"]), 60)]}

    def wants_tools(state: Conversation) -> str:
        return "tools" if len(state["messages"]) <= 2 * loops else names.END

    builder = names.StateGraph(Conversation)
    builder.add_node("agent", answer)
    builder.add_node("tools", tools)
    builder.add_edge(names.START, "agent")
    builder.add_conditional_edges("agent", wants_tools, ["tools", names.END])
    builder.add_edge("tools", "agent")
    return builder


def fan_out(names: Names) -> Any:
    """Build a planner that sends each item to one node; a reducer collects the results."""

    async def plan(state: FanOut) -> None:
        return None

    def scatter(state: FanOut) -> Sequence[Any]:
        return [names.Send("square", {"index": index}) for index in range(state["width"])]

    async def square(item: Item) -> dict[str, list[int]]:
        return {"results": [item["index"] ** 2]}

    builder = names.StateGraph(FanOut)
    builder.add_node("plan", plan)
    builder.add_node("square", square)
    builder.add_edge(names.START, "plan")
    builder.add_conditional_edges("plan", scatter, ["square"])
    builder.add_edge("square", names.END)
    return builder


def many_keys(names: Names, keys: int, steps: int) -> Any:
    """Build a loop over a state of `keys` integers, of which each step changes one."""

    async def change(state: Mapping[str, int]) -> dict[str, int]:
        return {"key_0": state["key_0"] + 1}

    def again(state: Mapping[str, int]) -> str:
        return "node" if state["key_0"] < steps else names.END

    state_type = type_of_state("State", {f"key_{index}": int for index in range(keys)})
    return circle(names, state_type, {"node": change}, again)


def chat(names: Names) -> Any:
    """Build a node that appends a message of about 200 bytes in each of `left` supersteps."""

    async def reply(state: Chat) -> dict[str, Any]:
        return {"messages": [message("assistant", len(state["messages"]), 200)], "left": state["left"] - 1}

    def go_on(state: Chat) -> str:
        return "reply" if state["left"] > 0 else names.END

    return circle(names, Chat, {"reply": reply}, go_on)


def message(role: Literal["user", "assistant", "tool"], number: int, size: int) -> dict[str, str]:
    """Make a message of about `size` bytes, different from all others of its thread."""
    return {"role": role, "content": f"{number} {TEXTS[number % len(TEXTS)][:size]}"}


def prose(texts: int, words: int) -> list[str]:
    """Make texts of invented words with the frequencies of English (Zipf's law).

    The server compresses stored text, so monotonous text would favour the side that stores more of it.
    PostgreSQL compresses this text to 0.39 of its size, and the text of the GPL to 0.41.
    """
    chance = random.Random(0)
    syllables = [consonant + vowel for consonant in "bcdfghklmnprstvw" for vowel in "aeiou"]
    vocabulary = ["".join(chance.choices(syllables, k=chance.choice((1, 2, 2, 3, 4)))) for _ in range(3_000)]
    frequencies = [1 / rank for rank in range(1, len(vocabulary) + 1)]
    return [" ".join(chance.choices(vocabulary, frequencies, k=words)) for _ in range(texts)]


TEXTS = prose(texts=256, words=60)
