"""Commands that run a process or maintain a store, instead of calling one operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import click

from timewright.interfaces.cli.commands import SectionedCommand, global_options, option_for
from timewright.interfaces.cli.fields import OptionField, setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.interfaces.cli.settings import SERVER_DEFAULTS


class ProcessCommand(SectionedCommand):
    """A command that is not an operation; its function gets the given settings as one mapping, `given`.

    The options of settings are made when they are first needed, because reading their types takes 5 ms.
    """

    takes_setting: Callable[[str], bool] | None = None

    @cached_property
    def _settings(self) -> dict[str, OptionField]:
        takes = self.takes_setting or (lambda _: False)
        return {one.key: one for one in setting_fields(SERVER_DEFAULTS) if takes(one.key)}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with the options of settings."""
        params = super().get_params(ctx)
        return params if self.takes_setting is None else [*map(option_for, self._settings.values()), *params]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        if self.takes_setting is not None:
            texts = {key: ctx.params.pop(key) for key in self._settings}
            ctx.params["given"] = {
                key: text if self._settings[key].kind == "switch" else read_field(self._settings[key], text)
                for key, text in texts.items()
                if text is not None and text != ()
            }
        return super().invoke(ctx)


def process_command(
    *params: click.Parameter, name: str = "", settings: Callable[[str], bool] | None = None
) -> Callable[[Callable[..., Any]], ProcessCommand]:
    """Make a command of a function; the first line of its docstring is the short help.

    `settings` says which settings are options of it.
    """

    def build(function: Callable[..., Any]) -> ProcessCommand:
        text = function.__doc__ or ""
        command = ProcessCommand(
            name or function.__name__,
            params=[*params, *global_options()],
            callback=click.pass_obj(function),
            help=text,
            short_help=text.splitlines()[0],
        )
        command.takes_setting = settings
        return command

    return build
