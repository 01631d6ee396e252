"""All checks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Final

from perdure.testing.conformance.checks.commits import COMMIT
from perdure.testing.conformance.checks.copying import COPY_THREAD
from perdure.testing.conformance.checks.deleting import DELETE_FOR_RUNS, DELETE_THREAD
from perdure.testing.conformance.checks.fences import FENCES
from perdure.testing.conformance.checks.leases import LEASES
from perdure.testing.conformance.checks.listing import LIST
from perdure.testing.conformance.checks.orphans import ORPHANS
from perdure.testing.conformance.checks.pruning import PRUNE
from perdure.testing.conformance.checks.put import PUT
from perdure.testing.conformance.checks.reads import GET_TUPLE
from perdure.testing.conformance.checks.writes import PUT_WRITES
from perdure.testing.conformance.report import Report, run_checks
from perdure.testing.conformance.subject import Check, Subject

_ALL: Final = (
    PUT,
    PUT_WRITES,
    GET_TUPLE,
    LIST,
    DELETE_THREAD,
    DELETE_FOR_RUNS,
    COPY_THREAD,
    PRUNE,
    COMMIT,
    LEASES,
    FENCES,
    ORPHANS,
)

CAPABILITIES: Final[tuple[str, ...]] = tuple(dict.fromkeys(group.name for group in _ALL))
CHECKS: Final[tuple[Check, ...]] = tuple(check for group in _ALL for check in group.checks)


async def run(
    open_subject: Callable[[], AbstractAsyncContextManager[Subject]],
    *,
    capabilities: Collection[str] = CAPABILITIES,
) -> Report:
    """Run all checks of these capabilities, each on a subject of its own.

    A saver without leases is not asked for them; the report says so. Errors from opening a subject
    are raised.
    """
    if unknown := set(capabilities) - set(CAPABILITIES):
        raise ValueError(f"Unknown capabilities {sorted(unknown)}; there are: {', '.join(CAPABILITIES)}.")
    checks = [check for check in CHECKS if check.capability in capabilities]
    return await run_checks(checks, open_subject)
