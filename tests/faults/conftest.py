"""These tests run processes and read what those leave in files; nothing else waits for their loop."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def loop_guard() -> None:
    """Replace the guard that fails a test which blocks its loop."""
