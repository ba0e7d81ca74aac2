#!/usr/bin/env python3
"""Every development command, with only Python 3.11 and pip.

    python3 dev.py            list the commands
    python3 dev.py up         install and start Timewright
    python3 dev.py test       install the test tools, check, and run all tests

The first call creates `.venv` beside this file. Later calls install again only when `pyproject.toml` or
`constraints.txt` has changed. It uses only the standard library, because it runs before anything is
installed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

OLDEST = (3, 11)  # an older Python can still parse this file and print the error
ROOT = Path(__file__).resolve().parent
VENV = ROOT / os.environ.get("DEV_VENV", ".venv")
STAMP = VENV / "timewright-install.json"
CONSTRAINTS = ROOT / "constraints.txt"
WINDOWS = os.name == "nt"

# Modules of the long-running commands.
LONG_COMMANDS = {
    "simulate": "tests.simulation",
    "faults": "tests.faults",
    "soak": "benchmarks.soak",
}
# What checks the dashboard's scripts and the MCP server; nothing of it is shipped.
NODE_TOOLS = (
    "typescript@7.0.2",
    "prettier@3.10.1",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
)
NODE_PROGRAMS = ("tsc", "prettier", "conformance", "mcp-inspector")
MISSING_NODE = "the dashboard's scripts, the MCP conformance suite and Inspector (no npm: apt install npm)"
SCRIPTS = "src/timewright/interfaces/dashboard"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
RESOLVE = ["pip", "compile", "--universal", "--python-version", "3.11", "--all-extras", "--quiet"]
NAMES_ONLY = ["--no-emit-index-url", "--no-header", "--no-annotate"]


class Refused(Exception):
    """An error that the user must fix first."""


def up(arguments: list[str]) -> int:
    """Install Timewright and start it: `timewright up` with the given arguments."""
    prepare()
    return replace_process(tool("timewright"), "up", *arguments)


def test(arguments: list[str]) -> int:
    """Check, then run the tests; --full adds the long ones, other arguments go to pytest."""
    has_browser = find_browser()
    prepare("test", *(["browser"] if has_browser else []))
    failed = run_checks()
    if failed:
        return failed
    # Hundreds of tests start Timewright as a process; without bytecode each would compile the whole package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if "--full" in arguments:
        environment["TIMEWRIGHT_FULL"] = "1"
    chosen = [argument for argument in arguments if argument != "--full"]
    # One worker more than cores, because many tests wait for a server or another process.
    shared = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal"]
    workers = [] if any(sets_workers(argument) for argument in chosen) else shared
    node_tools = find_node_tools()
    say("pytest")
    code = call(python(), "-m", "pytest", *workers, *chosen, environment=environment)
    missing = [] if has_browser else ["the dashboard tests (no Chromium: apt install chromium)"]
    if not any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        missing.append("clocks of real processes (no libfaketime: apt install libfaketime)")
    if not Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        missing.append("RabbitMQ (apt install rabbitmq-server)")
    if not node_tools:
        missing.append(MISSING_NODE)
    say(f"not run for want of a tool: {', '.join(missing) or 'nothing'}")
    return code


def pythons(arguments: list[str]) -> int:
    """Run `test` on every installed Python from 3.11 to 3.14, each in its own environment."""
    found = [name for name in (f"python3.{minor}" for minor in range(11, 15)) if shutil.which(name)]
    say(f"found {', '.join(found) or 'none'}")
    codes = {}
    for name in found:
        environment = {**os.environ, "DEV_VENV": f".venv-{name.removeprefix('python')}"}
        codes[name] = call(name, str(ROOT / "dev.py"), "test", *arguments, environment=environment)
    for name, code in codes.items():
        say(f"{name:<11} {'ok' if code == 0 else f'FAILED ({code})'}")
    return max(codes.values(), default=1)


def check(arguments: list[str]) -> int:
    """Check format, lint, types and import contracts, and the dashboard's scripts if npm is installed."""
    refuse_arguments(arguments, command="check")
    prepare("test")
    code = run_checks()
    say(f"not run for want of a tool: {'nothing' if find_node_tools() else MISSING_NODE}")
    return code


