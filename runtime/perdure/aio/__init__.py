"""Everything that knows asyncio itself; all other modules speak anyio."""
