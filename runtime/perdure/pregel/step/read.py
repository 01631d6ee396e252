"""The inputs of nodes and paths, read from the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.pregel.plan.plan import InputReader
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep

_NOTHING: Mapping[str, Any] = {}


def read(
    reader: InputReader | None,
    state: ThreadState,
    superstep: Superstep,
    written: Mapping[str, Any] = _NOTHING,
) -> Any:
    """Return the input that `reader` makes of the state, with the values in `written` instead of the state's.

    Returns MISSING if the reader takes a single channel that has no value.
    """
    if reader is None:
        return state.read_after(written) if written else state.read()
    if reader.bare is not None:
        return shallow_copy(written.get(reader.bare, state.value(reader.bare)))
    keys = state.values if reader.keys is None else reader.keys
    given = state.select(keys)
    if written:
        for key in written if reader.keys is None else reader.keys:
            if key in written:
                given[key] = shallow_copy(written[key])
    for key, managed in reader.managed:
        given[key] = managed.get(superstep)
    return given if reader.build is None else reader.build(given)
