"""The modules that users import from have the names by which things are known."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import perdure
from perdure import errors

FACES = {
    "perdure.types": {
        "CachePolicy",
        "Command",
        "Durability",
        "Overwrite",
        "PregelTask",
        "RetryPolicy",
        "Send",
        "StateSnapshot",
        "StreamMode",
        "StreamWriter",
        "TimeoutPolicy",
        "default_retry_on",
    },
    "perdure.graph": {"END", "START", "StateGraph"},
    "perdure.graph.state": {"CompiledStateGraph", "StateGraph"},
    "perdure.pregel": {"NodeBuilder", "Pregel"},
    "perdure.channels": {
        "AnyValue",
        "BaseChannel",
        "BinaryOperatorAggregate",
        "DeltaChannel",
        "EphemeralValue",
        "LastValue",
        "NamedBarrierValue",
        "Topic",
        "UntrackedValue",
    },
    "perdure.managed": {"IsLastStep", "RemainingSteps"},
    "perdure.runtime": {"ExecutionInfo", "Runtime", "ServerInfo", "get_runtime"},
    "perdure.config": {"RunnableConfig", "get_config", "get_store", "get_stream_writer"},
    "perdure.constants": {"END", "START"},
    "perdure.cache.base": {"BaseCache"},
    "perdure.cache.memory": {"InMemoryCache"},
    "perdure.checkpoint.base": {"BaseCheckpointSaver", "Checkpoint", "CheckpointTuple"},
    "perdure.checkpoint.memory": {"InMemorySaver", "MemorySaver"},
    "perdure.errors": {
        "EmptyChannelError",
        "EmptyInputError",
        "GraphBubbleUp",
        "GraphRecursionError",
        "InvalidUpdateError",
        "NodeCancelledError",
        "NodeError",
        "NodeTimeoutError",
        "ParentCommand",
    },
}


@pytest.mark.parametrize(("face", "names"), FACES.items(), ids=FACES)
def test_a_module_has_the_names_it_is_known_for(face: str, names: set[str]) -> None:
    module = import_module(face)

    assert not {name for name in names if not hasattr(module, name)}
    assert names <= set(getattr(module, "__all__", names))


@pytest.mark.parametrize("face", ["perdure.types", "perdure.graph", "perdure.channels", "perdure.runtime"])
def test_what_a_face_lists_is_there_and_of_the_package_the_same(face: str) -> None:
    module = import_module(face)

    for name in module.__all__:
        assert getattr(perdure, name, getattr(module, name)) is getattr(module, name)


def test_every_error_and_warning_can_be_caught_by_its_base() -> None:
    named = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, BaseException)
    ]

    bases = errors.PerdureError, errors.PerdureWarning, errors.GraphBubbleUp
    assert len(named) > 30
    assert not [error for error in named if not issubclass(error, bases)]


def test_every_error_and_warning_can_be_imported_from_the_package() -> None:
    named = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.PerdureError | errors.PerdureWarning)
    }

    assert named <= set(perdure.__all__)
    assert all(getattr(perdure, name) is getattr(errors, name) for name in named)
