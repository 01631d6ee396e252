"""A config is read once, and what cannot be meant is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.checkpoint.rows import config_of
from perdure.config import RunSettings, parse_config, require_thread
from perdure.errors import GraphValidationError, MissingThreadError


@pytest.mark.parametrize("config", [None, {}, {"configurable": {}}, {"configurable": None}])
def test_an_empty_config_means_the_defaults(config: Any) -> None:
    assert parse_config(config) == RunSettings()


def test_a_config_is_read() -> None:
    settings = parse_config(
        {
            "configurable": {"thread_id": 7, "checkpoint_ns": "a:b", "checkpoint_id": "c"},
            "recursion_limit": 3,
            "max_concurrency": 2,
            "metadata": {"user": "me"},
            "run_id": "run",
        }
    )

    assert settings == RunSettings(
        thread_id="7",
        namespace="a:b",
        checkpoint_id="c",
        recursion_limit=3,
        max_concurrency=2,
        metadata={"user": "me"},
        configurable={"thread_id": 7, "checkpoint_ns": "a:b", "checkpoint_id": "c"},
        run_id="run",
    )


@pytest.mark.parametrize("thread_id", ["", 0])
def test_a_falsy_thread_id_is_a_thread_id(thread_id: object) -> None:
    settings = parse_config({"configurable": {"thread_id": thread_id}})

    assert require_thread(settings) == str(thread_id)


@pytest.mark.parametrize("name", ["recursion_limit", "max_concurrency"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True])
def test_limits_that_are_not_whole_numbers_above_zero_are_refused(name: str, value: object) -> None:
    with pytest.raises(GraphValidationError, match=f"{name} must be at least 1.*{value!r}"):
        parse_config({name: value})


def test_a_missing_thread_id_is_refused_with_the_way_to_give_one() -> None:
    with pytest.raises(MissingThreadError, match=r'config=\{"configurable": \{"thread_id"'):
        require_thread(RunSettings())


def test_a_config_below_a_run_takes_from_it_all_but_the_address() -> None:
    surrounding = RunSettings(
        thread_id="t",
        namespace="n",
        checkpoint_id="c",
        recursion_limit=5,
        max_concurrency=2,
        metadata={"a": 1, "b": 1},
        run_id="r",
    )

    settings = parse_config({"metadata": {"b": 2}}, surrounding)

    assert settings == RunSettings(recursion_limit=5, max_concurrency=2, metadata={"a": 1, "b": 2})


def test_a_checkpoint_is_addressed_by_what_its_config_says() -> None:
    settings = parse_config(config_of("t", "n", "c"))

    assert (settings.thread_id, settings.namespace, settings.checkpoint_id) == ("t", "n", "c")
