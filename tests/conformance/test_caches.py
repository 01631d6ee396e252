"""The contract of caches, for every cache in this repository."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import anyio
import psycopg
import pytest

from perdure.cache.base import BaseCache, FullKey
from perdure.cache.memory import InMemoryCache
from perdure.testing import FakeClock
from perdure_checkpointers.postgres import PostgresCache
from tests import postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A cache, and what lets that many seconds pass for its entries."""

    cache: BaseCache
    pass_time: Callable[[float], Awaitable[None]]


@pytest.fixture(scope="module")
def shared_database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    with postgres.new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture(params=["memory", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the URL of the cache's database, or None for a cache without one."""
    return None if request.param == "memory" else str(request.getfixturevalue("shared_database_url"))


@pytest.fixture
async def subject(url: str | None) -> AsyncIterator[Subject]:
    if url is None:
        clock = FakeClock()

        async def advance(seconds: float) -> None:
            clock.advance(seconds)

        yield Subject(cache=InMemoryCache(clock=clock), pass_time=advance)
        return

    async def age(seconds: float) -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(
                "UPDATE perdure.node_cache SET expires_at = expires_at - %s * interval '1 second'", [seconds]
            )

    async with PostgresCache.from_conn_string(url) as cache:
        await cache.aclear()
        yield Subject(cache=cache, pass_time=age)


@pytest.fixture
def cache(subject: Subject) -> BaseCache:
    return subject.cache


def at(key: str, *labels: str) -> FullKey:
    return (labels or ("ns",), key)


async def set_all(cache: BaseCache, *keys: FullKey) -> None:
    await cache.aset({key: (repr(key).encode(), None) for key in keys})


async def test_what_was_kept_comes_back_byte_for_byte(cache: BaseCache) -> None:
    values = {
        at(str(n)): value for n, value in enumerate([b"", b"\x00\xff", b"[1]", bytes(range(256)) * 4096])
    }
    await cache.aset({key: (value, None) for key, value in values.items()})
    assert await cache.aget(list(values)) == values


async def test_what_was_not_kept_is_not_in_the_answer(cache: BaseCache) -> None:
    await set_all(cache, at("a"))
    assert await cache.aget([at("b"), at("a"), at("a", "other")]) == {at("a"): repr(at("a")).encode()}
    assert await cache.aget([at("b")]) == {}


async def test_nothing_asked_or_kept_is_nothing(cache: BaseCache) -> None:
    assert await cache.aget([]) == {}
    await cache.aset({})
    await cache.aclear([])
    assert await cache.aget([at("a")]) == {}


async def test_a_key_that_is_asked_for_twice_is_answered(cache: BaseCache) -> None:
    await set_all(cache, at("a"))
    assert await cache.aget([at("a"), at("a")]) == {at("a"): repr(at("a")).encode()}


async def test_what_is_kept_last_replaces_value_and_time(subject: Subject) -> None:
    cache = subject.cache
    await cache.aset({at("a"): (b"1", None), at("b"): (b"1", 10.0)})
    await cache.aset({at("a"): (b"2", 10.0), at("b"): (b"2", None)})
    assert await cache.aget([at("a"), at("b")]) == {at("a"): b"2", at("b"): b"2"}
    await subject.pass_time(10)
    assert await cache.aget([at("a"), at("b")]) == {at("b"): b"2"}


async def test_an_entry_is_seen_until_its_seconds_have_passed(subject: Subject) -> None:
    cache = subject.cache
    await cache.aset({at("a"): (b"1", 100.0), at("b"): (b"1", 200), at("c"): (b"1", float("inf"))})
    assert len(await cache.aget([at("a"), at("b"), at("c")])) == 3
    await subject.pass_time(150)
    assert (await cache.aget([at("a"), at("b"), at("c")])).keys() == {at("b"), at("c")}
    await subject.pass_time(1e6)
    assert (await cache.aget([at("a"), at("b"), at("c")])).keys() == {at("c")}


@pytest.mark.parametrize("ttl", [0, -1.0])
async def test_an_entry_of_no_time_is_not_seen(ttl: float, cache: BaseCache) -> None:
    await set_all(cache, at("a"))
    await cache.aset({at("a"): (b"1", ttl)})
    assert await cache.aget([at("a")]) == {}


async def test_an_expired_entry_can_be_kept_again(subject: Subject) -> None:
    cache = subject.cache
    await cache.aset({at("a"): (b"1", 1.0)})
    await subject.pass_time(2)
    await cache.aset({at("a"): (b"2", 1.0)})
    assert await cache.aget([at("a")]) == {at("a"): b"2"}


ENTRIES = [
    at("k", "a"),
    at("k", "a", "b"),
    at("k", "a", "b", "c"),
    at("k", "a", "bc"),
    at("k", "ab"),
    at("k", "a/b"),
    at("k", "a/", "b"),
    at("k", "a~1b"),
    at("k", "a~", "b"),
    at("k", "a", ""),
    at("k", "", "a"),
    at("k", "A", "b"),
    at("k", "ä", "b"),
    ((), "k"),
]


@pytest.mark.parametrize(
    "prefix", [*[namespace for namespace, _ in ENTRIES], ("nothing",), ("a", "b", "c", "d")]
)
async def test_clearing_takes_whole_labels(prefix: tuple[str, ...], cache: BaseCache) -> None:
    await set_all(cache, *ENTRIES)
    await cache.aclear([prefix])
    left = [key for key in ENTRIES if key[0][: len(prefix)] != prefix]
    assert (await cache.aget(ENTRIES)) == {key: repr(key).encode() for key in left}


async def test_several_namespaces_are_cleared_at_once(cache: BaseCache) -> None:
    await set_all(cache, *ENTRIES)
    await cache.aclear([("a", "b"), ("a",), ("ab",)])
    assert (await cache.aget(ENTRIES)).keys() == {
        key for key in ENTRIES if key[0][:1] not in (("a",), ("ab",))
    }


async def test_clearing_without_a_namespace_clears_everything(cache: BaseCache) -> None:
    await set_all(cache, *ENTRIES)
    await cache.aclear()
    assert await cache.aget(ENTRIES) == {}


async def test_calls_may_overlap(cache: BaseCache) -> None:
    keys = [at(str(n), "a", str(n % 3)) for n in range(60)]

    async def work(step: int) -> None:
        for _ in range(5):
            await set_all(cache, *keys[::step])
            await cache.aget(keys)
            await cache.aclear([("a", str(abs(step) % 3))])

    async with anyio.create_task_group() as group:
        for step in (1, -1, 2, -2, 3, -3):
            group.start_soon(work, step)
    await set_all(cache, *keys)
    assert len(await cache.aget(keys)) == 60
