"""The cases: a graph, its input, the measurements and the bar of each.

A figure is per unit. `Case.units` is the number of units (supersteps, tasks or keys) in one run of the case.
Only peak_kb is for the whole run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import graphs
from order import new_order, order_graph
from ticket import new_ticket, ticket_graph

Saver = Literal["none", "memory", "postgres"]
Pass = Literal["time", "calls", "peak", "traffic"]
"""The measurement of one worker process. Only the figures of `time` depend on the load of the machine."""

METRICS: Mapping[Pass, tuple[str, ...]] = {
    "time": ("time_us",),
    "calls": ("calls",),
    "peak": ("peak_kb",),
    "traffic": ("round_trips", "bytes_sent", "wal_bytes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One graph with one input. Its figures are divided by `units`."""

    name: str
    build: Callable[[graphs.Names], Any]
    input: Mapping[str, Any]
    holds: Callable[[Mapping[str, Any]], bool]
    """The test of a final state: True if it is correct."""
    units: int
    unit: Literal["step", "task", "key"]
    warm_up: Mapping[str, Any] | None = None
    """A smaller input for the warm-up run, if a full run takes seconds."""
    events: int | None = None
    """The number of events that `astream(stream_mode="values")` must deliver; None to use `ainvoke`."""
    saver: Saver = "none"
    durability: Literal["sync", "async", "exit"] | None = None
    seed: Mapping[str, Any] | None = None
    """The input of an earlier run on the same thread, made before the clock starts."""
    threads: int = 1
    passes: tuple[Pass, ...] = ("time", "calls")
    slow: bool = False
    """True if a run takes seconds: it is measured fewer times, and --quick leaves it out."""
    bar: float | None = None
    """The minimum ratio peer / ours of time_us."""
    most_round_trips: float | None = None
    """The maximum number of round trips per unit on our side."""


def chain(length: int, **more: Any) -> Case:
    return Case(
        build=lambda names: graphs.chain(names, length),
        input={"x": 0},
        holds=lambda state: state["x"] == length,
        units=length,
        unit="step",
        **more,
    )


def loop(steps: int, **more: Any) -> Case:
    return Case(
        name=f"loop_{steps}",
        build=lambda names: graphs.loop(names, steps),
        input={"x": 0},
        holds=lambda state: state["x"] == steps,
        unit="step",
        **more,
    )


def agent(loops: int, **more: Any) -> Case:
    return Case(
        build=lambda names: graphs.agent(names, loops),
        input={"messages": [graphs.message("user", 0, 60)]},
        holds=lambda state: len(state["messages"]) == 2 * loops + 2,
        units=2 * loops + 1,
        unit="step",
        **more,
    )


def fan_out(width: int, **more: Any) -> Case:
    return Case(
        build=graphs.fan_out,
        input={"width": width},
        holds=lambda state: state["results"] == [index**2 for index in range(width)],
        units=width,
        unit="task",
        **more,
    )


def many_keys(keys: int, steps: int, **more: Any) -> Case:
    return Case(
        name=f"keys_{keys}",
        build=lambda names: graphs.many_keys(names, keys, steps),
        input={f"key_{index}": 0 for index in range(keys)},
        holds=lambda state: len(state) == keys and sum(state.values()) == steps,
        units=steps,
        unit="step",
        **more,
    )


def input_of(keys: int) -> Case:
    """Make a case of one superstep over an input of many keys: the cost of a key in a run."""
    return Case(
        name=f"input_{keys}",
        build=lambda names: graphs.many_keys(names, keys, 1),
        input={f"key_{index}": 0 for index in range(keys)},
        holds=lambda state: len(state) == keys and sum(state.values()) == 1,
        units=keys,
        unit="key",
        passes=("calls",),
    )


def wide_state(rounds: int, *, sync: bool, **more: Any) -> Case:
    return Case(
        build=lambda names: ticket_graph(names, rounds, sync=sync),
        input=new_ticket(),
        holds=lambda state: len(state) == 40 and len(state["log"]) == state["rounds"] == rounds,
        units=5 * rounds,
        unit="step",
        **more,
    )


def pydantic_state(rounds: int, bar: float) -> Case:
    return Case(
        name="pydantic_state",
        build=lambda names: order_graph(names, rounds),
        input=new_order(),
        holds=lambda state: len(state["events"]) == state["rounds"] == rounds and state["total"] > 0,
        units=5 * rounds,
        unit="step",
        bar=bar,
    )


def chat(durability: Literal["sync", "async", "exit"], bar: float) -> Case:
    """Make ten supersteps on a thread of 200 messages: 190 of one input, ten appended one by one."""
    return Case(
        name=f"chat_200_{durability}",
        build=graphs.chat,
        seed={"messages": [graphs.message("user", number, 200) for number in range(190)], "left": 10},
        input={"left": 10},
        holds=lambda state: len(state["messages"]) == 210 and state["left"] == 0,
        units=10,
        unit="step",
        saver="postgres",
        durability=durability,
        passes=("time", "calls", "traffic"),
        bar=bar,
        most_round_trips=(10 + 2) / 10,
    )


def many_threads(threads: int, steps: int, durability: Literal["sync", "async"]) -> Case:
    return Case(
        name=f"threads_{threads}_{durability}",
        build=lambda names: graphs.loop(names, steps),
        input={"x": 0},
        holds=lambda state: state["x"] == steps,
        threads=threads,
        units=threads * steps,
        unit="step",
        saver="postgres",
        durability=durability,
        passes=("time", "calls", "traffic"),
        bar=15,
        most_round_trips=(steps + 2) / steps,
    )


CASES = (
    chain(1, name="chain_1"),
    chain(10, name="chain_10", bar=20),
    chain(1_000, name="chain_1000", bar=20),
    loop(1_000, units=1_000, bar=20, passes=("time", "calls", "peak")),
    loop(10_000, units=10_000, warm_up={"x": 9_900}, passes=("peak",), slow=True),
    agent(200, name="agent_200", bar=15),
    agent(200, name="agent_200_saver", saver="memory"),
    fan_out(1_000, name="send_1000", bar=6),
    fan_out(10_000, name="send_10000", bar=10, warm_up={"width": 100}, passes=("time",), slow=True),
    many_keys(1_000, 100, bar=60),
    input_of(1_000),
    wide_state(20, name="wide_state", sync=False, bar=10),
    wide_state(20, name="wide_state_sync", sync=True, bar=3.5),
    pydantic_state(20, bar=6),
    chain(1_000, name="chain_1000_stream", events=1_001, bar=15),
    chat("sync", bar=5),
    chat("async", bar=12),
    chat("exit", bar=4),
    fan_out(
        100,
        name="fanout_100",
        saver="postgres",
        durability="sync",
        passes=("time", "calls", "traffic"),
        bar=7,
    ),
    many_threads(64, 5, "sync"),
    many_threads(64, 5, "async"),
)
