"""Reports of checks that were run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from perdure.checkpoint.base import LeasedSaver
from perdure.testing.conformance.subject import Check, Subject


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a saver's checks.

    Attributes:
        failures: the error of each check that failed; those not named passed.
        skipped: capabilities that were asked for but that the saver does not have.
    """

    checked: tuple[Check, ...]
    failures: dict[Check, Exception]
    skipped: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        lines = [f"{len(self.checked) - len(self.failures)} of {len(self.checked)} checks passed"]
        lines += [f"not checked: {name}" for name in self.skipped]
        lines += [
            f"FAILED {check}: {type(error).__name__}: {error}" for check, error in self.failures.items()
        ]
        return "\n".join(lines)


async def run_checks(
    checks: Iterable[Check],
    open_subject: Callable[[], AbstractAsyncContextManager[Subject]],
) -> Report:
    """Run each check on a subject of its own; a saver without leases is not asked for them."""
    checked: list[Check] = []
    failures: dict[Check, Exception] = {}
    skipped: set[str] = set()
    for check in checks:
        async with open_subject() as subject:
            if check.capability == "leases" and not isinstance(subject.saver, LeasedSaver):
                skipped.add(check.capability)
                continue
            checked.append(check)
            try:
                await check(subject)
            except Exception as error:
                failures[check] = error
    return Report(tuple(checked), failures, tuple(sorted(skipped)))
