"""Holding a thread while a run works on it."""
