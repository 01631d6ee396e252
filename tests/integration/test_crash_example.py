"""The crash demo, run as its readers run it: as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from examples.stdlib_survey import source_files

EXAMPLE = Path(__file__).parents[2] / "examples" / "crash_and_resume.py"
FILES = 64
SECONDS = 40
# A second between half of the results and the last one: time enough for a kill, on a busy machine too.
COMMAND = [sys.executable, str(EXAMPLE), "--files", str(FILES), "--pace", "0.25"]
DEMO_SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'perdure_demo_%'"
OTHER_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def demo(log: Path, database: str | None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--log", str(log)]
    environment = environment_for(database) | environment
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def environment_for(database: str | None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "PERDURE_DATABASE_URL"}
    return inherited if database is None else inherited | {"PERDURE_DATABASE_URL": database}


def count(database: str, query: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])


def assert_nothing_is_left(database: str) -> None:
    assert count(database, DEMO_SCHEMAS) == 0
    # A session ends a moment after its client.
    deadline = time.monotonic() + SECONDS
    while count(database, OTHER_SESSIONS):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_run_is_resumed_and_leaves_nothing_behind(tmp_path: Path, empty_database_url: str) -> None:
    log = tmp_path / "analysed.log"
    result = demo(log, empty_database_url)

    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("holds ") == 8
    lines = log.read_text().splitlines()
    by_first = {line.split()[-1] for line in lines if line.startswith("first finished")}
    by_second = {line.split()[-1] for line in lines if line.startswith("second finished")}
    assert by_first | by_second == set(source_files(FILES))
    assert len(by_first) >= FILES // 2 >= len(by_second)
    assert_nothing_is_left(empty_database_url)


def test_a_log_that_was_tampered_with_is_noticed(tmp_path: Path, empty_database_url: str) -> None:
    log = tmp_path / "analysed.log"
    log.write_text("".join(f"second started {file}\n" for file in source_files(FILES)))
    result = demo(log, empty_database_url)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "FAILED  No file was analysed again after its result was stored." in result.stdout
    assert "holds   No file was missed." in result.stdout


def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, empty_database_url: str) -> None:
    log = tmp_path / "analysed.log"
    command = [*COMMAND, "--log", str(log)]
    with subprocess.Popen(
        command, env=environment_for(empty_database_url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + SECONDS
        while not (log.exists() and log.read_text()):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)

    assert process.returncode != 0
    assert_nothing_is_left(empty_database_url)


@pytest.fixture
def temporary_folder() -> Iterator[Path]:
    """Provide a folder outside of pytest's: the socket needs a short path that another user can reach."""
    with TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


def test_a_server_of_its_own_is_gone_afterwards(tmp_path: Path, temporary_folder: Path) -> None:
    result = demo(tmp_path / "analysed.log", None, TMPDIR=str(temporary_folder))

    assert result.returncode == 0, result.stdout + result.stderr
    assert not list(temporary_folder.iterdir())


def test_a_database_that_is_not_there_is_named() -> None:
    url = "postgresql://postgres@127.0.0.1:1/nowhere?connect_timeout=2"
    result = subprocess.run(
        COMMAND, env=environment_for(url), capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert result.returncode == 1
    assert "127.0.0.1" in result.stderr
