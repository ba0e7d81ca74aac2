"""`timewright import`: the file, the report, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.imports.import_samples import SAMPLES, SOURCES
from tests.interfaces.terminal import invoke
from timewright.core.definitions import read_definitions

CRONTAB = "MAILTO=ops@example.com\n30 2 * * * /usr/bin/backup | logger\n"


def write(tmp_path: Path, text: str) -> str:
    source = tmp_path / "my.crontab"
    source.write_text(text)
    return str(source)


def test_import_writes_a_definition_file_and_prints_what_was_lost(tmp_path: Path) -> None:
    out = tmp_path / "fleet.yaml"
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB), "--out", str(out))
    assert done.code == 0, done.err
    file = read_definitions(out.read_text(), name="fleet.yaml")
    assert [(one.name, one.fields["trigger"]["zone"]) for one in file.definitions] == [("backup", "UTC")]
    assert any(line.startswith("lost") and "MAILTO" in line for line in done.lines)
    assert "1 schedules: 1 fields lost" in done.lines[-1]
    assert f"timewright plan {out}" in done.err


@pytest.mark.parametrize("which", SOURCES)
def test_an_imported_file_can_be_applied(tmp_path: Path, which: str) -> None:
    source, names = SOURCES[which]
    out = str(tmp_path / "fleet.yaml")
    files = [str(SAMPLES / name) for name in names]
    assert invoke(None, "import", source, *files, "--out", out, "--repository", "a/b").code == 0
    done = invoke(None, "plan", out, "--store", str(tmp_path / "none.db"))
    assert (done.code, "error" in done.err) == (3, False)


def test_import_prints_the_definitions_and_reports_beside_them(tmp_path: Path) -> None:
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB), "--zone", "Asia/Tokyo")
    assert "zone: Asia/Tokyo" in done.out
    assert "MAILTO" not in done.out
    assert "MAILTO" in done.err


def test_import_answers_json_with_every_field(tmp_path: Path) -> None:
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB), "-o", "json")
    assert (done.data["schedules"], done.data["lost"]) == (1, 1)
    assert {row["status"] for row in done.data["fields"]} == {"kept", "translated", "lost"}


def test_garbage_gets_one_error_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "fleet.yaml"
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB + "what?\n"), "--out", str(out))
    assert done.code == 1
    assert "my.crontab:3" in done.err
    assert not out.exists()


def test_nothing_is_written_if_no_schedule_can_be_imported(tmp_path: Path) -> None:
    out = tmp_path / "fleet.yaml"
    done = invoke(None, "import", "crontab", write(tmp_path, "0 0 31 2 * /bin/never\n"), "--out", str(out))
    assert done.code == 1
    assert "never fires" in done.out
    assert not out.exists()


def test_a_reason_is_never_cut_at_80_columns(tmp_path: Path) -> None:
    out = str(tmp_path / "a.yaml")
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB), "--out", out, width=80)
    assert max(map(len, done.lines)) <= 80
    assert "Timewright sends no mail for output; it is kept with each run" in " ".join(done.out.split())


def test_import_does_not_overwrite_a_file(tmp_path: Path) -> None:
    out = tmp_path / "fleet.yaml"
    out.write_text("mine")
    done = invoke(None, "import", "crontab", write(tmp_path, CRONTAB), "--out", str(out))
    assert done.code == 1
    assert out.read_text() == "mine"


def test_the_export_script_for_apscheduler_is_printed_whole() -> None:
    done = invoke(None, "import", "apscheduler", "--script")
    compile(done.out, "apscheduler_export.py", "exec")
    assert "import timewright" not in done.out
