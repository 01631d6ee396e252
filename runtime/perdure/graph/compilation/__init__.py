"""Compilation: a Plan is made of a description."""
