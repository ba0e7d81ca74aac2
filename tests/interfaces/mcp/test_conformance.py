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

# Why a check of the shipped server fails. Whatever the suite can check by a tool, prompt or resource of ours
# is translated to it in `conformance_server.py`; the rest needs something that our server does not have and
# does not declare. For the server of `conformance_fixtures.py`, which has all that, every check passes.
NO_SAMPLING = "asks the client for a completion of its model: we never do, and clients need not offer it"
NO_ROOTS = "asks the client for its folders: we use none"
NO_LOGGING = "we do not declare `logging`, which is deprecated; `run logs` reads what a run wrote"
NO_SUBSCRIPTION = (
    "we do not declare `resources.subscribe`: every client of this version would hold a stream open for it,"
    " and one instance would have to remember its session; a channel sends events, `run_wait` waits for a run"
)
NO_HEADERS = "we mark no argument with `x-mcp-header`, which is optional"
NO_MEDIA = "no answer, prompt or resource of ours contains an image, a sound or a file"
ONE_QUESTION = "we ask the person one question: whether to do what cannot be undone"
NO_QUESTION_BEFORE_A_RUN = "no tool of ours that starts a run asks the person first: a run can be cancelled"
NO_PROMPT_QUESTION = "a prompt of ours has its arguments and asks nothing"
NO_STATE = "the suite leaves out the state of the question, which is the confirmation: we ask again"
TASKS_OPTIONAL = "a client without tasks gets the run itself: no tool of ours needs tasks"
NO_SUCH_TOOL = "needs a tool of the suite that asks for a capability which no tool of ours needs"
OWN_SCHEMA = "needs the suite's tool in the list; test_mcp.py checks the schemas of all our tools"
# Checks of the shipped server that fail, and why; a check that passes again must be removed here.
EXPECTED = {
    "2026-07-28": {
        "sep-2575-server-rejects-undeclared-capability": NO_SUCH_TOOL,
        "sep-2575-missing-capability-http-400": NO_SUCH_TOOL,
        "sep-2243-server-no-xmcp-tool": NO_HEADERS,
        "sep-2243-server-decode-base64": NO_HEADERS,
        "sep-2243-server-validate-param-match": NO_HEADERS,
        "sep-2243-server-reject-invalid-param-chars": NO_HEADERS,
        "sep-2243-server-reject-param-mismatch": NO_HEADERS,
        "sep-2322-list-roots-incomplete": NO_ROOTS,
        "sep-2322-sampling-incomplete": NO_SAMPLING,
        "sep-2322-respect-client-capabilities": NO_SAMPLING,
        "sep-2322-multi-round-r1": ONE_QUESTION,
        "sep-2322-multiple-inputs-incomplete": ONE_QUESTION,
        "sep-2322-non-tool-incomplete": NO_PROMPT_QUESTION,
        "sep-2322-ignore-unexpected-params": NO_STATE,
        "sep-2663-mrtr-synchronous-before-task-creation": NO_QUESTION_BEFORE_A_RUN,
        "sep-2663-server-returns-missing-capability-when-required": TASKS_OPTIONAL,
    },
    "2025-11-25": {
        "logging-set-level": NO_LOGGING,
        "resources-subscribe": NO_SUBSCRIPTION,
        "resources-unsubscribe": NO_SUBSCRIPTION,
        "tools-call-with-logging": NO_LOGGING,
        "tools-call-sampling": NO_SAMPLING,
        "elicitation-sep1034-general": ONE_QUESTION,
        "elicitation-sep1330-general": ONE_QUESTION,
    },
}
IN_BOTH = {
    "json-schema-2020-12-tool-found": OWN_SCHEMA,
    "prompts-get-embedded-resource": NO_MEDIA,
    "prompts-get-with-image": NO_MEDIA,
    "resources-read-binary": NO_MEDIA,
    "tools-call-audio": NO_MEDIA,
    "tools-call-embedded-resource": NO_MEDIA,
    "tools-call-image": NO_MEDIA,
    "tools-call-mixed-content": NO_MEDIA,
}
SHIPPED, FIXTURES = "conformance_server.py", "conformance_fixtures.py"
MIN_PASSED = {
    (SHIPPED, "2026-07-28"): 150,
    (SHIPPED, "2025-11-25"): 47,
    (FIXTURES, "2026-07-28"): 191,
    (FIXTURES, "2025-11-25"): 76,
}

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
def server(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = tmp_path_factory.mktemp("conformance") / "suite.db"
    module = f"tests.interfaces.mcp.{program.removesuffix('.py')}"
    command = [sys.executable, "-m", module, str(port), str(store)]
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
@pytest.mark.parametrize("program", [SHIPPED, FIXTURES], scope="module")
def test_the_official_suite_finds_only_what_we_do_not_offer(
    server: str, program: str, version: str, tmp_path: Path
) -> None:
    assert NODE is not None
    command = [NODE, "--no-warnings", "--import", REGISTER, str(SUITE), "server", "--url", server]
    command += ["--requirements", version, "--output-dir", str(tmp_path)]
    done = subprocess.run(
        command, env={"SUITE_LOADER": LOADER}, capture_output=True, text=True, timeout=300, check=False
    )
    found = [check for path in tmp_path.glob("*/checks.json") for check in json.loads(path.read_text())]
    failed = {
        check["id"]: check.get("errorMessage") for check in found if check["status"] in ("FAILURE", "WARNING")
    }
    expected = set(EXPECTED[version] | IN_BOTH) if program == SHIPPED else set()
    assert len([one for one in found if one["status"] == "SUCCESS"]) >= MIN_PASSED[program, version], (
        done.stdout + done.stderr[-500:]
    )
    assert {name: text for name, text in failed.items() if name not in expected} == {}
    assert sorted(expected - set(failed)) == [], "these checks pass: remove them from the list"
