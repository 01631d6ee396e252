"""A proxy between a client and its Postgres server that counts what the client sends.

A round trip is a message after which the client waits for the server: Query, Sync or FunctionCall of the
frontend protocol (https://www.postgresql.org/docs/current/protocol-message-formats.html). Bytes are
counted as they are on the wire. The proxy runs in a thread with its own event loop, so that the client cannot
starve it. It costs time, so only runs that are not timed use it.
"""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

WAITS_FOR_ANSWER = b"QSF"
NEGOTIATION_CODES = {80877103, 80877104}
"""The codes of SSLRequest and GSSENCRequest, which precede the start-up message and have its shape."""
CHUNK = 65_536
BOUND = 10
"""The time limit for the thread to start and for its connections to end, in seconds."""


@dataclass(slots=True)
class Traffic:
    round_trips: int = 0
    bytes_sent: int = 0


class FrontendReader:
    """A parser that finds the messages in one connection's bytes and keeps only headers."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._started = False
        self._header = bytearray()
        self._to_skip = 0

    def feed(self, data: bytes) -> None:
        self._traffic.bytes_sent += len(data)
        position = 0
        while position < len(data):
            if self._to_skip:
                skipped = min(self._to_skip, len(data) - position)
                self._to_skip -= skipped
            else:
                skipped = min(self._header_size() - len(self._header), len(data) - position)
                self._header += data[position : position + skipped]
                if len(self._header) == self._header_size():
                    self._read_header()
            position += skipped

    def _header_size(self) -> int:
        return 5 if self._started else 8

    def _read_header(self) -> None:
        header, self._header = bytes(self._header), bytearray()
        if self._started:
            self._traffic.round_trips += header[:1] in WAITS_FOR_ANSWER
            self._to_skip = int.from_bytes(header[1:]) - 4
        else:
            self._started = int.from_bytes(header[4:]) not in NEGOTIATION_CODES
            self._to_skip = int.from_bytes(header[:4]) - 8


class CountingProxy:
    """A proxy that listens on a Unix socket in `folder` and forwards to the server of `uri`."""

    def __init__(self, uri: str, folder: Path) -> None:
        parameters = {key: str(value) for key, value in conninfo_to_dict(uri).items()}
        self._host, self._port = parameters.get("host", "localhost"), parameters.get("port", "5432")
        self._socket = folder / f".s.PGSQL.{self._port}"
        self.uri = (
            f"postgresql://{quote(parameters['user'])}@/{quote(parameters['dbname'])}"
            f"?host={quote(str(folder), safe='')}&port={self._port}"
        )
        self.traffic = Traffic()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._stopping = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._listening.wait(timeout=BOUND):
            raise RuntimeError(f"The counting proxy did not listen within {BOUND} seconds.")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=2 * BOUND)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._connected, self._socket)
        self._listening.set()
        await self._stopping.wait()
        server.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=BOUND)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._carry(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._host.startswith("/"):
            answers, upstream = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            answers, upstream = await asyncio.open_connection(self._host, int(self._port))
        counted = FrontendReader(self.traffic)
        await asyncio.gather(forward(reader, upstream, counted), forward(answers, writer, None))


async def forward(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, counted: FrontendReader | None
) -> None:
    """Copy until the source ends, then close the target."""
    with suppress(ConnectionError):
        while data := await source.read(CHUNK):
            if counted is not None:
                counted.feed(data)
            target.write(data)
            await target.drain()
    target.close()


@contextmanager
def counting_proxy(uri: str) -> Iterator[CountingProxy]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        proxy = CountingProxy(uri, Path(folder))
        proxy.start()
        try:
            yield proxy
        finally:
            proxy.stop()
