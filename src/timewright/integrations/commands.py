"""Our command line inside the command line of a framework: `flask timewright up`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from timewright.errors import InvalidInput, TimewrightError

_WITH_APP = ("up", "worker")


def run_command(arguments: Sequence[str], *, app: str, store: str) -> int:
    """Run a command on the store of a framework's scheduler; `up` and `worker` also get its functions."""
    from timewright.interfaces.cli.root import cli

    given = list(arguments)
    if any(word in _WITH_APP for word in given) and "--app" not in given:
        given += ["--app", app]
    if given and not {"--store", "--server"} & {*given}:
        given = ["--store", store, *given]
    return int(cli.main(given, standalone_mode=False))


def import_path(scheduler: object) -> str:
    """Return `module:name` of a scheduler, by which worker processes import it."""
    for module, found in list(sys.modules.items()):
        for name, value in list(getattr(found, "__dict__", {}).items()):
            if value is scheduler and module != "__main__":
                return f"{module}:{name}"
    raise InvalidInput(
        "the scheduler is not in a module",
        field="scheduler",
        rule="worker processes import it by module and name",
        fix="assign it to a name at the top level of a module",
    )


def missing_package(name: str, extra: str) -> TimewrightError:
    """Return the error for a framework that is not installed."""
    return InvalidInput(
        f"{name} is not installed",
        field="integration",
        value=extra,
        rule=f"timewright.integrations.{extra} needs {name}",
        fix=f"pip install 'timewright[{extra}]'",
    )
