"""The GitHub Action of `deploy/`: its script with the variables of a workflow, and the form of its file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.interfaces.terminal import invoke
from tests.project import ROOT

ACTION = ROOT / "deploy" / "github-action"
FILE = "schedules: [{name: nightly, cron: '30 3 * * *', note: hello}]"


def run_script(here: Path, event: str, ref: str = "refs/heads/main") -> tuple[int, str, str, str]:
    """Run the script as a workflow would; return its code, output, outputs and summary."""
    for name in ("output", "summary"):
        (here / name).write_text("", encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FILES": "ops.yaml",
        "TIMEWRIGHT_STORE": str(here / "timewright.db"),
        "DEFAULT_BRANCH": "main",
        "GITHUB_EVENT_NAME": event,
        "GITHUB_REF": ref,
        "GITHUB_SHA": "4f2a",
        "GITHUB_OUTPUT": str(here / "output"),
        "GITHUB_STEP_SUMMARY": str(here / "summary"),
    }
    done = subprocess.run(
        ["bash", str(ACTION / "plan_or_apply.sh")],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    outputs, summary = (here / "output").read_text(), (here / "summary").read_text()
    return done.returncode, done.stdout + done.stderr, outputs, summary


def test_the_action_plans_pull_requests_and_applies_the_default_branch_once(here: Path) -> None:
    (here / "ops.yaml").write_text(FILE, encoding="utf-8")
    code, _, outputs, summary = run_script(here, "pull_request", "refs/pull/7/merge")
    assert (code, outputs) == (0, "changed=true\n")
    assert "nightly" in summary
    assert invoke(None, "schedule", "list", "-q").lines == []
    assert run_script(here, "push")[0] == 0
    assert invoke(None, "schedule", "list", "-q").lines == ["nightly"]
    (entry,) = invoke(None, "audit", "list", "-o", "json").data["entries"]
    assert entry["reason"] == "commit 4f2a"
    assert run_script(here, "push")[2] == "changed=false\n"
    (here / "ops.yaml").write_text("schedules: [{name: nightly, cron: 'x', note: hello}]", encoding="utf-8")
    code, output, outputs, summary = run_script(here, "push")
    assert (code, outputs) == (1, "")
    assert "ops.yaml line 1" in summary
    assert "error:" in output


def test_every_variable_of_the_action_is_an_input_and_every_input_is_used() -> None:
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    action = yaml.safe_load(text)
    assert set(re.findall(r"\$\{\{ inputs\.(\w+) \}\}", text)) == set(action["inputs"])
    script = (ACTION / "plan_or_apply.sh").read_text(encoding="utf-8")
    given = {name for step in action["runs"]["steps"] for name in step.get("env", {})}
    assert {"FILES", "PRUNE", "DEFAULT_BRANCH", "TIMEWRIGHT_SERVER", "TIMEWRIGHT_KEY"} <= given
    assert all(
        f"${name}" in script or f"${{{name}" in script for name in ("FILES", "PRUNE", "DEFAULT_BRANCH")
    )
