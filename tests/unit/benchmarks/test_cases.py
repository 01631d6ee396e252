"""The cases compute correct results: a graph that stops early would be fast."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cases import CASES, Case
from order import NODES, Order, new_order
from rig import opened_rig
from ticket import Ticket, new_ticket

CASE_BY_NAME = {case.name: case for case in CASES}
RUN_HERE = (
    *("chain_1", "chain_10", "agent_200_saver", "keys_1000", "input_1000"),
    *("wide_state", "wide_state_sync", "chain_1000_stream"),
)


@pytest.fixture(autouse=True)
def loop_guard() -> None:
    """Replace the guard of the loop: a rig imports its side inside the loop."""


async def digest_of(case: Case) -> str:
    async with opened_rig("ours", case, None) as rig:
        run = await rig.prepare(case.input)
        rig.check(await run())
        return rig.digest


@pytest.mark.parametrize("name", RUN_HERE)
async def test_a_case_runs_to_the_state_that_it_asks_for(name: str) -> None:
    assert await digest_of(CASE_BY_NAME[name])


async def test_sync_and_async_nodes_of_the_wide_state_come_to_the_same() -> None:
    assert await digest_of(CASE_BY_NAME["wide_state"]) == await digest_of(CASE_BY_NAME["wide_state_sync"])


def test_the_ticket_comes_with_all_of_its_forty_keys() -> None:
    assert list(new_ticket()) == list(Ticket.__annotations__)
    assert len(new_ticket()) == 40


def test_what_the_nodes_of_the_order_write_is_valid() -> None:
    case = CASE_BY_NAME["pydantic_state"]
    state: dict[str, Any] = new_order()
    for step in range(case.units):
        update = asyncio.run(NODES[step % len(NODES)](Order(**state)))
        state |= update | {"events": state["events"] + update.get("events", [])}

    assert case.holds(state)
    assert set(state) == set(Order.model_fields)
