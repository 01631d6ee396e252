"""A stretch of wire between client and server, on which messages are counted and which can be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import ByteStream, SocketAttribute
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_LENGTH_BYTES = 4


@dataclass
class Wire:
    """Attributes:
    url: a way to the database over this wire.
    sent: how many messages of each type clients sent (the frontend messages of Postgres' protocol).
    swallow_answers: so many of the answers that come now are not passed on; the connection breaks instead.
    """

    url: str
    sent: Counter[str] = field(default_factory=Counter)
    swallow_answers: int = 0

    @property
    def round_trips(self) -> int:
        """Each of these messages is answered, and psycopg waits for the answer."""
        return self.sent["S"] + self.sent["Q"]


@asynccontextmanager
async def counting_proxy(url: str) -> AsyncIterator[Wire]:
    settings = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    host, port = settings.pop("host", "localhost"), settings.pop("port", "5432")
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    local_port = listener.extra(SocketAttribute.local_port)
    wire = Wire(
        make_conninfo(
            "", **settings, host="127.0.0.1", port=local_port, sslmode="disable", gssencmode="disable"
        )
    )

    async def serve(client: ByteStream) -> None:
        async with client, await _connect(host, int(port)) as upstream, anyio.create_task_group() as group:
            group.start_soon(_answers, upstream, client, wire, group.cancel_scope)
            group.start_soon(_questions, client, upstream, _Messages(wire), group.cancel_scope)

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield wire
        group.cancel_scope.cancel()


async def _connect(host: str, port: int) -> ByteStream:
    if host.startswith("/"):
        return await anyio.connect_unix(f"{host}/.s.PGSQL.{port}")
    return await anyio.connect_tcp(host, port)


async def _answers(source: ByteStream, target: ByteStream, wire: Wire, scope: anyio.CancelScope) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in source:
            if wire.swallow_answers:
                wire.swallow_answers -= 1
                break
            await target.send(chunk)
    scope.cancel()


async def _questions(
    source: ByteStream, target: ByteStream, messages: _Messages, scope: anyio.CancelScope
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in source:
            messages.feed(chunk)
            await target.send(chunk)
    scope.cancel()


class _Messages:
    """Splits a client's bytes into messages: one without a type first, then type, length, body."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._buffer = b""
        self._started = False

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk
        while self._one():
            pass

    def _one(self) -> bool:
        head = 1 if self._started else 0
        if len(self._buffer) < head + _LENGTH_BYTES:
            return False
        end = head + int.from_bytes(self._buffer[head : head + _LENGTH_BYTES])
        if len(self._buffer) < end:
            return False
        if self._started:
            self._wire.sent[chr(self._buffer[0])] += 1
        self._started = True
        self._buffer = self._buffer[end:]
        return True
