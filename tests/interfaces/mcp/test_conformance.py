"""The official MCP conformance suite against our server, for the newest and the previous version."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import ROOT
from tests.targets.kit import wait_until

NODE = shutil.which("node")
SUITE = Path(sys.prefix) / "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"

if NODE is None or not SUITE.exists():
    # The last line of `python3 dev.py test` says so.
    __test__ = False

NOT_OFFERED = "we do not offer it"
FIXTURE = "tests only a tool, prompt or resource of the suite itself"
# Checks that fail, and why; a check that passes again must be removed here.
EXPECTED = {
    "2026-07-28": {
        "sep-2575-server-rejects-undeclared-capability": FIXTURE,
        "sep-2575-missing-capability-http-400": FIXTURE,
        "sep-2243-server-no-xmcp-tool": NOT_OFFERED,
        "sep-2243-server-decode-base64": NOT_OFFERED,
        "sep-2243-server-validate-param-match": NOT_OFFERED,
        "sep-2243-server-reject-invalid-param-chars": NOT_OFFERED,
        "sep-2243-server-reject-param-mismatch": NOT_OFFERED,
        "sep-2322-elicitation-incomplete": FIXTURE,
        "sep-2322-list-roots-incomplete": NOT_OFFERED,
        "sep-2322-sampling-incomplete": NOT_OFFERED,
        "sep-2322-respect-client-capabilities": FIXTURE,
        "sep-2322-multi-round-r1": FIXTURE,
        "sep-2322-multiple-inputs-incomplete": FIXTURE,
        "sep-2322-non-tool-incomplete": FIXTURE,
        "sep-2322-request-state-incomplete": FIXTURE,
        "sep-2322-result-type-included": FIXTURE,
        "sep-2322-reject-tampered-state": FIXTURE,
        "sep-2663-mrtr-synchronous-before-task-creation": FIXTURE,
        "sep-2663-tasks-get-status-input-required": NOT_OFFERED,
        "tasks-mrtr-tasks-update-resumes": NOT_OFFERED,
        "tasks-mrtr-partial-fulfillment": NOT_OFFERED,
        "sep-2663-server-returns-missing-capability-when-required": "no tool of ours needs tasks",
        "tools-call-with-progress": NOT_OFFERED,
    },
    "2025-11-25": {
        "logging-set-level": NOT_OFFERED,
        "resources-subscribe": NOT_OFFERED,
        "resources-unsubscribe": NOT_OFFERED,
        "tools-call-with-logging": NOT_OFFERED,
        "tools-call-with-progress": NOT_OFFERED,
        "tools-call-sampling": NOT_OFFERED,
        "tools-call-elicitation": FIXTURE,
        "elicitation-sep1034-general": FIXTURE,
        "elicitation-sep1330-general": FIXTURE,
    },
}
CONTENT = dict.fromkeys(
    (
        "json-schema-2020-12-tool-found",
        "prompts-get-embedded-resource",
        "prompts-get-simple",
        "prompts-get-with-args",
        "prompts-get-with-image",
        "resources-read-binary",
        "resources-read-text",
        "resources-templates-read",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-image",
        "tools-call-mixed-content",
    ),
    FIXTURE,
)
MIN_PASSED = {"2026-07-28": 130, "2025-11-25": 38}

# The suite imports `globSync`, which Node 20 does not have, for a command that is not used here.
LOADER = """
export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.endsWith("conformance/dist/index.js")) return loaded;
  return {...loaded, source: String(loaded.source).replace(/globSync as [\\w$]+,/, "")};
}
"""
REGISTER = (
    "data:text/javascript,import{register}from'node:module';"
    "register('data:text/javascript,'+encodeURIComponent(process.env.SUITE_LOADER))"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(__file__).with_name("conformance_server.py")
    store = tmp_path_factory.mktemp("conformance") / "suite.db"
    command = [sys.executable, str(program), str(port), str(store)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:

        def is_up() -> bool:
            assert process.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz"):
                    return True
            except OSError:
                return False

        wait_until(is_up)
        yield f"http://127.0.0.1:{port}/mcp"
        process.terminate()


@pytest.mark.parametrize("version", EXPECTED)
def test_the_official_suite_finds_only_what_we_do_not_offer(
    server: str, version: str, tmp_path: Path
) -> None:
    assert NODE is not None
    command = [NODE, "--no-warnings", "--import", REGISTER, str(SUITE), "server", "--url", server]
    command += ["--requirements", version, "--output-dir", str(tmp_path)]
    done = subprocess.run(
        command, env={"SUITE_LOADER": LOADER}, capture_output=True, text=True, timeout=300, check=False
    )
    found = [check for path in tmp_path.glob("*/checks.json") for check in json.loads(path.read_text())]
    failed = {check["id"]: check.get("errorMessage") for check in found if check["status"] == "FAILURE"}
    expected = EXPECTED[version] | CONTENT
    assert len([one for one in found if one["status"] == "SUCCESS"]) >= MIN_PASSED[version], (
        done.stdout + done.stderr[-500:]
    )
    assert {name: text for name, text in failed.items() if name not in expected} == {}
    assert sorted(set(expected) - set(failed)) == [], "these checks pass: remove them from the list"
