# ruff: noqa: INP001 - pages are no package
"""The figures of the last measured run, as bars: `python -m docs.speed` draws `docs/operate/speed.svg`.

The figures stand in `docs/speed.toml`, taken from one run of `python3 dev.py bench engine`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parent / "speed.toml"
PLOT = Path(__file__).parent / "operate" / "speed.svg"
LEFT, WIDE, ROW, BAR, GAP = 210, 420, 22, 14, 46
STYLE = (
    "text{font:13px sans-serif;fill:#444}.t{font-weight:bold}.o{fill:#2f6f4f}.r{fill:#b8b8b8}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.o{fill:#6fbf95}.r{fill:#666}}"
)


def figures() -> list[dict[str, Any]]:
    """The charts, each with its title and its bars."""
    found: list[dict[str, Any]] = tomllib.loads(FIGURES.read_text())["chart"]
    return found


def draw(charts: list[dict[str, Any]]) -> str:
    """One picture of all charts, one under the other; each has a scale of its own."""
    parts: list[str] = []
    y = 0
    for chart in charts:
        y += GAP // 2
        parts.append(f'<text class="t" x="0" y="{y}">{chart["title"]}</text>')
        most = max(bar["value"] for bar in chart["bar"])
        for bar in chart["bar"]:
            y += ROW
            parts += _bar(bar, y, long=WIDE * bar["value"] / most)
        y += GAP // 2
    size = f'viewBox="0 0 {LEFT + WIDE + 90} {y}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{"".join(parts)}</svg>\n'


def _bar(bar: dict[str, Any], y: int, *, long: float) -> list[str]:
    kind = "o" if bar["name"].startswith("Timewright") else "r"
    end = LEFT + max(long, 1)
    return [
        f'<text x="{LEFT - 8}" y="{y}" text-anchor="end">{bar["name"]}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{y - BAR + 2}" width="{max(long, 1):.1f}" height="{BAR}"/>',
        f'<text x="{end + 6:.1f}" y="{y}">{bar["shown"]}</text>',
    ]


if __name__ == "__main__":
    PLOT.write_text(draw(figures()))
