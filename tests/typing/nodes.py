"""Only type-checked: what can be added to a graph, and what cannot. See `states` for the ignores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, assert_type

from pydantic import BaseModel

from perdure import (
    END,
    START,
    Command,
    NodeError,
    RetryPolicy,
    RunnableConfig,
    Runtime,
    Send,
    StateGraph,
    StreamWriter,
)


class Keys(TypedDict):
    x: int


class More(Keys):
    y: int


class Part(TypedDict):
    part: str


@dataclass
class Fields:
    x: int = 0


@dataclass
class Other:
    y: int = 0


class Base(BaseModel):
    x: int = 0


class Model(Base):
    y: int = 0


class Plain:
    x: int


Update = dict[str, int]
T = TypeVar("T")

# First parameters


def takes_keys(state: Keys) -> Update:
    return {"x": state["x"] + 1}


async def takes_keys_async(state: Keys) -> Update:
    return {"x": state["x"] + 1}


def takes_fields(state: Fields) -> Fields:
    return state


def takes_model(state: Model) -> Model:
    return state


def takes_base(state: Base) -> None: ...
def takes_part(state: Part) -> None: ...
def takes_other(state: Other) -> None: ...
def takes_plain(state: Plain) -> None: ...
def takes_more(state: More) -> None: ...
def takes_optional(state: Keys | None) -> None: ...
def takes_either(state: Keys | Fields) -> None: ...
def takes_object(state: object) -> None: ...
def takes_any(state: Any) -> None: ...
def takes_anything(state: T) -> T:
    return state


def takes_dict(state: dict[str, Any]) -> None: ...
def takes_mapping(state: Mapping[str, Any]) -> None: ...
def takes_mutable(state: MutableMapping[str, Any]) -> None: ...
def takes_everything(*args: Any, **kwargs: Any) -> None: ...


def takes_int(state: int) -> None: ...
async def takes_text(state: str, runtime: Runtime) -> None: ...
def takes_list(state: list[Keys]) -> None: ...
def takes_nothing() -> None: ...
def takes_it_by_name(*, state: Keys) -> None: ...


def states_of_three_kinds_pass() -> None:
    StateGraph(Keys).add_node(takes_keys).add_node("again", takes_keys).add_node(takes_keys_async)
    StateGraph(Fields).add_node(takes_fields).add_node("again", takes_fields)
    StateGraph(Model).add_node(takes_model).add_node("again", takes_model)
    StateGraph(Plain).add_node(takes_plain)
    StateGraph(int).add_node(takes_int)


def bases_and_mappings_pass() -> None:
    keys, fields, model = StateGraph(Keys), StateGraph(Fields), StateGraph(Model)
    keys.add_node(takes_object).add_node(takes_any).add_node(takes_anything).add_node(takes_everything)
    keys.add_node(takes_optional).add_node(takes_either)
    keys.add_node(takes_dict).add_node(takes_mapping).add_node(takes_mutable)
    fields.add_node(takes_object).add_node(takes_either).add_node(takes_anything).add_node(takes_dict)
    model.add_node(takes_base).add_node(takes_anything).add_node(takes_mapping)


def schemas_of_their_own_pass() -> None:
    keys, fields, model = StateGraph(Keys), StateGraph(Fields), StateGraph(Model)
    keys.add_node(takes_part).add_node(takes_more).add_node(takes_other).add_node(takes_model)
    fields.add_node(takes_part).add_node(takes_other).add_node(takes_model)
    model.add_node(takes_part).add_node(takes_fields)
    keys.add_node(takes_dict, input_schema=Other).add_node(takes_any, input_schema=Part)


def other_first_parameters_are_errors() -> None:
    keys, fields, model = StateGraph(Keys), StateGraph(Fields), StateGraph(Model)
    keys.add_node(takes_int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node("n", takes_int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node(takes_text)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node(takes_list)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node(takes_plain)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node(takes_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    keys.add_node(takes_it_by_name)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    keys.add_node("n", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fields.add_node(takes_int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    fields.add_node("n", takes_text)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    fields.add_node(takes_plain)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    model.add_node(takes_int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    model.add_node("n", takes_text)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    model.add_node(takes_list)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    StateGraph(int).add_node(takes_text)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


# Injected parameters


async def in_one_order(
    state: Keys, config: RunnableConfig, runtime: Runtime[str], writer: StreamWriter, store: Any
) -> None: ...


def in_another(
    state: Keys, store: Any, previous: object, writer: StreamWriter, runtime: Runtime, config: RunnableConfig
) -> None: ...


async def by_keyword(
    state: Fields, *, writer: StreamWriter, runtime: Runtime, config: RunnableConfig | None = None
) -> None: ...


def handles(state: Keys, error: NodeError) -> Command[Literal["a"]]:
    return Command(goto="a", update={"x": len(error.node)})


def injected_parameters_pass_in_any_order() -> None:
    StateGraph(Keys, str).add_node(in_one_order, error_handler=handles).add_node("n", in_another)
    StateGraph(Fields).add_node(by_keyword).add_node("n", by_keyword)
    StateGraph(Keys).set_node_defaults(error_handler=handles, retry_policy=RetryPolicy())


# What else can be run


class CallableOnKeys:
    def __call__(self, state: Keys, runtime: Runtime) -> Update:
        return {}


class CallableOnText:
    async def __call__(self, state: str) -> Update:
        return {}


class Owner:
    def method(self, state: Keys, config: RunnableConfig) -> Update:
        return {}

    @staticmethod
    def static(state: Keys) -> Update:
        return {}

    @classmethod
    def of_class(cls, state: Keys) -> Update:
        return {}

    def on_text(self, text: str) -> Update:
        return {}


class Chain:
    """As models and chains of other packages are run."""

    async def ainvoke(self, given: Keys, config: Any = None, **more: Any) -> Update:
        return {}


class SyncChain:
    def invoke(self, given: list[str]) -> str:
        return ""


def decorated(function: Callable[..., T]) -> Callable[..., T]:
    return function


@decorated
def wrapped(text: str) -> Update:
    return {}


def with_more(state: Keys, times: int, *, runtime: Runtime) -> Update:
    return {"x": times}


def lambdas_and_partials_pass() -> None:
    keys, fields = StateGraph(Keys), StateGraph(Fields)
    keys.add_node("n", lambda state: {"x": state["x"]})
    keys.add_node("m", lambda state, runtime: {"x": runtime.context})
    fields.add_node("n", lambda state: {"x": state.x})
    keys.add_node("p", partial(with_more, times=2)).add_node("q", partial(takes_keys))
    fields.add_node("p", partial(takes_fields))


def objects_pass() -> None:
    keys = StateGraph(Keys)
    keys.add_node(CallableOnKeys()).add_node("n", CallableOnKeys()).add_node(Owner().method).add_node(
        Owner.static
    )
    keys.add_node(Owner.of_class).add_node(wrapped).add_node(Chain()).add_node("s", SyncChain())
    keys.add_node(CallableOnText())  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    keys.add_node(Owner().on_text)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def compiled_graphs_pass() -> None:
    keys = StateGraph(Keys)
    keys.add_node("k", StateGraph(Keys).compile()).add_node("f", StateGraph(Fields, str).compile())
    keys.add_node("m", StateGraph(Model).compile()).add_node("i", StateGraph(int).compile())
    keys.add_node("several", {"one": takes_keys, "two": Chain(), "three": StateGraph(Keys).compile()})


def sequences_are_of_what_can_be_run() -> None:
    keys = StateGraph(Keys)
    keys.add_sequence([takes_keys, takes_keys_async, ("again", takes_keys), ("chain", Chain())])
    keys.add_sequence([5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def adding_returns_the_builder() -> None:
    builder = StateGraph(Keys, str)
    assert_type(builder.add_node(takes_keys).add_edge(START, "takes_keys"), StateGraph[Keys, str, Keys, Keys])


# Where to go


def declares(state: Keys) -> Command[Literal["a", "b", "__end__"]]:
    match state["x"]:
        case 1:
            return Command(goto="a")
        case 2:
            return Command(goto=["b", Send("a", {"x": 2})])
        case 3:
            return Command(goto=END)
        case 4:
            return Command(goto="c")  # type: ignore[arg-type]  # pyright: ignore[reportReturnType]
        case 5:
            return Command(goto=["a", "c"])  # type: ignore[list-item]  # pyright: ignore[reportReturnType]
        case _:
            return Command(update={"x": 1})


def leaves_it_open(state: Keys) -> Command:
    assert_type(Command(goto="a"), Command[str])
    declared: Command[Literal["a", "b", "__end__"]] = declares(state)
    return declared


async def to_the_graph_around(state: Keys) -> Command[str]:
    return Command(graph=Command.PARENT, goto=[Send("outer", state)])


def commands_and_paths_pass() -> None:
    builder = StateGraph(Keys).add_node(declares).add_node(leaves_it_open).add_node(to_the_graph_around)
    builder.add_conditional_edges("declares", lambda state: END, ["a", END])
    builder.add_conditional_edges("declares", Chain(), {"yes": "a", True: "b"})
    builder.set_conditional_entry_point(takes_keys_async)
    builder.add_conditional_edges("declares", "a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Command[int]()  # type: ignore[type-var]  # pyright: ignore[reportInvalidTypeArguments]
