"""Connections: lent from a pool, proven, bounded in time, their errors translated."""