def bench(arguments: list[str]) -> int:
    """Run one benchmark by name, compared with other libraries; without a name, list them."""
    prepare("test", "bench")
    return call(python(), "-m", "benchmarks", *arguments)


def docs(arguments: list[str]) -> int:
    """Write the reference and build the pages into site/; `docs serve` previews them."""
    prepare("docs")
    failed = call(python(), "-m", "docs.generate")
    return failed or call(tool("zensical"), *(arguments or ["build", "--clean"]))


def screens(arguments: list[str]) -> int:
    """Take the dashboard's screenshots again, for docs/screens."""
    refuse_arguments(arguments, command="screens")
    if not find_browser():
        return 1
    prepare("test", "browser")
    return call(python(), "-m", "docs.screens")


def simulate(arguments: list[str]) -> int:
    """Run the seeded simulation: many instances with crashes, clock steps and lost connections."""
    return run_long_command("simulate", arguments)


def faults(arguments: list[str]) -> int:
    """Run the fault scenarios: break the store, the disk and the network, and check the result."""
    return run_long_command("faults", arguments)


def soak(arguments: list[str]) -> int:
    """Run under load for a long time and watch memory, open files and delays."""
    return run_long_command("soak", arguments)


def package(arguments: list[str]) -> int:
    """Build wheel and sdist, install the wheel into a new environment, and use it."""
    refuse_arguments(arguments, command="package")
    prepare("test", "lock")
    return call(python(), "-m", "tests.check_package")


def lock(arguments: list[str]) -> int:
    """Write constraints.txt again; --upgrade takes the newest versions."""
    prepare("lock")
    say("resolving every extra")
    failed = call(tool("uv"), *RESOLVE, *NAMES_ONLY, *arguments, "pyproject.toml", "-o", "constraints.txt")
    if not failed:
        tidy_constraints()
    return failed


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "up": up,
    "test": test,
    "pythons": pythons,
    "check": check,
    "bench": bench,
    "docs": docs,
    "screens": screens,
    "simulate": simulate,
    "faults": faults,
    "soak": soak,
    "package": package,
    "lock": lock,
}


def prepare(*extras: str) -> None:
    """Make sure that `.venv` has Timewright and these extras; do nothing if it already has."""
    current = fingerprint()
    known = read_stamp()
    is_current = known.get("sources") == current
    installed = set(known.get("extras", ())) if is_current else set()
    if is_current and python().is_file() and installed.issuperset(extras):
        return
    make_venv()
    wanted = sorted(installed.union(extras))
    install(wanted)
    STAMP.write_text(json.dumps({"sources": current, "extras": wanted}) + "\n", encoding="utf-8")


