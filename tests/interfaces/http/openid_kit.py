"""An OpenID Connect provider, and a server whose people sign in with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import oidc_provider_mock

CLIENT = "timewright"
ROLES = {"ops": "admin", "dev": "viewer@team-a,team-b"}


@contextmanager
def providing() -> Iterator[str]:
    """Run a provider that knows three people; yield its address."""
    people = [
        oidc_provider_mock.User(sub="ada", claims={"email": "ada@example.com", "groups": ["ops", "dev"]}),
        oidc_provider_mock.User(sub="bob", claims={"groups": ["dev"]}),
        oidc_provider_mock.User(sub="sam", claims={"groups": ["sales"]}),
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


@contextmanager
def serving(folder: Path, issuer: str) -> Iterator[str]:
    """Run `timewright serve` with that provider; yield its address."""
    terms = {"issuer": issuer, "client_id": CLIENT, "client_secret": "env:OIDC_SECRET", "roles": ROLES}
    command = [sys.executable, "-m", "timewright", "serve", "--port", "0", "--store", "t.db", "--log", "off"]
    command += ["--oidc", json.dumps(terms)]
    environment = {"OIDC_SECRET": "s3cret", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "/?key=" in line:
                break
        found = re.search(r"(http://[^/]+)/\?key=", "".join(lines))
        assert found, lines
        try:
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)
