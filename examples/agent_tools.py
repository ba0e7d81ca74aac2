"""An agent in the same process: function tools with limits and confirmations, and a scripted model.

Any framework takes the definitions: `tools` is a list for OpenAI's API, and `tools.call` runs what the model
asks for. With openai-agents, make a FunctionTool of each one whose `on_invoke_tool` calls `tools.call`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from timewright import Scheduler


def scripted_model() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What a model would ask for, turn by turn, when a person says: check the shop every ten minutes."""
    yield [("schedule_create", {"name": "shop", "every": "10m", "note": "look at the shop", "dry_run": True})]
    yield [("schedule_create", {"name": "shop", "every": "10m", "note": "look at the shop"})]
    yield [("schedule_archive", {"schedule": "shop"})]
    yield []


def main() -> None:
    """Let the model work with the tools until it asks for nothing more."""
    app = Scheduler(":memory:")
    tools = app.tools(agent="shop-helper", format="openai", toolset="core")
    print(f"{len(tools)} tools, the first is {tools[0]['function']['name']}")
    for calls in scripted_model():
        for name, arguments in calls:
            answer = tools.call(name, json.dumps(arguments))
            print(f"{name}: {answer.splitlines()[0][:60]}")
    (shop,) = app.schedules.list().schedules
    print(f"{shop.name} is {shop.state}, made by {app.schedules.get('shop').schedule.created_by}")
    print("done")


if __name__ == "__main__":
    main()
