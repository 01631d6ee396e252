"""An agent with tools: a model requests tools, which run side by side, and answers from their results.

    python examples/tool_agent.py

The model here follows a script, so the example needs no network and no key. The graph only needs the protocol
`ChatModel`, so a real model can take its place.

    START ──▶ model ──▶ END
              ▲   │ one Send for each tool call
              └─ tool
"""

from __future__ import annotations

import ast
import asyncio
import operator
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NotRequired, Protocol, TypedDict

from perdure import END, START, InMemorySaver, Send, StateGraph


class ToolCall(TypedDict):
    id: str
    name: str
    argument: str


class Message(TypedDict):
    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]


class Conversation(TypedDict):
    """The state. A node returns new messages, and the reducer appends them to the earlier ones."""

    messages: Annotated[list[Message], operator.add]


class ChatModel(Protocol):
    async def respond(self, messages: Sequence[Message]) -> Message:
        """Return the assistant's next message: an answer, or the tools to run first."""


def agent(model: ChatModel) -> StateGraph:
    """Describe an agent's loop around a model."""

    async def ask_model(state: Conversation) -> Conversation:
        return {"messages": [await model.respond(state["messages"])]}

    def use_tools(state: Conversation) -> list[Send] | str:
        """Send each tool call to a task in the next superstep. Without a call, the turn ends."""
        calls = state["messages"][-1].get("tool_calls", [])
        return [Send("tool", call) for call in calls] or END

    async def run_tool(call: ToolCall) -> Conversation:
        """Run one tool call. A node that is started by a Send receives the Send's argument, not the state."""
        try:
            result = await TOOLS[call["name"]](call["argument"])
        except Exception as error:  # the model reads the error and may try something else
            result = f"error: {error!r}"
        return {"messages": [{"role": "tool", "content": result, "tool_call_id": call["id"]}]}

    builder = StateGraph(Conversation)
    builder.add_node("model", ask_model)
    builder.add_node("tool", run_tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", use_tools)
    builder.add_edge("tool", "model")
    return builder


# Tools: functions from text to text

CORPUS = [
    "The Moon is a satellite of the Earth. Its mean distance from the Earth is 384400 km.",
    "The Earth is a planet. Its mean diameter is 12742 km.",
    "The Sun is a star. Its mean distance from the Earth is 149597870 km.",
    "Mars is a planet. Its mean diameter is 6779 km.",
]
OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


async def search(query: str) -> str:
    """Return the text that shares most words with the query."""
    return max(CORPUS, key=lambda text: len(words(query) & words(text)))


async def calculator(expression: str) -> str:
    """Compute an arithmetic expression from its syntax tree, without executing code."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in OPERATIONS:
                return OPERATIONS[type(operation)](value(left), value(right))
        raise ValueError(f"numbers and + - * / only, not {ast.unparse(node)!r}")

    return f"{value(ast.parse(expression, mode='eval').body):.6g}"


TOOLS = {"search": search, "calculator": calculator}


# A model with a script, and a conversation with it


class ScriptedModel:
    """A model that can compare a distance with the Earth. Like a real model, it has no memory of its own."""

    async def respond(self, messages: Sequence[Message]) -> Message:
        question = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        body = "Sun" if "Sun" in question else "Moon"
        latest = messages[-1]
        if latest["role"] == "tool" and re.fullmatch(r"[\d.]+", latest["content"]):
            return {"role": "assistant", "content": f"{latest['content']} Earths in a row reach the {body}."}
        found = "\n".join(m["content"] for m in messages if m["role"] == "tool")
        distance = re.search(rf"The {body} .* distance from the Earth is (\d+)", found)
        diameter = re.search(r"The Earth .* diameter is (\d+)", found)
        if distance and diameter:
            wanted = [("calculator", f"{distance[1]} / {diameter[1]}")]
        else:
            wanted = [] if distance else [("search", f"{body} distance from the Earth")]
            wanted += [] if diameter else [("search", "Earth planet diameter")]
        calls = [
            ToolCall(id=f"call-{len(messages)}-{n}", name=name, argument=argument)
            for n, (name, argument) in enumerate(wanted)
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}


def show(message: Message) -> None:
    if message["content"]:
        print(f"{message['role']:>9}: {message['content']}")
    for call in message.get("tool_calls", []):
        print(f"{message['role']:>9}: {call['name']}({call['argument']!r})")


async def main() -> None:
    graph = agent(ScriptedModel()).compile(checkpointer=InMemorySaver(), name="tool-agent")
    # The thread is the memory: the second question finds the Earth's diameter there.
    config = {"configurable": {"thread_id": "earths-in-a-row"}}
    for question in ("How far away is the Moon, measured in Earths?", "And the Sun?"):
        said: Message = {"role": "user", "content": question}
        show(said)
        async for update in graph.astream({"messages": [said]}, config, stream_mode="updates"):
            for written in update.values():  # {node: its update}, when a task ends
                for message in written["messages"]:
                    show(message)
    state = await graph.aget_state(config)
    print(f"The thread holds {len(state.values['messages'])} messages.")


if __name__ == "__main__":
    asyncio.run(main())
