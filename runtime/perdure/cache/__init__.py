"""The node cache: results that are used again for an equal input."""

from perdure.cache.base import BaseCache, FullKey, Namespace
from perdure.cache.memory import InMemoryCache

__all__ = ["BaseCache", "FullKey", "InMemoryCache", "Namespace"]
