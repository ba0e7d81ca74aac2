"""The page names all modules of its first screen at once."""

from __future__ import annotations

import re
from pathlib import Path

from timewright.interfaces.http.app import DASHBOARD_FOLDER


def imported(module: Path) -> set[Path]:
    """A script and all that it imports, directly or not."""
    found, waiting = set[Path](), [module.resolve()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            names = re.findall(r'^(?:import .*|\}) from "([^"]+)";$', path.read_text(), re.MULTILINE)
            waiting += [(path.parent / name).resolve() for name in names]
    return found


def test_every_module_of_a_screen_is_preloaded() -> None:
    """A module that is found only when another one was read costs a round trip before the first paint."""
    folder = DASHBOARD_FOLDER.resolve()
    links = re.findall(r'rel="modulepreload" href="v/0/([^"]+)"', (folder / "index.html").read_text())
    shared = {folder / "main.js", *(folder / name for name in links)}
    assert imported(folder / "main.js") <= shared
    (table,) = re.findall(
        r"const MODULES = \{(.*?)^\};", (folder / "preload.js").read_text(), re.DOTALL | re.MULTILINE
    )
    lists = [re.findall(r'"([^"]+)"', names) for names in re.findall(r"\[(.*?)\]", table, re.DOTALL)]
    assert len(lists) == 15
    for screen, *others in lists:
        assert imported(folder / screen) - shared == {folder / screen, *(folder / name for name in others)}
