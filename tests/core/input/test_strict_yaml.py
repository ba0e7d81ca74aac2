"""The usual mistakes in YAML are answered with what to write."""

from __future__ import annotations

import pytest

from timewright.core.input.strict_yaml import InvalidYaml, read_yaml

IN_QUOTES = "write the value in single quotes: "


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        ("name: a\ncron: * * * * *\n", 2, f"{IN_QUOTES}cron: '* * * * *'"),
        ("- name: a\n  cron: */5 * * * *\n", 2, f"{IN_QUOTES}cron: '*/5 * * * *'"),
        ("cron: @daily\n", 1, f"{IN_QUOTES}cron: '@daily'"),
        ("note: *x\n", 1, f"{IN_QUOTES}note: '*x'"),
        ("note: !x y\n", 1, f"{IN_QUOTES}note: '!x y'"),
        ("note: {{ input.day }}\n", 1, f"{IN_QUOTES}note: '{{{{ input.day }}}}'"),
        ("note: it's: fine\n", 1, f"{IN_QUOTES}note: 'it''s: fine'"),
        ('cwd: "C:\\Users\\x"\n', 1, f"{IN_QUOTES}cwd: 'C:\\Users\\x'"),
        ('name: "a b\nevery: 5m\n', 1, "close the quote of line 1"),
        ("name: a\n\tevery: 5m\n", 2, "indent with spaces, not with tabs"),
        ("name:a\nevery: 5m\n", 1, "write a space behind the colon: name: a"),
        (
            "name: a\nevery 5m\nnote: x\n",
            2,
            "write a colon and a space behind the name of the field in line 2",
        ),
        ("- name: a\n every: 5m\n", 2, "let the fields of one definition begin in the same column"),
        ("- &a\n  name: a\n", 1, "write it out, without & and *"),
        ("tags: [a\nevery: 5m\n", 2, ""),
    ],
)
def test_a_mistake_names_its_line_and_what_to_write(text: str, line: int, fix: str) -> None:
    with pytest.raises(InvalidYaml) as error:
        read_yaml(text)
    assert (error.value.line, error.value.fix) == (line, fix)
