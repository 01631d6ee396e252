"""Commits: encoded, and sent together with those of other threads."""
