"""Helpers for users' own tests. The checks of a saver are in `perdure.testing.conformance`."""

from perdure.testing.clock import FakeClock
from perdure.testing.exact import exactly_equal

__all__ = ["FakeClock", "exactly_equal"]
