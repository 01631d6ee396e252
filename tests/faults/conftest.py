"""Fixtures of tests that run processes and read their files, on a loop for which nothing else waits."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def loop_guard() -> None:
    """Replace the guard that fails a test which blocks its loop."""
