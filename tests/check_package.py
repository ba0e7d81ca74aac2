"""`dev.py package`: builds wheel and sdist, looks into them, installs the wheel anew, and uses it."""

from __future__ import annotations

import http.cookiejar
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.project import GUIDE_BLOCK, ROOT, SOURCE

MAX_OTHERS = 20
WAIT_S = 60.0
BESIDE = {"pip", "setuptools", "wheel", "timewright"}


def main() -> int:
    """Run all steps; an assertion that fails ends it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
        (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
        check_contents(wheel, sdist)
        venv.create(folder / "env", with_pip=True)
        programs = folder / "env/bin"
        run(programs / "pip", "install", "--quiet", wheel)
        check_dependencies(programs)
        (folder / "use").mkdir()
        check_readme(programs, folder / "use")
        check_dashboard(programs, folder / "use")
        if run_quietly(sys.executable, "-m", "uv", "--version"):
            done = run(sys.executable, "-m", "uv", "tool", "run", "--from", wheel, "timewright", "--version")
            say(f"uvx from the wheel: {done.strip()}")
        else:
            say("uvx was not tried: uv is not installed (dev.py lock installs it)")
    return 0


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel has every file of the package and nothing else; the sdist has what its tests need."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"timewright-{version}.dist-info/METADATA").decode()
    own = {
        f"timewright/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert own <= names, sorted(own - names)
    others = {name for name in names - own if not name.startswith(("timewright/pages/", "timewright-"))}
    assert not others, others
    assert f"\nVersion: {version}\n" in metadata
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "pyproject.toml", "README.md", "dev.py", "constraints.txt"} <= inside
    assert not [name for name in inside if ".venv" in name or name.endswith(".db")]
    size = wheel.stat().st_size / 1e6
    say(f"wheel {version}: {len(names)} files, {size:.1f} MB; sdist: {len(inside)} files")


def check_dependencies(programs: Path) -> None:
    listed = run(programs / "pip", "list", "--format", "freeze").splitlines()
    others = [line for line in listed if line.partition("==")[0].lower() not in BESIDE]
    assert len(others) <= MAX_OTHERS, others
    run(programs / "pip", "check")
    say(f"{len(others)} distributions beside timewright itself")


def check_readme(programs: Path, folder: Path) -> None:
    """The example of the README runs."""
    for _, title, text in GUIDE_BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
    process = subprocess.Popen([programs / "python", "jobs.py"], cwd=folder)
    try:
        listing = (programs / "timewright", "run", "list", "--state", "succeeded")
        wait(lambda: "refresh" in run(*listing, folder=folder, check=False))
    finally:
        process.terminate()
        process.wait(WAIT_S)
    say("the example of the README ran")


def check_dashboard(programs: Path, folder: Path) -> None:
    """`timewright up` starts, and its link opens the dashboard."""
    process = subprocess.Popen(
        [programs / "timewright", "up", "--app", "jobs", "--port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        link = next(found[0] for line in lines if (found := re.search(r"http://\S+\?key=\S+", line)))
        next(line for line in lines if line.startswith("ready in"))
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        page = urllib.request.build_opener(cookies).open(link, timeout=WAIT_S).read().decode()
        assert '<div id="app">' in page, page[:500]
    finally:
        process.terminate()
        process.wait(WAIT_S)
    say("timewright up started, and its link opened the dashboard")


def run(*command: str | Path, folder: Path | None = None, check: bool = True) -> str:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("TIMEWRIGHT_")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=inherited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not check, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_quietly(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def wait(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.2)


def say(line: str) -> None:
    sys.stdout.write(f"package: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
