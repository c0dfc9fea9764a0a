"""A connection of the API process to the engine process's port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from mint.server.channel.engine_file import read_address
from mint.server.channel.engine_process import RunningEngine
from mint.server.channel.messages import MAX_LINE_BYTES, Hello, Message, decode, encode

_CONNECT_TIMEOUT_S = 60.0
"""From spawning the process to its port being open: Python starts and takes the folder's lock."""
_LOOK_AGAIN_S = 0.05


class Connection:
    """Lines of messages both ways."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: Message) -> None:
        """Hand a message over; one to a process that is gone is dropped."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def messages(self) -> AsyncIterator[Message]:
        """What comes in, until the other side goes away."""
        try:
            while line := await self._reader.readline():
                yield decode(line)
        except (OSError, ValueError):
            return  # cut off in the middle of a line, as when a process is killed

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):  # the other side may have been quicker
            await self._writer.wait_closed()


async def connect(data: Path, engine: RunningEngine) -> Connection | None:
    """Reach the engine process as soon as it listens. None: it ended, or never did."""
    deadline = asyncio.get_running_loop().time() + _CONNECT_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline and not engine.gone():
        address = read_address(data)
        if address is not None and address.pid == engine.pid:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", address.port, limit=MAX_LINE_BYTES
                )
            except OSError:
                pass  # its file outlived it, or it is about to leave
            else:
                connection = Connection(reader, writer)
                connection.send(Hello(address.token))
                return connection
        await asyncio.sleep(_LOOK_AGAIN_S)
    return None
