"""The work of a superstep: running its tasks to their outcomes."""
