from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from examples import tool_agent
from examples.tool_agent import Message, ScriptedModel, ToolCall, agent, calculator, search
from perdure import InMemorySaver, Pregel


def compiled() -> Pregel:
    return agent(ScriptedModel()).compile(checkpointer=InMemorySaver(), name="tool-agent")


def on_thread(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


async def ask(graph: Pregel, thread_id: str, question: str) -> list[Message]:
    """Ask a question and return the messages that follow it."""
    said: Message = {"role": "user", "content": question}
    result = await graph.ainvoke({"messages": [said]}, on_thread(thread_id))
    messages: list[Message] = result["messages"]
    return messages[messages.index(said) + 1 :]


def calls(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(call["name"], call["argument"]) for each in messages for call in each.get("tool_calls", [])]


async def test_the_conversation_is_printed_as_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    await tool_agent.main()

    said = [line.split(": ", 1) for line in capsys.readouterr().out.splitlines()[:-1]]
    assert [who.strip() for who, _ in said] == [
        *("user", "assistant", "assistant", "tool", "tool", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant", "tool", "assistant"),
    ]
    assert said[7][1] == "30.1679 Earths in a row reach the Moon."
    assert said[13][1] == "11740.5 Earths in a row reach the Sun."


async def test_the_second_turn_remembers_what_the_first_one_found() -> None:
    graph = compiled()
    moon = "How far away is the Moon?"
    assert calls(await ask(graph, "one", moon)) == [
        ("search", "Moon distance from the Earth"),
        ("search", "Earth planet diameter"),
        ("calculator", "384400 / 12742"),
    ]
    assert calls(await ask(graph, "one", "And the Sun?")) == [
        ("search", "Sun distance from the Earth"),
        ("calculator", "149597870 / 12742"),
    ]


async def test_another_thread_remembers_nothing() -> None:
    graph = compiled()
    await ask(graph, "one", "How far away is the Moon?")

    assert ("search", "Earth planet diameter") in calls(await ask(graph, "two", "And the Sun?"))


async def test_updates_and_values_are_streamed_while_the_turn_goes_on() -> None:
    said: Message = {"role": "user", "content": "How far away is the Moon?"}
    stream = compiled().astream({"messages": [said]}, on_thread("one"), stream_mode=["updates", "values"])
    seen = [(mode, next(iter(payload)) if mode == "updates" else payload) async for mode, payload in stream]

    assert [node for mode, node in seen if mode == "updates"] == [
        *("model", "tool", "tool", "model", "tool", "model")
    ]
    assert [len(state["messages"]) for mode, state in seen if mode == "values"] == [1, 2, 4, 5, 6, 7]


class OneTurnModel:
    """Asks for some tools, then answers with what they said."""

    def __init__(self, *wanted: ToolCall) -> None:
        self._wanted = list(wanted)

    async def respond(self, messages: Sequence[Message]) -> Message:
        if messages[-1]["role"] == "user":
            return {"role": "assistant", "content": "", "tool_calls": self._wanted}
        return {"role": "assistant", "content": " ".join(m["content"] for m in messages[2:])}


async def test_tools_run_side_by_side_and_answer_in_the_order_of_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others_turn = {"first": anyio.Event(), "second": anyio.Event()}

    async def finish_last(argument: str) -> str:
        others_turn["second"].set()
        with anyio.fail_after(5):
            await others_turn["first"].wait()
        return argument

    async def finish_first(argument: str) -> str:
        with anyio.fail_after(5):
            await others_turn["second"].wait()
        others_turn["first"].set()
        return argument

    monkeypatch.setattr(tool_agent, "TOOLS", {"slow": finish_last, "quick": finish_first})
    model = OneTurnModel(
        ToolCall(id="1", name="slow", argument="one"), ToolCall(id="2", name="quick", argument="two")
    )
    result = await agent(model).compile().ainvoke({"messages": [{"role": "user", "content": "go"}]})

    assert result["messages"][-1]["content"] == "one two"
    assert [message.get("tool_call_id") for message in result["messages"][2:4]] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "argument", "told"),
    [
        ("calculator", "__import__('os').getcwd()", "numbers and + - * / only"),
        ("calculator", "9 ** 9 ** 9", "numbers and + - * / only"),
        ("calculator", "1 +", "SyntaxError"),
        ("calculator", "1 / 0", "ZeroDivisionError"),
        ("telescope", "the Moon", "KeyError('telescope')"),
    ],
)
async def test_a_tool_that_fails_tells_the_model(name: str, argument: str, told: str) -> None:
    model = OneTurnModel(ToolCall(id="1", name=name, argument=argument))
    result = await agent(model).compile().ainvoke({"messages": [{"role": "user", "content": "go"}]})

    assert told in result["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", "7"), ("(1 + 2) * 3", "9"), ("10 / 4 - 1", "1.5"), ("384400 / 12742", "30.1679")],
)
async def test_the_calculator_knows_arithmetic(expression: str, value: str) -> None:
    assert await calculator(expression) == value


async def test_search_finds_what_shares_most_words() -> None:
    assert "6779" in await search("mean diameter of mars")
