"""The official MCP Inspector, strict, over every tool that a client can be given."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NODE = shutil.which("node")
# The program that `mcp-inspector --cli` starts: it runs with Node 20, the command asks for 22.
INSPECTOR = Path(sys.prefix) / "node/node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js"

if NODE is None or not INSPECTOR.exists():
    # The last line of `python3 dev.py test` says so.
    __test__ = False


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_nothing_in_the_schemas_of_all_tools(here: Path, era: str) -> None:
    assert NODE is not None
    server = [sys.executable, "-m", "timewright", "mcp", "--write", "--tools", "all"]
    command = [NODE, "--no-warnings", str(INSPECTOR), "--cli", "--method", "tools/list", "--strict"]
    command += ["--format", "json", "--protocol-era", era]
    command += ["--connect-timeout", "100000", *server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert len(answer["result"]["tools"]) > 100
    assert answer.get("schemaFindings", []) == []
