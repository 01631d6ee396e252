"""Serializers: values become bytes, and come back equal and of the same type."""

from perdure.checkpoint.serde.json import JsonSerializer

__all__ = ["JsonSerializer"]
