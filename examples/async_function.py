"""Run an async function every second from async code."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

from timewright import AsyncScheduler, Context, every

app = AsyncScheduler(Path(tempfile.mkdtemp()) / "timewright.db")
ran = threading.Event()


@app.schedule(every("1s"))
async def poll(ctx: Context) -> None:
    """Wait without holding a thread."""
    await asyncio.sleep(0.01)
    print(f"polled for {ctx.schedule_name}")
    ran.set()


async def main() -> None:
    """Wait for the first run."""
    async with app:
        await asyncio.to_thread(ran.wait, 10)
        print((await app.schedules.get("poll"))["standing"]["state"])
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
