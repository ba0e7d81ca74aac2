"""Run an async function every second on the loop of this program, and one by hand for its result."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from timewright import AsyncScheduler, Context, every

app = AsyncScheduler(Path(tempfile.mkdtemp()) / "timewright.db")
ran = asyncio.Event()


@app.schedule(every("1s"))
async def poll(ctx: Context) -> None:
    """Wait without holding a thread; what this program's loop owns may be used here."""
    await asyncio.sleep(0.01)
    print(f"polled for {ctx.schedule_name}")
    ran.set()


@app.schedule(manual=True)
async def add(ctx: Context) -> int:
    """Give something back."""
    return sum(ctx.payload)


async def main() -> None:
    """Wait for the first run, then ask for a result."""
    async with app:
        print("the sum is", await app.run_now(add, payload=[1, 2, 3]))
        await asyncio.wait_for(ran.wait(), 10)
        print((await app.schedules.get("poll"))["standing"]["state"])
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
