"""The in-memory cache: what it keeps, for how long, and what it lets go."""

from __future__ import annotations

import pytest

from perdure.cache.base import FullKey
from perdure.cache.memory import DEFAULT_MAX_ENTRIES, InMemoryCache
from perdure.checkpoint.serde import JsonSerializer
from perdure.testing import FakeClock


def at(key: str, *labels: str) -> FullKey:
    return (labels or ("ns",), key)


async def kept(cache: InMemoryCache, *keys: str) -> set[str]:
    return {key for _, key in await cache.aget([at(key) for key in keys])}


async def test_an_entry_is_seen_until_its_time_is_up_by_the_injected_clock() -> None:
    clock = FakeClock()
    cache = InMemoryCache(clock=clock)
    await cache.aset({at("short"): (b"1", 10.0), at("ever"): (b"2", None)})

    clock.advance(9.9)
    assert await kept(cache, "short", "ever") == {"short", "ever"}
    clock.advance(0.1)
    assert await kept(cache, "short", "ever") == {"ever"}


async def test_a_wall_clock_that_jumps_back_lengthens_nothing() -> None:
    clock = FakeClock()
    cache = InMemoryCache(clock=clock)
    await cache.aset({at("k"): (b"1", 10.0)})

    clock.set_back(3600)
    clock.advance(10)
    assert await kept(cache, "k") == set()


async def test_a_full_cache_lets_go_what_was_used_least_recently() -> None:
    cache = InMemoryCache(max_entries=2)
    await cache.aset({at("a"): (b"a", None), at("b"): (b"b", None)})
    await cache.aget([at("a")])
    await cache.aset({at("c"): (b"c", None)})

    assert await kept(cache, "a", "b", "c") == {"a", "c"}


async def test_setting_an_entry_again_counts_as_using_it() -> None:
    cache = InMemoryCache(max_entries=2)
    await cache.aset({at("a"): (b"a", None), at("b"): (b"b", None)})
    await cache.aset({at("a"): (b"a", None)})
    await cache.aset({at("c"): (b"c", None)})

    assert await kept(cache, "a", "b", "c") == {"a", "c"}


async def test_without_a_bound_of_its_own_it_has_the_documented_one() -> None:
    cache = InMemoryCache()
    await cache.aset({at(str(n)): (b"", None) for n in range(DEFAULT_MAX_ENTRIES + 1)})

    assert await kept(cache, "0", "1", str(DEFAULT_MAX_ENTRIES)) == {"1", str(DEFAULT_MAX_ENTRIES)}


async def test_an_expired_entry_takes_no_room() -> None:
    clock = FakeClock()
    cache = InMemoryCache(max_entries=2, clock=clock)
    await cache.aset({at("a"): (b"a", None), at("b"): (b"b", 1.0)})
    clock.advance(1)
    await cache.aget([at("b")])
    await cache.aset({at("c"): (b"c", None)})

    assert await kept(cache, "a", "b", "c") == {"a", "c"}


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_entries must be at least 1, not 0"):
        InMemoryCache(max_entries=0)


def test_the_serializer_is_the_one_that_was_given_or_our_own() -> None:
    serde = JsonSerializer()
    assert InMemoryCache(serde=serde).serde is serde
    assert isinstance(InMemoryCache().serde, JsonSerializer)
