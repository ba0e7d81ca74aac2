"""Functions that log, for tests; in a module, because a worker subprocess imports them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from timewright import Context

LOGGER = logging.getLogger("tests.chatter")


def log_twice(context: Context, gate: str) -> int:
    context.log.info("halfway through %d", 2)
    Path(gate).read_text(encoding="utf-8")
    LOGGER.warning("done")
    return 5


async def log_twice_async(context: Context, gate: str) -> int:
    context.log.info("halfway through %d", 2)
    await asyncio.to_thread(Path(gate).read_text)
    LOGGER.warning("done")
    return 5
