"""Run an async function every second on this program's loop, and another one on demand for its result."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from timewright import AsyncScheduler, Context, every

app = AsyncScheduler(Path(tempfile.mkdtemp()) / "timewright.db")
ran = asyncio.Event()


@app.schedule(every("1s"))
async def poll(ctx: Context) -> None:
    """Wait without blocking a thread. Objects of this program's loop can be used here."""
    await asyncio.sleep(0.01)
    print(f"polled for {ctx.schedule_name}")
    ran.set()


@app.schedule(manual=True)
async def add(ctx: Context) -> int:
    """Return a result."""
    return sum(ctx.payload)


async def main() -> None:
    """Wait for the first run, and run a function on demand."""
    async with app:
        print("the sum is", await app.run_now(add, payload=[1, 2, 3]))
        await asyncio.wait_for(ran.wait(), 10)
        print((await app.schedules.get("poll")).progress.state)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