def fingerprint() -> str:
    """Hash what an install depends on: the two files, and the folder, which an editable install remembers."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(b"\0" + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def read_stamp() -> dict[str, list[str] | str]:
    try:
        known = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def make_venv() -> None:
    """Create `.venv`, without pip if this Python has no ensurepip."""
    if python().is_file():
        refuse_old_venv()
        return
    say(f"creating .venv with Python {'.'.join(map(str, sys.version_info[:3]))}")
    if run_quietly(sys.executable, "-m", "venv", "--clear", str(VENV)):
        return
    say("this Python has no ensurepip: creating .venv without pip")
    shutil.rmtree(VENV, ignore_errors=True)
    if call(sys.executable, "-m", "venv", "--without-pip", str(VENV)):
        raise Refused(
            "cannot create .venv with this Python.\n"
            "  try     install the venv module (Debian, Ubuntu: apt install python3-venv)"
        )


def refuse_old_venv() -> None:
    settings = VENV / "pyvenv.cfg"
    text = settings.read_text(encoding="utf-8") if settings.is_file() else ""
    found = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", text, re.MULTILINE)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise Refused(
            f".venv was created with Python {found[1]}.{found[2]}; Timewright needs 3.11 or newer.\n"
            "  try     remove .venv and run this again"
        )


def install(extras: Sequence[str]) -> None:
    name = f".[{','.join(extras)}]" if extras else "."
    say(f"installing timewright{name[1:]}")
    started = time.monotonic()
    STAMP.unlink(missing_ok=True)
    pinned = ["-c", str(CONSTRAINTS)] if CONSTRAINTS.is_file() else []
    if run_with_progress([*pip(), "install", "--no-input", "-e", name, *pinned]):
        raise Refused("the install failed; see pip's output above.")
    say(f"installed in {time.monotonic() - started:.0f} s")


def run_with_progress(command: list[str]) -> int:
    """Run pip and show what it is doing; print its whole output only if it fails."""
    lines: list[str] = []
    packages = 0
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=pip_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Collecting "):
                packages += 1
                show_progress(f"package {packages}: {re.split('[^A-Za-z0-9_.-]', line.split()[1])[0]}")
            elif line.startswith("Installing collected packages"):
                show_progress(f"writing {line.count(',') + 1} packages", is_phase=True)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)
    if process.returncode:
        print("".join(lines), end="", flush=True)
    return process.returncode


def show_progress(text: str, *, is_phase: bool = False) -> None:
    """Show one line that changes on a terminal; elsewhere, one line for each phase."""
    if sys.stdout.isatty():
        print(f"\r\x1b[Kdev: {text[:70]}", end="", flush=True)
    elif is_phase:
        say(text)


def find_browser() -> bool:
    """Return whether there is a Chromium for the dashboard's tests; as root on Debian, install one."""
    if any(map(shutil.which, BROWSERS)):
        return True
    if shutil.which("apt-get") and not WINDOWS and os.geteuid() == 0:
        say("installing Debian's chromium for the dashboard's tests")
        quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        if not run_quietly(*quiet, "install", "--yes", "--no-install-recommends", "chromium"):
            run_quietly(*quiet, "update")
            run_quietly(*quiet, "install", "--yes", "--no-install-recommends", "chromium")
        if any(map(shutil.which, BROWSERS)):
            return True
    say("THE DASHBOARD IS NOT TESTED: no Chromium was found.")
    say("  to test it: apt install chromium (Debian, Ubuntu), then python3 dev.py test")
    return False


def find_node_tools() -> Path | None:
    """Return the folder of the checkers in Node; install them once if there is npm."""
    folder = VENV / "node"
    programs = folder / "node_modules" / ".bin"
    npm = shutil.which("npm")
    is_complete = all((programs / name).exists() for name in NODE_PROGRAMS)
    if not is_complete and npm is not None:
        say("installing the checkers of the dashboard's scripts and of the MCP server")
        folder.mkdir(parents=True, exist_ok=True)
        quick = ["--silent", "--no-save", "--fetch-retries=0", "--fetch-timeout=30000"]
        run_quietly(npm, "install", *quick, "--prefix", str(folder), *NODE_TOOLS)
    return programs if all((programs / name).exists() for name in NODE_PROGRAMS) else None


