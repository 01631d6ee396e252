"""The writes that a node's return value stands for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from inspect import isawaitable
from typing import Any

from perdure.constants import INPUT, ROOT, START
from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning
from perdure.pregel.plan.names import nearest
from perdure.pregel.plan.objects import attributes, is_annotated
from perdure.pregel.plan.plan import NodeSpec, Plan
from perdure.pregel.plan.warn_once import WarnOnce
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.routing import destination, targets
from perdure.pregel.step.task import Writes

Pairs = Iterable[tuple[Any, Any]]


def writes_of(plan: Plan, spec: NodeSpec, result: Any) -> Writes:
    """Return the writes of a node that returned `result`: update, destinations, then static edges."""
    writes: Writes = []
    if spec.writer is not None:
        writes = spec.writer(result)
    elif type(result) is dict and not plan.bare:
        _update(plan, spec.name, result.items(), writes)
    elif result is not None:
        _add(plan, spec.name, result, writes)
    writes.extend(spec.edges)
    return writes


def _add(plan: Plan, node: str, result: Any, writes: Writes) -> None:
    match result:
        case Command():
            if result.update is not None:
                _update(plan, node, _pairs(plan, node, result.update, of_command=True), writes)
            for target in targets(result.goto):
                writes.extend(destination(plan, node, "Command.goto", target))
        case Send():
            writes.extend(destination(plan, node, "The return value", result))
        case list() | tuple() if any(isinstance(item, Command | Send) for item in result):
            for item in result:
                if item is not None:
                    _add(plan, node, item, writes)
        case _:
            _update(plan, node, _pairs(plan, node, result, of_command=False), writes)


def _pairs(plan: Plan, node: str, update: Any, *, of_command: bool) -> Pairs:
    """Return an update as pairs of key and value. For a state that is a bare value, it is the value."""
    if plan.bare and node != START:
        return ((ROOT, update),)
    if isinstance(update, Mapping):
        return update.items()
    if of_command and _are_pairs(update):
        return update  # type: ignore[no-any-return]
    if is_annotated(update):
        return _attributes(plan, node, update)
    if of_command and ROOT in plan.state_keys:
        return ((ROOT, update),)
    raise _not_an_update(node, update)


def _are_pairs(update: Any) -> bool:
    return isinstance(update, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in update
    )


def _attributes(plan: Plan, node: str, update: Any) -> Pairs:
    """Return the attributes of an object that are state keys. Its other attributes are ignored."""
    written = [pair for pair in attributes(update).items() if pair[0] in plan.state_keys]
    if not written and not _shares_a_name(update, plan.state_keys):
        name = type(update).__name__
        message = f"{_source(node)} returned a {name}, none of whose attributes is a key of the state"
        _refuse_or_warn(plan, node, name, message)
    return written


def _shares_a_name(update: Any, keys: frozenset[str]) -> bool:
    """Return True if an object has any attribute that is a state key, set or not."""
    return any(hasattr(update, key) for key in keys)


def _not_an_update(node: str, result: Any) -> InvalidUpdateError:
    shown = repr(result) if len(repr(result)) <= 60 else repr(result)[:60] + "…"
    if node == INPUT:
        return InvalidUpdateError(
            f"Expected dict, got {shown}: the update of a Command is a mapping of state keys, a list of "
            f"pairs (key, value), or an object of an annotated class, not {type(result).__name__}."
        )
    hint = " Did you forget `await`?" if isawaitable(result) else ""
    return InvalidUpdateError(
        f"Expected dict, got {shown} from node {node!r}: a node returns a mapping of state keys, an "
        f"object of an annotated class, a Command, a Send, a list of these, or None, "
        f"not {type(result).__name__}.{hint}"
    )


def _update(plan: Plan, node: str, pairs: Pairs, writes: Writes) -> None:
    is_input = node == START
    keys = plan.input_keys if is_input else plan.state_keys
    validators = None if is_input else plan.validators or None  # an input was checked when it was accepted
    for key, value in pairs:
        if key not in keys:
            of = "input" if is_input else "state"
            message = f"{_source(node)} wrote to {key!r}, which is not a key of the {of}"
            _refuse_or_warn(plan, node, str(key), message, nearest(str(key), keys))
        elif validators is None:
            writes.append((key, value))
        else:
            writes.append((key, _validated(plan, node, key, value)))


def _validated(plan: Plan, node: str, key: str, value: Any) -> Any:
    validate = plan.validators.get(key)
    if validate is None:
        return value
    try:
        return validate(value)
    except Exception as error:
        source = _source(node)
        add_note(error, f"While validating what {source[0].lower()}{source[1:]} wrote to state key {key!r}")
        raise


_warned = WarnOnce()


def _source(node: str) -> str:
    return "The input" if node in (START, INPUT) else f"Node {node!r}"


def _refuse_or_warn(plan: Plan, node: str, what: str, message: str, remedy: str = "") -> None:
    """Raise InvalidUpdateError if the graph is strict; else warn that the write is dropped.

    The warning is given once for each graph, node and key, because a misspelt key is misspelt every time.
    """
    if plan.strict:
        raise InvalidUpdateError(f"{message}.{remedy}")
    if _warned.is_new(plan, node, what):
        warnings.warn(f"{message}; the write is dropped.{remedy}", InvalidUpdateWarning, stacklevel=2)


def refuse_unknown_keys(plan: Plan, given: Mapping[str, Any]) -> None:
    """Raise InvalidUpdateError if an input has a key that inputs may not write."""
    for key in given:
        if key not in plan.input_keys:
            raise InvalidUpdateError(
                f"The input wrote to {key!r}, which is not a key of the input of graph {plan.name!r}."
                + nearest(str(key), plan.input_keys)
            )
