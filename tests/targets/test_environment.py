"""Which variables of this process functions and commands get."""

from __future__ import annotations

from typing import Any

import pytest

from timewright.core.input.decode import decode
from timewright.errors import InvalidInput
from timewright.settings import EnvironmentRules, Settings
from timewright.targets.processes.child import DEFAULT_PATH, function_environment

OURS = {
    "TIMEWRIGHT_SECRET_KEY": "1",
    "TIMEWRIGHT_STORE": "2",
    "TIMEWRIGHT_KEY": "3",
    "TIMEWRIGHT_HOSTED": "4",
}
THEIRS = {
    "PATH": "/bin",
    "HOME": "/root",
    "DATABASE_URL": "5",
    "AWS_REGION": "6",
    "AWS_SECRET": "7",
    "LLM": "8",
}


def passed(rules: dict[str, Any], **more: Any) -> set[str]:
    settings = decode({"environment": rules}, Settings)
    return set(function_environment(settings.environment, source={**OURS, **THEIRS}, **more))


def test_functions_get_every_variable_but_our_own() -> None:
    assert passed({}) == set(THEIRS)


def test_denied_variables_are_not_passed_even_if_passed_by_name() -> None:
    rules = {"pass": ["*", "AWS_REGION"], "deny": ["AWS_*", "HOME"]}
    assert passed(rules) == {"PATH", "DATABASE_URL", "LLM"}


def test_a_list_of_passed_variables_excludes_the_others_but_not_the_harmless_ones() -> None:
    assert passed({"pass": ["DATABASE_URL"]}) == {"PATH", "HOME", "DATABASE_URL"}
    assert passed({"pass": []}) == {"PATH", "HOME"}


def test_our_variables_are_never_passed_by_a_rule() -> None:
    assert passed({"pass": ["*", *OURS]}) == set(THEIRS)
    assert passed({"deny": ["*"]}, always=["TIMEWRIGHT_HOSTED"]) == {"PATH", "TIMEWRIGHT_HOSTED"}


def test_the_key_of_the_language_model_is_passed_only_by_its_full_name() -> None:
    assert "LLM" not in passed({"pass": ["*", "L*"]}, withheld=["LLM"])
    assert "LLM" in passed({"pass": ["*", "LLM"]}, withheld=["LLM"])


def test_a_path_is_always_set() -> None:
    assert function_environment(EnvironmentRules(), source={}) == {"PATH": DEFAULT_PATH}


@pytest.mark.parametrize("name", ["", "A B", "A=B", "A" * 256, 5])
def test_an_invalid_variable_name_is_refused_with_its_field(name: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode({"environment": {"deny": [name]}}, Settings)
    assert refused.value.field == "environment.deny[0]"
