"""A config is read once, and what cannot be meant is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perdure.checkpoint.addresses import config_of
from perdure.config import RunSettings, merge_configs, parse_config, passed_on, require_thread, task_metadata
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


@pytest.mark.parametrize("config", ["1", ["1"], 1])
def test_a_config_that_is_no_mapping_is_refused_with_the_way_to_write_one(config: Any) -> None:
    for use in (parse_config, partial(merge_configs, None)):
        with pytest.raises(
            TypeError, match=r'A config must be a mapping, got .*pass \{"configurable": \{"thread'
        ):
            use(config)


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


# Merging


def test_what_has_no_name_of_ours_is_part_of_the_configurable() -> None:
    settings = parse_config({"user": "me", "thread_id": "ignored", "configurable": {"thread_id": "t"}})

    assert settings.configurable == {"user": "me", "thread_id": "t"}
    assert settings.thread_id == "t"
    assert parse_config({"run_name": "n", "callbacks": []}).configurable == {}


@pytest.mark.parametrize("nothing", [None, {}])
def test_merging_with_nothing_changes_nothing(nothing: Any) -> None:
    config = {"tags": ["a"], "metadata": {"k": 1}, "recursion_limit": 3}

    assert merge_configs(config, nothing) == merge_configs(nothing, config) == config
    assert merge_configs(nothing, nothing) == {}


def test_the_later_config_counts_more_and_none_says_nothing() -> None:
    merged = merge_configs(
        {"tags": ["a", "b"], "metadata": {"k": 1, "l": 1}, "configurable": {"u": 1}, "max_concurrency": 2},
        {"tags": ["b", "c"], "metadata": {"l": 2}, "v": 2, "max_concurrency": None, "run_id": "r"},
    )

    assert merged == {
        "tags": ["a", "b", "c"],
        "metadata": {"k": 1, "l": 2},
        "configurable": {"u": 1, "v": 2},
        "max_concurrency": 2,
        "run_id": "r",
    }


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (["a"], ["b", "a"], ["a", "b"]),
        (["a"], None, ["a"]),
        (None, ["b"], ["b"]),
        ("a manager", ["b"], ["b"]),
        (["a"], "a manager", "a manager"),
        (None, None, None),
    ],
)
def test_lists_of_callbacks_are_joined_and_a_manager_stands_for_itself(
    first: Any, second: Any, merged: Any
) -> None:
    assert merge_configs({"callbacks": first}, {"callbacks": second}).get("callbacks") == merged
    assert parse_config({"callbacks": second}, RunSettings(callbacks=first)).callbacks == merged


SURROUNDING = RunSettings(thread_id="t", configurable={"thread_id": "t", "k": 1})


def test_a_tasks_own_config_passed_on_says_nothing_of_where_the_task_is() -> None:
    own = {
        "configurable": {"thread_id": "t", "k": 1, "checkpoint_ns": "a:1"},
        "metadata": {"m": 1, **task_metadata(step=1, node="a", triggers=(), path=(), checkpoint_ns="a:1")},
        "run_id": "r",
        "run_name": "a",
        "tags": ["t"],
    }

    assert passed_on(own, SURROUNDING, "a:1") == {
        "configurable": {"k": 1},
        "metadata": {"m": 1},
        "tags": ["t"],
    }


@pytest.mark.parametrize(
    "configurable",
    [
        {"thread_id": "t", "checkpoint_ns": "b:1"},
        {"thread_id": "t"},
        {"thread_id": "other", "checkpoint_ns": "a:1"},
        {"thread_id": "t", "checkpoint_ns": "a:1", "checkpoint_id": "c"},
        {"k": 2},
    ],
)
def test_any_other_config_is_passed_on_as_it_is(configurable: dict[str, Any]) -> None:
    config = {"configurable": configurable, "metadata": {"langgraph_step": 1}, "run_id": "r"}

    assert passed_on(config, SURROUNDING, "a:1") is config
