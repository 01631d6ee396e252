"""Nodes' actions and the paths of conditional edges: their types, names, signatures and annotations."""
