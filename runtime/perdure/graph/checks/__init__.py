"""Checks of a graph as described: faults that compile() refuses, and structures that it warns of."""