def pip() -> list[str]:
    """The pip inside `.venv`, or else this Python's pip with --python, which pip has since 22.3."""
    if run_quietly(str(python()), "-m", "pip", "--version"):
        return [str(python()), "-m", "pip"]
    ours = [sys.executable, "-m", "pip"]
    output = subprocess.run([*ours, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"pip (\d+)\.(\d+)", output)
    if found is None or (int(found[1]), int(found[2])) < (22, 3):
        have = f"pip {found[1]}.{found[2]}" if found else "no pip"
        raise Refused(
            f".venv has no pip, and this Python has {have}; pip 22.3 or newer is needed.\n"
            "  try     python3 -m pip install --upgrade pip\n"
            "  or      apt install python3-venv python3-pip (Debian, Ubuntu)"
        )
    return [*ours, "--python", str(python())]


def pip_environment() -> dict[str, str]:
    # `user = true` in the user's pip settings would make every install into an environment fail.
    return {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def python() -> Path:
    return VENV / ("Scripts/python.exe" if WINDOWS else "bin/python")


def tool(name: str) -> Path:
    return python().with_name(name + (".exe" if WINDOWS else ""))


def run_checks() -> int:
    """Run the checks, one line each; show only the output of failures, return the worst exit code."""
    steps: dict[str, list[str | Path]] = {
        "format": [python(), "-m", "ruff", "format", "--check", "."],
        "lint": [python(), "-m", "ruff", "check", "."],
        "types": [python(), "-m", "mypy"],
        "imports": [tool("lint-imports"), "--no-logo"],
    }
    node = find_node_tools()
    if node is not None:
        steps["scripts"] = [node / "tsc", "--project", "jsconfig.json"]
        steps["script format"] = [
            node / "prettier",
            "--print-width",
            "110",
            "--check",
            f"{SCRIPTS}/**/*.{{js,css}}",
        ]
    return max(run_check(name, command) for name, command in steps.items())


def run_check(name: str, command: Sequence[str | Path]) -> int:
    started = time.monotonic()
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, end="", flush=True)
    say(f"{name:<13} {'FAILED' if done.returncode else 'ok'}  {time.monotonic() - started:.1f} s")
    return abs(done.returncode)


def run_long_command(name: str, arguments: list[str]) -> int:
    module = LONG_COMMANDS[name]
    place = ROOT.joinpath(*(["src"] if module.startswith("timewright.") else []), *module.split("."))
    if not (place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()):
        raise Refused(f"`{name}` needs a checkout: there is no module {module}.")
    prepare("test")
    return call(python(), "-m", module, *arguments)


def sets_workers(argument: str) -> bool:
    return argument.startswith(("-n", "--numprocesses", "--pdb")) or "no:xdist" in argument


def tidy_constraints() -> None:
    """Keep names and versions only, because an index URL would tie the file to one index."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith(("#", "-")) and "://" not in line]
    head = "# Written by `python3 dev.py lock`: one tested version of every package, for every extra."
    CONSTRAINTS.write_text("\n".join([head, *kept]) + "\n", encoding="utf-8")
    say(f"constraints.txt: {len(kept)} packages, {len(lines) - len(kept)} other lines removed")


def refuse_arguments(arguments: list[str], *, command: str) -> None:
    if arguments:
        raise Refused(f"`{command}` takes no arguments, but got {' '.join(arguments)}.")


def run_quietly(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def call(*command: str | Path, environment: dict[str, str] | None = None) -> int:
    """Run a command in the project folder with its own output; return its exit code."""
    code = subprocess.call(list(map(str, command)), cwd=ROOT, env=environment)
    return code if code >= 0 else 128 - code


def replace_process(program: Path, *arguments: str) -> int:
    """Replace this process, so that signals reach the program itself; keep the caller's folder."""
    command = [str(program), *arguments]
    if not WINDOWS:
        os.execv(command[0], command)  # noqa: S606 - run without a shell on purpose
    return subprocess.call(command)


def say(line: str) -> None:
    print(f"dev: {line}", flush=True)


def usage() -> str:
    rows = (f"  {name:<10}{(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items())
    return "\n".join(["usage: python3 dev.py COMMAND [arguments]", "", *rows])


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST:
        raise Refused(
            f"Timewright needs Python 3.11 or newer; this is {'.'.join(map(str, sys.version_info[:2]))}.\n"
            "  try     a newer Python: python3.12 dev.py"
        )
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"\n  try     python3 dev.py {near[0]}" if near else ""
        raise Refused(f"unknown command `{name}`; the commands are {', '.join(COMMANDS)}.{hint}")
    return COMMANDS[name](rest)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refusal:
        print(f"dev.py: {refusal}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
