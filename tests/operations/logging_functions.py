"""Functions that log, for tests; in a module, because a worker subprocess imports them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from timewright import Context

LOGGER = logging.getLogger("tests.chatter")


def log_twice(context: Context, pipe: str) -> int:
    context.log.info("halfway through %d", 2)
    Path(pipe).read_text(encoding="utf-8")
    LOGGER.warning("done")
    return 5


async def log_twice_async(context: Context, pipe: str) -> int:
    context.log.info("halfway through %d", 2)
    await asyncio.to_thread(Path(pipe).read_text)
    LOGGER.warning("done")
    return 5
