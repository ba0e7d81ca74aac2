"""A team adopts Timewright, typed on the command line: from a crontab and CronJobs to files in git."""

from __future__ import annotations

from pathlib import Path

from tests.interfaces.terminal import CommandResult, invoke
from tests.operations.harness import OperationsHarness
from timewright.core.moments import MINUTE
from timewright.testing.targets import succeed

JOBS = [
    f"{5 * number % 60} {number % 24} * * * /opt/jobs/report-{number:02} >> /var/log/report.log 2>&1"
    for number in range(45)
]
CRONTAB = "\n".join(
    [
        "# Jobs of the shop",
        "MAILTO=ops@example.com",
        "CRON_TZ=Europe/Berlin",
        "SHELL=/bin/sh",
        "",
        "# Back up the database",
        "30 2 * * * /usr/local/bin/backup --all 2>&1 | logger -t backup",
        "@reboot /usr/local/bin/warm-cache",
        "*/10 * * * * /opt/jobs/poll-orders",
        "0 22 * * 1-5 mail -s '10pm' joe%Joe,%Go home",
        "@daily /opt/jobs/rotate",
        "15 3 1 * * /opt/jobs/month-end",
        "",
        "# Reports",
        *JOBS,
        "# end",
    ]
)
CRONJOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {{name: {name}, namespace: shop}}
spec:
  schedule: "{schedule}"
  timeZone: Europe/Berlin
  concurrencyPolicy: {policy}
  {extra}
  jobTemplate: {{spec: {{template: {{spec: {{containers: [{{name: main, image: "shop/{name}:3"}}]}}}}}}}}
"""
MANIFESTS = "---".join(
    CRONJOB.format(name=name, schedule=schedule, policy=policy, extra=extra)
    for name, schedule, policy, extra in (
        ("import-orders", "*/5 * * * *", "Forbid", "startingDeadlineSeconds: 120"),
        ("cleanup", "@daily", "Replace", "suspend: true"),
        ("invoices", "0 6 1 * *", "Allow", "inventedField: 7"),
    )
)


class Team:
    """Types commands in a folder, on one store."""

    def __init__(self, harness: OperationsHarness) -> None:
        self.harness = harness

    def types(self, line: str, *, code: int = 0) -> CommandResult:
        said = invoke(self.harness, *line.split())
        assert said.code == code, (line, said.out, said.err)
        return said

    def words(self, line: str, *, code: int = 0) -> str:
        return " ".join(self.types(line, code=code).out.split())


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_a_team_moves_a_crontab_and_cronjobs_into_files_and_lives_with_them(here: Path) -> None:
    harness = OperationsHarness()
    team = Team(harness)
    (here / "shop.crontab").write_text(CRONTAB + "\n", encoding="utf-8")
    (here / "jobs.yaml").write_text(MANIFESTS, encoding="utf-8")
    assert len(CRONTAB.splitlines()) == 60

    # Import, and read the report: what is lost has a reason.
    report = team.types("import crontab shop.crontab --out crontab.yaml")
    assert report.lines[-1].startswith("51 schedules: 1 fields lost")
    assert "MAILTO" in report.out
    fields = team.types("import kubernetes jobs.yaml --out cronjobs.yaml -o json").data["fields"]
    lost = {(one["schedule"], one["field"]): one["note"] for one in fields if one["status"] == "lost"}
    assert {("invoices", "spec.inventedField"), ("cleanup", "spec.suspend")} <= set(lost)
    assert all(lost.values())

    # Plan, apply, and nothing is left to do.
    planned = team.types("plan crontab.yaml cronjobs.yaml -o json", code=3).data
    assert [one["change"] for one in planned["changes"]] == ["created"] * 54
    applied = team.types(f"apply crontab.yaml cronjobs.yaml --plan {planned['plan']} -o json").data
    assert len(applied["changes"]) == 54
    team.types("plan crontab.yaml cronjobs.yaml")
    team.types("schedule pause cleanup --reason suspended")

    # A week with an outage: what would be missed is counted, nothing in the store moves.
    week = team.types(
        "simulate crontab.yaml cronjobs.yaml --since 2026-03-09T00:00:00Z --for 7d"
        " --outage 2026-03-10T08:55:00Z/2026-03-10T09:20:00Z -o json"
    ).data
    polls = next(one for one in week["schedules"] if one["schedule"] == "poll-orders")
    assert (polls["runs"], polls["skipped"]) == (7 * 24 * 6 - 1 - 2, {"missed": 2})
    assert team.types("run list -o json").data["runs"] == []

    # One line is edited; the plan shows that change and its consequences, and apply makes it.
    edit(here / "crontab.yaml", "expression: '*/10 * * * *'", "expression: '*/20 * * * *'")
    text = team.words("plan crontab.yaml cronjobs.yaml", code=3)
    assert "poll-orders" in text
    assert "*/10 * * * *" in text
    assert "*/20 * * * *" in text
    changed = team.types("plan crontab.yaml cronjobs.yaml -o json", code=3).data
    (change,) = [one for one in changed["changes"] if one["change"] != "unchanged"]
    assert (change["name"], change["change"]) == ("poll-orders", "updated")
    assert change["next_before"][0] != change["next_after"][0]
    team.types("apply crontab.yaml cronjobs.yaml")
    assert team.types("schedule get cleanup -o json").data["progress"]["state"] == "paused"

    # A run that did not happen says why.
    harness.bench.target.script("import-orders", succeed(after=7 * MINUTE))
    harness.advance(minutes=11)
    told = team.words("explain import-orders --at 12:10", code=0)
    assert "did not run: overlap" in told

    # Export, change something by hand, see the drift, and let the file win.
    exported = team.types("export").out
    (here / "before.yaml").write_text(exported, encoding="utf-8")
    team.types("schedule update poll-orders --grace 5m --reason hotfix")
    drift = team.types("diff crontab.yaml cronjobs.yaml -o json", code=3).data
    assert [(one["name"], one["drift"], one["reason"]) for one in drift["definitions"]] == [
        ("poll-orders", "edited", "hotfix")
    ]
    team.types("apply crontab.yaml cronjobs.yaml")
    team.types("diff crontab.yaml cronjobs.yaml")
    assert team.types("export").out == exported
    assert team.types("schedule get cleanup -o json").data["progress"]["state"] == "paused"
    assert team.types("verify -o json").data["holds"]
