"""Facts about a run, and the projections of them that readers receive."""
