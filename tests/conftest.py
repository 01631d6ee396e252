"""The fixtures of all tests: databases, and the guard that fails a test which blocks an event loop."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from blockbuster import BlockBuster

from tests import postgres

# A time limit per example would be a wall-clock assertion; pytest-timeout limits the whole test.
hypothesis.settings.register_profile("perdure", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "sweep", hypothesis.settings.get_profile("perdure"), max_examples=3_000, stateful_step_count=25
)
hypothesis.settings.load_profile("perdure")  # `--hypothesis-profile sweep` takes the other


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Provide the URL of a Postgres server, as a superuser."""
    with postgres.running_server() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> Iterator[str]:
    """Provide the name of a database with all migrations and nothing else."""
    with postgres.new_database(postgres_url) as url:
        postgres.migrate(url)
        yield postgres.database_name(url)


@pytest.fixture
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """Provide a database with our schema, for this test alone."""
    with postgres.new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_url: str) -> Iterator[str]:
    """Provide a database without our schema, for this test alone."""
    with postgres.new_database(postgres_url) as url:
        yield url


MAY_BLOCK = {
    # The first pydantic model of a process looks through the installed packages for plugins.
    "pydantic/plugin/_loader.py": {"get_plugins"},
}


@pytest.fixture(scope="session")
def blockbuster() -> BlockBuster:
    guard = BlockBuster()
    for function in guard.functions.values():
        for file, callers in MAY_BLOCK.items():
            function.can_block_in(file, callers)
    return guard


@pytest.fixture(autouse=True)
def loop_guard(blockbuster: BlockBuster) -> Iterator[None]:
    """Fail a test that blocks an event loop, in any thread.

    A module whose tests count calls or measure memory overrides this fixture with one that does nothing.
    """
    blockbuster.activate()
    try:
        yield
    finally:
        blockbuster.deactivate()
