"""Checks that a saver keeps its contract, for authors of savers.

With pytest, each check is a test:

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    async def test_my_saver(check: Check, my_saver: MySaver) -> None:
        await check(Subject(saver=my_saver, expire=expire))

Without pytest, use `print(await run(open_subject))`.
"""

from perdure.testing.conformance.catalogue import CAPABILITIES, CHECKS, run
from perdure.testing.conformance.report import Report
from perdure.testing.conformance.subject import Check, Subject

__all__ = ["CAPABILITIES", "CHECKS", "Check", "Report", "Subject", "run"]
