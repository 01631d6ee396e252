"""Addresses of checkpoints in configs."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.checkpoint.addresses import Address, address_of, checkpoint_id_of, config_of, require_ids
from perdure.errors import MissingThreadError


def test_an_address_is_read_from_a_config() -> None:
    assert address_of(config_of("t", "ns", "c1")) == Address("t", "ns", "c1")
    assert address_of({"configurable": {"thread_id": 7}}) == Address("7", None, None)
    assert address_of({"configurable": {"thread_id": "", "checkpoint_ns": ""}}) == Address("", "", None)
    assert address_of({"configurable": {"thread_id": "t", "checkpoint_id": ""}}).checkpoint_id is None


@pytest.mark.parametrize("config", [{}, {"configurable": None}, {"configurable": {"thread_id": None}}])
def test_a_config_without_a_thread_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(MissingThreadError, match="thread_id"):
        address_of(config)
    assert checkpoint_id_of(config) is None


def test_one_string_is_not_several_ids() -> None:
    assert require_ids(["a", "b", "a"], "run_ids") == {"a", "b"}
    with pytest.raises(TypeError, match=r"^run_ids must be a sequence of ids, .* Pass \['ab'\]"):
        require_ids("ab", "run_ids")
