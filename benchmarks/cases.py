"""The cases: which graph, fed with what, measured by what, and the bar it is held to.

A figure is per unit, and `Case.units` says how many supersteps or tasks one run of the case has; only peak_kb
is that of the whole run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import graphs
from order import new_order, order_graph
from ticket import new_ticket, ticket_graph

Saver = Literal["none", "memory", "postgres"]
Pass = Literal["time", "calls", "peak", "traffic"]
"""What one worker process measures. `time` is the only one whose figures depend on the machine's mood."""

METRICS: Mapping[Pass, tuple[str, ...]] = {
    "time": ("time_us",),
    "calls": ("calls",),
    "peak": ("peak_kb",),
    "traffic": ("round_trips", "bytes_sent", "wal_bytes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One graph with one input; `units` supersteps or tasks are what its figures are divided by."""

    name: str
    build: Callable[[graphs.Names], Any]
    input: Mapping[str, Any]
    holds: Callable[[Mapping[str, Any]], bool]
    """Whether a final state is the right one."""
    units: int
    unit: Literal["step", "task"]
    warm_up: Mapping[str, Any] | None = None
    """A smaller input for the run that is not measured, where the full one takes seconds."""
    events: int | None = None
    """Consumed through `astream(stream_mode="values")`, which must deliver this many events."""
    saver: Saver = "none"
    durability: Literal["sync", "async", "exit"] | None = None
    seed: Mapping[str, Any] | None = None
    """The input of an earlier run on the same thread, made before the clock starts."""
    threads: int = 1
    passes: tuple[Pass, ...] = ("time", "calls")
    slow: bool = False
    """Takes seconds: measured fewer times, and left out by --quick."""
    bar: float | None = None
    """The least ratio of time_us that is asked for."""
    most_round_trips: float | None = None
    """The most round trips per unit that our side may make."""


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
    """Ten supersteps on a thread that holds 200 messages: 190 of one input, ten appended one by one."""
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
    chain(10, name="chain_10", bar=20),
    chain(1_000, name="chain_1000", bar=20),
    loop(1_000, units=1_000, bar=20, passes=("time", "calls", "peak")),
    loop(10_000, units=10_000, warm_up={"x": 9_900}, passes=("peak",), slow=True),
    agent(200, name="agent_200", bar=15),
    agent(200, name="agent_200_saver", saver="memory"),
    fan_out(1_000, name="send_1000", bar=8),
    fan_out(10_000, name="send_10000", bar=8, warm_up={"width": 100}, passes=("time",), slow=True),
    many_keys(1_000, 100, bar=60),
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
        bar=10,
    ),
    many_threads(64, 5, "sync"),
    many_threads(64, 5, "async"),
)
