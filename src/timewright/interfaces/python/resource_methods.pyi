# fmt: off
# ruff: noqa: A002, E501, I001, PYI021 - one method a line, its summary below it
"""The methods of every resource, for editors and type checkers. Written by docs/verbs.py."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypedDict

from timewright.core.alerts.incidents import Incident
from timewright.ledger.records.analyses import Analysis
from timewright.operations.access.audit import AuditEntryList, AuditVerification
from timewright.operations.access.authentication import SessionList
from timewright.operations.access.keys import CreatedKey, KeyDetail, KeyList
from timewright.operations.access.namespaces import NamespaceDetail, NamespaceList
from timewright.operations.access.secrets import RotatedSecrets, SecretDetail, SecretList
from timewright.operations.alerts.channels import ChannelDetail, ChannelList, ChannelTest, DeletedChannel
from timewright.operations.alerts.incidents import AlertRulesDetail, IncidentList
from timewright.operations.alerts.pings import DeletedPings, PingAddress, PingList, PingResult
from timewright.operations.budgets.budgets import BudgetDetail, BudgetList, BudgetSummary, BudgetUsageReport, DeletedBudget, ProviderList, ProviderSummary
from timewright.operations.calendars.calendars import CalendarDetail, CalendarList, DeletedCalendar, RefreshedCalendar
from timewright.operations.definitions.programs import PutManyResult
from timewright.operations.explain.explain import Explanation
from timewright.operations.health.doctor import InstanceList
from timewright.operations.health.overview import Grid, RecentOutcomes
from timewright.operations.health.pauses import ClockAnswer, PauseState
from timewright.operations.hints.analyses import AnalysisList, DueAnalysisList
from timewright.operations.hints.hints import HintStatus
from timewright.operations.queues.lease_results import RenewedLease, ReportedRun
from timewright.operations.queues.leases import DrainResult, LeasedEntries, PurgedQueue, ReclaimedRuns
from timewright.operations.queues.limits import DeletedLimit, LimitDetail, LimitList, LimitSummary
from timewright.operations.queues.policies import ImportedQueue, PolicyDifferenceList, QueuePolicyDetail
from timewright.operations.queues.queues import AddedEntries, QueueDetail, QueueList, QueuePlan
from timewright.operations.runs.failures import FailureCauses, RetriedFailures, RunCountSeries
from timewright.operations.runs.logs import RunArtifacts, RunLogs
from timewright.operations.runs.runs import RunList, Trends
from timewright.operations.schedules.approvals import ApprovalList
from timewright.operations.schedules.backfills import BackfillList, BackfillResult, BackfillSummary
from timewright.operations.schedules.manual_runs import MovedOccurrence, NewRuns, TargetTestResult
from timewright.operations.schedules.notes import WrittenNote
from timewright.operations.schedules.pause_archive import GroupList, RevisionList, ScheduleStateValue
from timewright.operations.schedules.queries import NextOccurrences, ScheduleHealth, ScheduleList
from timewright.operations.schedules.reminders import CancelledReminder, Reminder, ReminderList, SnoozedReminder
from timewright.operations.schedules.upcoming import ScheduleFeed, Upcoming
from timewright.operations.schedules.writes import PutScheduleResult
from timewright.operations.views import RunDetail, ScheduleDetail
from timewright.operations.workflows.waits import AnswerLink, SignalResult
from timewright.operations.workflows.workflow_runs import WorkflowDrawing
from timewright.operations.workflows.workflows import DeletedWorkflow, DeployedWorkflow, WorkflowDetail, WorkflowList

class ScheduleFields(TypedDict, total=False):
    """The fields of `@app.schedule`."""

    args: Mapping[str, Any]
    reason: str
    every: timedelta | str
    cron: str
    rrule: str
    zone: str | tzinfo
    after: timedelta | str | Mapping[str, Any]
    on: str
    delay: timedelta | str
    once: datetime | str
    at: datetime | str
    manual: bool | Mapping[str, Any]
    anchor: datetime | str
    dst: str
    note: str
    http: str | Mapping[str, Any]
    method: str
    headers: Mapping[str, str]
    body: Any
    http_timeout: timedelta | str
    call: str | Mapping[str, Any]
    shell: Sequence[str] | Mapping[str, Any]
    workflow: str | Mapping[str, Any]
    handoff: Any
    publish: str | Mapping[str, Any]
    max_attempts: int
    backoff: Any
    time_limit: timedelta | str | None
    group: str | None
    description: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    preset: str | None
    target: Any
    check: Any
    start_at: datetime | str | None
    end_at: datetime | str | None
    max_runs: int | None
    run_at_start: bool
    calendar: Any
    needs: Sequence[Any]
    align: str
    catch_up: str
    catch_up_limit: int
    catch_up_window: timedelta | str | None
    grace: timedelta | str
    spread_over: timedelta | str
    overlap: str
    max_running: int | None
    queue_limit: int
    jitter: timedelta | str
    jitter_side: str
    offset: str
    retry: Any
    cadence: Any
    disable_after: int | None
    delivery: str
    lease: Any
    deadline: timedelta | str | None
    queue: str | None
    limits: Sequence[Any]
    runs_on: Sequence[str]
    budgets: Sequence[str]
    provider: str | None
    estimate: Any
    priority: int | str
    adaptive: bool
    clamp: Any
    alerts: Any
    expect: Any
    check_in: Any
    rules: Sequence[Any]
    succeed_if: str
    exit_codes: Mapping[str, Any]
    empty: str
    watch: Any
    keep_state: bool

class Alerts:
    def get(self, *, group: str = ..., installation: bool = ...) -> AlertRulesDetail:
        """Show the thresholds at which incidents open."""
    def set(self, *, reason: str = ..., dry_run: bool = ..., group: str = ..., installation: bool = ..., check_in: str | None = ..., enabled: bool | None = ..., failed: int | None = ..., missed: int | None = ..., parked: bool | None = ..., late: timedelta | str | None = ..., no_instance: timedelta | str | None = ..., queue_age: timedelta | str | None = ..., over_budget: bool | None = ..., instance_gone: timedelta | str | None = ..., clock: timedelta | str | None = ..., store_free_mb: int | None = ..., key_expires: timedelta | str | None = ..., repeat: timedelta | str | None = ..., calm: timedelta | str | None = ...) -> AlertRulesDetail:
        """Set thresholds for a group, the namespace or the installation; a schedule has its own in `alerts`."""

class Analyses:
    def due(self, *, limit: int = ..., cursor: str = ...) -> DueAnalysisList:
        """List the adaptive schedules that are due: never analysed, look_again_at reached, or more failures."""
    def get(self, analysis: str) -> Analysis:
        """Show one analysis with every tool call, its arguments and result, and what was rejected."""
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ...) -> AnalysisList:
        """List the planner's analyses, newest first; the last twenty of each schedule are kept."""
    def submit(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., advisor: str, reasoning: str, model: str = ..., tools: Sequence[Any] = ..., proposals: Sequence[str] = ..., confidence: str = ..., tokens: int = ..., cost: float = ..., took: timedelta | str = ..., warnings: Sequence[str] = ..., look_again_in: timedelta | str | None = ...) -> Analysis:
        """Store the result of an analysis and when to analyse the schedule again."""

class Approvals:
    def approve(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Approve a schedule, so that it starts; agents cannot approve."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> ApprovalList:
        """List what waits for a person: schedules and workflow versions of agents, and steps that ask."""
    def reject(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Reject a schedule: it is archived with the reason; agents cannot reject."""

class Audit:
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., subject: str = ..., actor: str = ..., origin: str = ..., action: str = ..., since: datetime | str | None = ..., until: datetime | str | None = ...) -> AuditEntryList:
        """List audit entries, newest first."""
    def verify(self) -> AuditVerification:
        """Check the hash chain of the audit log, from the first entry to the last."""

class Backfills:
    def cancel(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Cancel a backfill and its runs that have not started."""
    def get(self, backfill: str) -> BackfillSummary:
        """Show one backfill with its progress."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> BackfillList:
        """List backfills, newest first, with their progress."""
    def pause(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Pause a backfill: it hands out no more runs; those it handed out still run."""
    def resume(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Resume a paused backfill."""

class Budgets:
    def delete(self, budget: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedBudget:
        """Remove a budget that no schedule names; runs that waited for it may start."""
    def get(self, budget: str) -> BudgetDetail:
        """Show a budget: how much is left, which schedules name it and how many runs wait for it."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> BudgetList:
        """List the budgets and how much is left of each."""
    def set(self, budget: str, *, reason: str = ..., dry_run: bool = ..., unit: str, limit: str | float, period: str = ..., zone: str = ..., currency: str = ..., owner: str = ..., host: str = ..., function: str = ..., queue: str = ..., provider: str = ...) -> BudgetSummary:
        """Set how much may be spent per period; runs that wait for it are checked again at once."""
    def usage(self, budget: str, *, periods: int = ...) -> BudgetUsageReport:
        """Show the usage of a budget per period, newest first."""

class Calendars:
    def delete(self, calendar: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedCalendar:
        """Remove a calendar that no schedule uses."""
    def get(self, calendar: str) -> CalendarDetail:
        """Show a calendar and the schedules that use it."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> CalendarList:
        """List the calendars of the namespace."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., holidays: str = ..., subdivision: str = ..., years: str = ..., ical: str = ..., zone: str = ..., dates: Sequence[Any] = ..., yearly: Sequence[str] = ..., ranges: Sequence[Any] = ..., weekly: Sequence[Any] = ..., spans: Sequence[Any] = ..., names: Mapping[str, Any] = ..., source: Any = ...) -> CalendarDetail:
        """Create a calendar or replace it completely; schedules that use it apply it at their next decision."""
    def refresh(self, calendar: str, *, reason: str = ..., dry_run: bool = ..., years: str = ...) -> RefreshedCalendar:
        """Reload the holidays of a calendar; a new revision is written only if they changed."""

class Channels:
    def create(self, channel: str, *, reason: str = ..., dry_run: bool = ..., to: Any, sign_with: str | None = ..., events: Sequence[str] = ..., kinds: Sequence[str] = ..., severities: Sequence[str] = ..., schedules: Sequence[str] = ..., groups: Sequence[str] = ..., link: str = ...) -> ChannelDetail:
        """Create or replace a channel; it gets what happens from now on."""
    def delete(self, channel: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedChannel:
        """Delete a channel; messages that wait are cancelled."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> ChannelList:
        """List the channels with the number of messages that wait or failed."""
    def test(self, channel: str, *, reason: str = ..., dry_run: bool = ...) -> ChannelTest:
        """Send a test message through a channel; it is delivered like every other."""

class Clock:
    def accept(self, *, reason: str = ..., dry_run: bool = ...) -> ClockAnswer:
        """Accept the time that the store's clock shows now, after it stepped by more than a day."""

class Groups:
    def list(self, *, limit: int = ..., cursor: str = ...) -> GroupList:
        """List the groups that schedules belong to."""
    def pause(self, group: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> PauseState:
        """Pause a group; occurrences that come due are skipped, as those of a paused schedule. See `pause`."""
    def resume(self, group: str, *, reason: str = ..., dry_run: bool = ...) -> PauseState:
        """End the pauses of a group; its schedules that are paused or parked on their own stay so."""

class Hints:
    def clear(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> HintStatus:
        """Remove all hints; the next occurrence is decided again without them."""
    def interval(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., interval: timedelta | str, ttl: timedelta | str = ...) -> HintStatus:
        """Request another interval until the hint expires; it may bring the next run forward, not delay it."""
    def list(self, schedule: str) -> HintStatus:
        """Show the active hints, and when the schedule would run without them."""
    def once(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., after: timedelta | str | None = ..., ttl: timedelta | str = ...) -> HintStatus:
        """Request one run at an instant; that run consumes the hint."""
    def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> HintStatus:
        """Request a pause until an instant, at most one hour ahead; for longer, use schedule pause."""

class Incidents:
    def acknowledge(self, incident: str, *, reason: str = ..., dry_run: bool = ...) -> Incident:
        """Say that you take care of an incident: it is not repeated; its end is still told."""
    def get(self, incident: str) -> Incident:
        """Show an incident."""
    def list(self, *, limit: int = ..., cursor: str = ..., closed: bool = ...) -> IncidentList:
        """List incidents, newest first: what is wrong, since when, and what would help."""
    def snooze(self, incident: str, *, reason: str = ..., dry_run: bool = ..., length: timedelta | str = ...) -> Incident:
        """Repeat an incident no earlier than after a while."""

class Instances:
    def list(self) -> InstanceList:
        """List the instances with their load and the time of their last heartbeat."""

class Keys:
    def create(self, key: str, *, reason: str = ..., dry_run: bool = ..., role: str | None = ..., scopes: Sequence[str] = ..., within: Sequence[str] = ..., origin: str = ..., expires_in: timedelta | str = ..., zone: str = ...) -> CreatedKey:
        """Create a key; its token is shown once, and only a keyed hash of it is stored."""
    def get(self, key: str) -> KeyDetail:
        """Show a key: its permissions, when it expires and when it was last used."""
    def list(self, *, limit: int = ..., cursor: str = ..., all: bool = ...) -> KeyList:
        """List the keys with access to this namespace."""
    def revoke(self, key: str, *, reason: str = ..., dry_run: bool = ...) -> KeyDetail:
        """Revoke a key at once and for good; it stays in the list of all keys."""
    def rotate(self, key: str, *, reason: str = ..., dry_run: bool = ..., overlap: timedelta | str = ..., expires_in: timedelta | str = ...) -> CreatedKey:
        """Replace a key by a new one with the same permissions; the old one is valid until the overlap ends."""

class Limits:
    def delete(self, limit: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedLimit:
        """Delete a named limit; runs that still name it start one at a time."""
    def get(self, limit: str) -> LimitDetail:
        """Show a named limit, and how much of it each value of its key uses."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> LimitList:
        """List the named limits and how much of each is used."""
    def set(self, limit: str, *, reason: str = ..., dry_run: bool = ..., max_running: int | None = ..., key: str = ..., rate: str = ..., weights: Mapping[str, Any] = ...) -> LimitSummary:
        """Set what a named limit allows, effective at once."""

class Namespaces:
    def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: str = ..., zone: str = ..., schedules: int = ..., shortest_interval: timedelta | str = ..., emissions_per_minute: int = ..., triggers_per_minute: int = ..., requests_per_minute: int = ..., backlog: int = ..., body_bytes: int = ..., agent_shortest_interval: timedelta | str = ..., agent_emissions_per_minute: int = ..., agent_approval: bool = ..., agent_longest_life: timedelta | str | None = ..., agent_longest_hint: timedelta | str = ..., advisor_tokens_per_month: int = ...) -> NamespaceDetail:
        """Create a namespace with its own quotas."""
    def get(self, name: str = ...) -> NamespaceDetail:
        """Show the quotas of a namespace and how much of them is used."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> NamespaceList:
        """List the namespaces that the caller may access."""
    def set(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: str = ..., zone: str = ..., schedules: int = ..., shortest_interval: timedelta | str = ..., emissions_per_minute: int = ..., triggers_per_minute: int = ..., requests_per_minute: int = ..., backlog: int = ..., body_bytes: int = ..., agent_shortest_interval: timedelta | str = ..., agent_emissions_per_minute: int = ..., agent_approval: bool = ..., agent_longest_life: timedelta | str | None = ..., agent_longest_hint: timedelta | str = ..., advisor_tokens_per_month: int = ...) -> NamespaceDetail:
        """Change the quotas of a namespace, effective at once."""

class Pings:
    def create(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> PingAddress:
        """Make an address that a foreign job calls when it starts and ends."""
    def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedPings:
        """End all addresses of a schedule."""
    def list(self) -> PingList:
        """List the addresses that foreign jobs call."""
    def send(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., report: str = ..., text: str = ...) -> PingResult:
        """Report for a schedule whose work runs elsewhere."""

class Providers:
    def close(self, provider: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> ProviderSummary:
        """Close a provider until an instant: runs that need it wait, and do not fail."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> ProviderList:
        """List the providers, until when each is closed and why."""
    def open(self, provider: str, *, reason: str = ..., dry_run: bool = ...) -> ProviderSummary:
        """Open a closed provider; runs that waited for it may start at once."""

class Queues:
    def add(self, queue: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., payloads: Sequence[Any] = ..., priority: int = ..., not_before: datetime | str | None = ..., client_key: str = ..., unique: str = ..., on_conflict: str = ..., limits: Sequence[str] = ...) -> AddedEntries:
        """Add entries to a queue; each waits until a worker leases it."""
    def complete(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., result: Any = ..., cost: Any = ...) -> ReportedRun:
        """Complete a lease as succeeded."""
    def drain(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ...) -> DrainResult:
        """Lease and complete entries in order, within the concurrency limit and backoff."""
    def import_(self, queue: str, *, reason: str = ..., dry_run: bool = ..., file: Any) -> ImportedQueue:
        """Import all entries of a queue file or none, with their order, attempts, leases and parked state."""
    def lease(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ..., holder: str = ..., length: timedelta | str | None = ...) -> LeasedEntries:
        """Lease entries within the queue's concurrency limit; expired leases are reclaimed first."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> QueueList:
        """List the queues of the namespace with the number of entries in each state."""
    def plan(self, queue: str, *, now: datetime | str | None = ..., all: bool = ...) -> QueuePlan:
        """Show what a queue would lease now, and what waits and why; nothing changes."""
    def policy_check(self, *, file: Any) -> PolicyDifferenceList:
        """Check a policy file and show what it would change; nothing is stored."""
    def policy_set(self, queue: str, *, reason: str = ..., dry_run: bool = ..., max_running: int = ..., max_attempts: int = ..., lease: timedelta | str = ..., backoff: Any = ..., exhausted: str = ..., ageing: timedelta | str | None = ..., limits: Sequence[Any] = ...) -> QueuePolicyDetail:
        """Change the policy of a queue, effective at once."""
    def policy_show(self, queue: str) -> QueuePolicyDetail:
        """Show the policy of a queue; without one, the default policy."""
    def purge(self, queue: str, *, reason: str = ..., dry_run: bool = ..., parked: bool = ...) -> PurgedQueue:
        """Cancel the entries of a queue that have not started; leased ones continue."""
    def reclaim(self, queue: str = ..., *, reason: str = ..., dry_run: bool = ...) -> ReclaimedRuns:
        """Reclaim every expired lease; each counts as a failed attempt."""
    def release(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., failed: bool = ..., error: str = ..., cost: Any = ...) -> ReportedRun:
        """Release a lease: the run is ready again, or with `failed`, the attempt counts as failed."""
    def renew(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., length: timedelta | str | None = ..., progress: float | None = ..., note: str = ..., checkpoint: Any = ...) -> RenewedLease:
        """Renew a lease while its work continues; the answer tells whether the run was cancelled."""
    def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> ReportedRun:
        """Reset the attempts of a parked entry, so that it can start again."""
    def show(self, queue: str, *, limit: int = ..., cursor: str = ..., state: str | None = ...) -> QueueDetail:
        """Show a queue: its policy, its counts, and its entries as they would start, parked ones last."""

class Reminders:
    def cancel(self, reminder: str, *, reason: str = ..., dry_run: bool = ...) -> CancelledReminder:
        """Cancel a reminder; its history stays."""
    def list(self, *, limit: int = ..., cursor: str = ..., finished: bool = ...) -> ReminderList:
        """List reminders by name."""
    def set(self, *, reason: str = ..., dry_run: bool = ..., text: str, at: datetime | str | None = ..., after: timedelta | str | None = ..., every: str = ..., cron: str = ..., rrule: str = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., zone: str = ..., name: str = ..., channel: str = ..., force: bool = ...) -> Reminder:
        """Set a reminder; when it is due, a run has its text as the result."""
    def snooze(self, reminder: str, *, reason: str = ..., dry_run: bool = ..., after: timedelta | str = ...) -> SnoozedReminder:
        """Move a reminder that comes once; one that has come, or comes often, comes once more after the delay."""

class Runs:
    def answer(self, run: str, *, reason: str = ..., dry_run: bool = ..., answer: Any = ...) -> RunDetail:
        """Answer a step that waits for a person; agents cannot answer."""
    def artifacts(self, run: str, *, name: str = ..., fence: int | None = ..., offset: int = ..., limit: int = ...) -> RunArtifacts:
        """List the artifacts of a run, or read one of them in parts."""
    def cancel(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Cancel a run or a queue entry: at once if not leased, otherwise its holder has time to stop."""
    def counts(self, *, period: timedelta | str = ..., until: datetime | str | None = ..., step: timedelta | str | None = ...) -> RunCountSeries:
        """Count the ended runs of an hour, a day or a week by the minute they were planned in."""
    def explain(self, run: str) -> Explanation:
        """Explain why a run was created, and why it ended, waits or never started."""
    def failures(self, *, since: datetime | str | None = ..., schedule: str = ..., limit: int = ...) -> FailureCauses:
        """List failed and parked runs by cause: the schedule and the message without its numbers and ids."""
    def get(self, run: str) -> RunDetail:
        """Show one run with its key, the decision behind it, and every attempt."""
    def link(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> AnswerLink:
        """Make a one-time link with which a person without a key answers a step that waits."""
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., state: str | None = ..., queue: str | None = ..., since: datetime | str | None = ..., until: datetime | str | None = ..., group: str | None = ..., tag: str | None = ..., metadata: Mapping[str, Any] = ..., external_id: str = ...) -> RunList:
        """List runs, newest first, including those that were skipped."""
    def logs(self, run: str, *, attempt: int | None = ..., after: str = ...) -> RunLogs:
        """Show the output of a run's attempts: head and tail, also while an attempt is running."""
    def report(self, run: str, *, reason: str = ..., dry_run: bool = ..., fence: int, outcome: Any, external_id: str = ...) -> ReportedRun:
        """Report the start or outcome of a run that an external worker executes; a lost lease is stale."""
    def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Reset the attempts of a parked run, so that it can start again."""
    def retry(self, run: str, *, reason: str = ..., dry_run: bool = ..., from_step: bool = ..., input: Mapping[str, Any] = ...) -> RunDetail:
        """Retry a failed, parked or cancelled run: the same run continues with a higher fence."""
    def retry_failures(self, *, reason: str = ..., dry_run: bool = ..., schedule: str = ..., queue: str = ..., cause: str = ..., since: datetime | str | None = ...) -> RetriedFailures:
        """Retry the failed runs of a cause, a schedule or a queue, and reset the parked ones."""
    def wait(self, run: str, *, time_limit: timedelta | str = ...) -> RunDetail:
        """Wait until a run has ended, at most the time limit, and show it as it is then."""

class Schedules:
    def archive(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Archive a schedule for good; its history stays, and its name can be used again."""
    def backfill(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., since: datetime | str, until: datetime | str | None = ..., only: str = ..., rate: str = ..., newest_first: bool = ..., max_running: int | None = ...) -> BackfillResult:
        """Run past occurrences, again or for the first time; their existing records stay."""
    def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., force: bool = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> ScheduleDetail:
        """Create a schedule and decide its first occurrence; a name in use is a conflict."""
    def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Delete a schedule, which is the same as archiving it: its history stays."""
    def explain(self, schedule: str, *, at: datetime | str | None = ..., last: bool = ...) -> Explanation:
        """Explain why an occurrence ran, did not run, or will run: at an instant, the last, or the next."""
    def feed(self, *, tag: str | None = ..., group: str | None = ..., days: int = ...) -> ScheduleFeed:
        """Return the next occurrences of schedules as an iCalendar text, for calendar programs."""
    def finish(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Finish a schedule: it plans nothing more; its name stays in use, and an edit can revive it."""
    def get(self, schedule: str) -> ScheduleDetail:
        """Show one schedule: its definition, its progress and its next five occurrences."""
    def grid(self, *, period: timedelta | str = ..., until: datetime | str | None = ..., group: str | None = ..., name_contains: str = ..., limit: int = ..., offset: int = ...) -> Grid:
        """Show schedules and their runs over time as a grid, failing schedules first."""
    def health(self, schedule: str, *, since: datetime | str | None = ...) -> ScheduleHealth:
        """Show the health of a schedule: consecutive failures, rates and durations over 1, 4 and 24 hours."""
    def list(self, *, limit: int = ..., cursor: str = ..., state: str | None = ..., group: str | None = ..., tag: str | None = ..., name_starts: str = ..., name_contains: str = ..., order: str = ..., count: bool = ..., waits_for: str | None = ..., metadata: Mapping[str, Any] = ...) -> ScheduleList:
        """List schedules by name or in another order; archived ones only with `state: archived`."""
    def move(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: datetime | str) -> MovedOccurrence:
        """Move the next occurrence to another instant: it is skipped, and a manual run replaces it."""
    def next(self, schedule: str = ..., *, count: int = ..., after: datetime | str | None = ..., until: datetime | str | None = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., name: str = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> NextOccurrences:
        """Show the next occurrences of a schedule, or of a trigger that is not stored."""
    def note(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., text: str = ..., remove: bool = ...) -> WrittenNote:
        """Write or remove a note on one occurrence; it is shown before it runs and after."""
    def outcomes(self, *, schedules: Sequence[str], each: int = ...) -> RecentOutcomes:
        """Show the newest occurrences of several schedules, including skipped ones."""
    def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> ScheduleDetail:
        """Pause a schedule until an instant, or until someone resumes it; active runs continue."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., force: bool = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> PutScheduleResult:
        """Create a schedule or replace it completely, by its name; the same definition again changes nothing."""
    def put_many(self, *, reason: str = ..., dry_run: bool = ..., schedules: Sequence[Mapping[str, Any]]) -> PutManyResult:
        """Create or replace many schedules by their names, in one transaction: all of them or none."""
    def restore(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: int) -> ScheduleDetail:
        """Restore an earlier revision of a schedule, as a new revision."""
    def resume(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Resume a paused or parked schedule: reset its failures, skip occurrences within the pause."""
    def revisions(self, schedule: str, *, limit: int = ..., cursor: str = ...) -> RevisionList:
        """List the revisions of a schedule, newest first, with who changed what and why."""
    def run(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., force: bool = ..., payload: Any = ..., client_key: str = ...) -> RunDetail:
        """Run a schedule once more, now or at a future instant; its next occurrence does not change."""
    def run_many(self, *, reason: str = ..., dry_run: bool = ..., runs: Sequence[Any]) -> NewRuns:
        """Run schedules once more, many runs in one transaction; each obeys overlap, as if made one by one."""
    def set_state(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., state: Any, version: int | None = ...) -> ScheduleStateValue:
        """Set what a schedule with `keep_state` keeps; a run under way fails if it sets it too."""
    def skip(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., count: int = ...) -> ScheduleDetail:
        """Skip the next occurrences; they are recorded as skipped manually."""
    def test(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., time_limit: timedelta | str = ...) -> TargetTestResult:
        """Start a schedule's target once and show the result; nothing is recorded."""
    def trends(self, schedule: str, *, each: int = ...) -> Trends:
        """Show each number in the results of a schedule's newest runs over time."""
    def upcoming(self, *, until: datetime | str | None = ..., tag: str | None = ..., group: str | None = ..., zone: str | None = ..., each: int | None = ..., limit: int = ...) -> Upcoming:
        """Show what starts next, of all schedules, in order of time."""
    def update(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., name: str = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> ScheduleDetail:
        """Change some fields of a schedule; its next occurrence is decided again, past decisions stay."""

class Secrets:
    def bind(self, secret: str, *, reason: str = ..., dry_run: bool = ..., hosts: Sequence[str] = ..., commands: Sequence[str] = ..., users: Sequence[str] = ...) -> SecretDetail:
        """Say where a secret may go and who may use it; the value stays, and the new binding replaces the old."""
    def delete(self, secret: str, *, reason: str = ..., dry_run: bool = ...) -> SecretDetail:
        """Remove a secret that no schedule uses."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> SecretList:
        """List the names of the secrets and when each was set; values are never shown."""
    def rotate(self, *, reason: str = ..., dry_run: bool = ..., everywhere: bool = ...) -> RotatedSecrets:
        """Re-encrypt every secret with the current secret key, after a new key was put first in its file."""
    def set(self, secret: str, *, reason: str = ..., dry_run: bool = ..., value: str, hosts: Sequence[str] | None = ..., commands: Sequence[str] | None = ..., users: Sequence[str] | None = ...) -> SecretDetail:
        """Store a value under a name, encrypted; it is never shown, and the next launch uses it."""

class Sessions:
    def end(self, session: str, *, reason: str = ..., dry_run: bool = ...) -> SessionList:
        """End a browser session at once, in every process and for every copy of its cookie."""
    def list(self, *, all: bool = ...) -> SessionList:
        """List the browser sessions that have not ended."""

class Workflows:
    def approve(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ...) -> DeployedWorkflow:
        """Approve a version that an agent wrote, so that it runs, and deploy its schedules; agents cannot."""
    def delete(self, workflow: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedWorkflow:
        """Delete a workflow and archive its schedules; active runs continue, and its versions stay."""
    def get(self, workflow: str, *, version: int | None = ...) -> WorkflowDetail:
        """Show a workflow: the newest version, or an older one."""
    def graph(self, workflow: str, *, version: int | None = ..., run: str = ...) -> WorkflowDrawing:
        """Draw a workflow as text, layer by layer; with `run`, with the state of each step."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> WorkflowList:
        """List the workflows of the namespace, each with its newest version and its schedules."""
    def pause(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Pause a workflow run: no further steps start, active ones continue, its time limit stops."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., version: int = ..., description: str = ..., steps: Sequence[Any] = ..., input: Mapping[str, Any] = ..., input_types: Mapping[str, Any] = ..., time_limit: timedelta | str | None = ..., deadline: timedelta | str | None = ..., executor: Any = ..., schedules: Sequence[Mapping[str, Any]] = ...) -> DeployedWorkflow:
        """Store a new version of a workflow and deploy its schedules; the same again changes nothing."""
    def reject(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ...) -> DeployedWorkflow:
        """Reject a version that an agent wrote: it stays and never runs; agents cannot."""
    def resume(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Resume a paused workflow run; one that is not paused does not change."""
    def run(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ..., input: Mapping[str, Any] = ..., user: str = ..., like: str = ..., client_key: str = ...) -> RunDetail:
        """Run a workflow now; the run stores the version and input it was started with."""
    def signal(self, event: str, *, reason: str = ..., dry_run: bool = ..., data: Any = ...) -> SignalResult:
        """Send an event: every step that waits for it ends, with the data as its result."""

class AsyncAlerts:
    async def get(self, *, group: str = ..., installation: bool = ...) -> AlertRulesDetail:
        """Show the thresholds at which incidents open."""
    async def set(self, *, reason: str = ..., dry_run: bool = ..., group: str = ..., installation: bool = ..., check_in: str | None = ..., enabled: bool | None = ..., failed: int | None = ..., missed: int | None = ..., parked: bool | None = ..., late: timedelta | str | None = ..., no_instance: timedelta | str | None = ..., queue_age: timedelta | str | None = ..., over_budget: bool | None = ..., instance_gone: timedelta | str | None = ..., clock: timedelta | str | None = ..., store_free_mb: int | None = ..., key_expires: timedelta | str | None = ..., repeat: timedelta | str | None = ..., calm: timedelta | str | None = ...) -> AlertRulesDetail:
        """Set thresholds for a group, the namespace or the installation; a schedule has its own in `alerts`."""

class AsyncAnalyses:
    async def due(self, *, limit: int = ..., cursor: str = ...) -> DueAnalysisList:
        """List the adaptive schedules that are due: never analysed, look_again_at reached, or more failures."""
    async def get(self, analysis: str) -> Analysis:
        """Show one analysis with every tool call, its arguments and result, and what was rejected."""
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ...) -> AnalysisList:
        """List the planner's analyses, newest first; the last twenty of each schedule are kept."""
    async def submit(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., advisor: str, reasoning: str, model: str = ..., tools: Sequence[Any] = ..., proposals: Sequence[str] = ..., confidence: str = ..., tokens: int = ..., cost: float = ..., took: timedelta | str = ..., warnings: Sequence[str] = ..., look_again_in: timedelta | str | None = ...) -> Analysis:
        """Store the result of an analysis and when to analyse the schedule again."""

class AsyncApprovals:
    async def approve(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Approve a schedule, so that it starts; agents cannot approve."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> ApprovalList:
        """List what waits for a person: schedules and workflow versions of agents, and steps that ask."""
    async def reject(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Reject a schedule: it is archived with the reason; agents cannot reject."""

class AsyncAudit:
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., subject: str = ..., actor: str = ..., origin: str = ..., action: str = ..., since: datetime | str | None = ..., until: datetime | str | None = ...) -> AuditEntryList:
        """List audit entries, newest first."""
    async def verify(self) -> AuditVerification:
        """Check the hash chain of the audit log, from the first entry to the last."""

class AsyncBackfills:
    async def cancel(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Cancel a backfill and its runs that have not started."""
    async def get(self, backfill: str) -> BackfillSummary:
        """Show one backfill with its progress."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> BackfillList:
        """List backfills, newest first, with their progress."""
    async def pause(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Pause a backfill: it hands out no more runs; those it handed out still run."""
    async def resume(self, backfill: str, *, reason: str = ..., dry_run: bool = ...) -> BackfillSummary:
        """Resume a paused backfill."""

class AsyncBudgets:
    async def delete(self, budget: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedBudget:
        """Remove a budget that no schedule names; runs that waited for it may start."""
    async def get(self, budget: str) -> BudgetDetail:
        """Show a budget: how much is left, which schedules name it and how many runs wait for it."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> BudgetList:
        """List the budgets and how much is left of each."""
    async def set(self, budget: str, *, reason: str = ..., dry_run: bool = ..., unit: str, limit: str | float, period: str = ..., zone: str = ..., currency: str = ..., owner: str = ..., host: str = ..., function: str = ..., queue: str = ..., provider: str = ...) -> BudgetSummary:
        """Set how much may be spent per period; runs that wait for it are checked again at once."""
    async def usage(self, budget: str, *, periods: int = ...) -> BudgetUsageReport:
        """Show the usage of a budget per period, newest first."""

class AsyncCalendars:
    async def delete(self, calendar: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedCalendar:
        """Remove a calendar that no schedule uses."""
    async def get(self, calendar: str) -> CalendarDetail:
        """Show a calendar and the schedules that use it."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> CalendarList:
        """List the calendars of the namespace."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., holidays: str = ..., subdivision: str = ..., years: str = ..., ical: str = ..., zone: str = ..., dates: Sequence[Any] = ..., yearly: Sequence[str] = ..., ranges: Sequence[Any] = ..., weekly: Sequence[Any] = ..., spans: Sequence[Any] = ..., names: Mapping[str, Any] = ..., source: Any = ...) -> CalendarDetail:
        """Create a calendar or replace it completely; schedules that use it apply it at their next decision."""
    async def refresh(self, calendar: str, *, reason: str = ..., dry_run: bool = ..., years: str = ...) -> RefreshedCalendar:
        """Reload the holidays of a calendar; a new revision is written only if they changed."""

class AsyncChannels:
    async def create(self, channel: str, *, reason: str = ..., dry_run: bool = ..., to: Any, sign_with: str | None = ..., events: Sequence[str] = ..., kinds: Sequence[str] = ..., severities: Sequence[str] = ..., schedules: Sequence[str] = ..., groups: Sequence[str] = ..., link: str = ...) -> ChannelDetail:
        """Create or replace a channel; it gets what happens from now on."""
    async def delete(self, channel: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedChannel:
        """Delete a channel; messages that wait are cancelled."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> ChannelList:
        """List the channels with the number of messages that wait or failed."""
    async def test(self, channel: str, *, reason: str = ..., dry_run: bool = ...) -> ChannelTest:
        """Send a test message through a channel; it is delivered like every other."""

class AsyncClock:
    async def accept(self, *, reason: str = ..., dry_run: bool = ...) -> ClockAnswer:
        """Accept the time that the store's clock shows now, after it stepped by more than a day."""

class AsyncGroups:
    async def list(self, *, limit: int = ..., cursor: str = ...) -> GroupList:
        """List the groups that schedules belong to."""
    async def pause(self, group: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> PauseState:
        """Pause a group; occurrences that come due are skipped, as those of a paused schedule. See `pause`."""
    async def resume(self, group: str, *, reason: str = ..., dry_run: bool = ...) -> PauseState:
        """End the pauses of a group; its schedules that are paused or parked on their own stay so."""

class AsyncHints:
    async def clear(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> HintStatus:
        """Remove all hints; the next occurrence is decided again without them."""
    async def interval(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., interval: timedelta | str, ttl: timedelta | str = ...) -> HintStatus:
        """Request another interval until the hint expires; it may bring the next run forward, not delay it."""
    async def list(self, schedule: str) -> HintStatus:
        """Show the active hints, and when the schedule would run without them."""
    async def once(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., after: timedelta | str | None = ..., ttl: timedelta | str = ...) -> HintStatus:
        """Request one run at an instant; that run consumes the hint."""
    async def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> HintStatus:
        """Request a pause until an instant, at most one hour ahead; for longer, use schedule pause."""

class AsyncIncidents:
    async def acknowledge(self, incident: str, *, reason: str = ..., dry_run: bool = ...) -> Incident:
        """Say that you take care of an incident: it is not repeated; its end is still told."""
    async def get(self, incident: str) -> Incident:
        """Show an incident."""
    async def list(self, *, limit: int = ..., cursor: str = ..., closed: bool = ...) -> IncidentList:
        """List incidents, newest first: what is wrong, since when, and what would help."""
    async def snooze(self, incident: str, *, reason: str = ..., dry_run: bool = ..., length: timedelta | str = ...) -> Incident:
        """Repeat an incident no earlier than after a while."""

class AsyncInstances:
    async def list(self) -> InstanceList:
        """List the instances with their load and the time of their last heartbeat."""

class AsyncKeys:
    async def create(self, key: str, *, reason: str = ..., dry_run: bool = ..., role: str | None = ..., scopes: Sequence[str] = ..., within: Sequence[str] = ..., origin: str = ..., expires_in: timedelta | str = ..., zone: str = ...) -> CreatedKey:
        """Create a key; its token is shown once, and only a keyed hash of it is stored."""
    async def get(self, key: str) -> KeyDetail:
        """Show a key: its permissions, when it expires and when it was last used."""
    async def list(self, *, limit: int = ..., cursor: str = ..., all: bool = ...) -> KeyList:
        """List the keys with access to this namespace."""
    async def revoke(self, key: str, *, reason: str = ..., dry_run: bool = ...) -> KeyDetail:
        """Revoke a key at once and for good; it stays in the list of all keys."""
    async def rotate(self, key: str, *, reason: str = ..., dry_run: bool = ..., overlap: timedelta | str = ..., expires_in: timedelta | str = ...) -> CreatedKey:
        """Replace a key by a new one with the same permissions; the old one is valid until the overlap ends."""

class AsyncLimits:
    async def delete(self, limit: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedLimit:
        """Delete a named limit; runs that still name it start one at a time."""
    async def get(self, limit: str) -> LimitDetail:
        """Show a named limit, and how much of it each value of its key uses."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> LimitList:
        """List the named limits and how much of each is used."""
    async def set(self, limit: str, *, reason: str = ..., dry_run: bool = ..., max_running: int | None = ..., key: str = ..., rate: str = ..., weights: Mapping[str, Any] = ...) -> LimitSummary:
        """Set what a named limit allows, effective at once."""

class AsyncNamespaces:
    async def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: str = ..., zone: str = ..., schedules: int = ..., shortest_interval: timedelta | str = ..., emissions_per_minute: int = ..., triggers_per_minute: int = ..., requests_per_minute: int = ..., backlog: int = ..., body_bytes: int = ..., agent_shortest_interval: timedelta | str = ..., agent_emissions_per_minute: int = ..., agent_approval: bool = ..., agent_longest_life: timedelta | str | None = ..., agent_longest_hint: timedelta | str = ..., advisor_tokens_per_month: int = ...) -> NamespaceDetail:
        """Create a namespace with its own quotas."""
    async def get(self, name: str = ...) -> NamespaceDetail:
        """Show the quotas of a namespace and how much of them is used."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> NamespaceList:
        """List the namespaces that the caller may access."""
    async def set(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: str = ..., zone: str = ..., schedules: int = ..., shortest_interval: timedelta | str = ..., emissions_per_minute: int = ..., triggers_per_minute: int = ..., requests_per_minute: int = ..., backlog: int = ..., body_bytes: int = ..., agent_shortest_interval: timedelta | str = ..., agent_emissions_per_minute: int = ..., agent_approval: bool = ..., agent_longest_life: timedelta | str | None = ..., agent_longest_hint: timedelta | str = ..., advisor_tokens_per_month: int = ...) -> NamespaceDetail:
        """Change the quotas of a namespace, effective at once."""

class AsyncPings:
    async def create(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> PingAddress:
        """Make an address that a foreign job calls when it starts and ends."""
    async def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedPings:
        """End all addresses of a schedule."""
    async def list(self) -> PingList:
        """List the addresses that foreign jobs call."""
    async def send(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., report: str = ..., text: str = ...) -> PingResult:
        """Report for a schedule whose work runs elsewhere."""

class AsyncProviders:
    async def close(self, provider: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> ProviderSummary:
        """Close a provider until an instant: runs that need it wait, and do not fail."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> ProviderList:
        """List the providers, until when each is closed and why."""
    async def open(self, provider: str, *, reason: str = ..., dry_run: bool = ...) -> ProviderSummary:
        """Open a closed provider; runs that waited for it may start at once."""

class AsyncQueues:
    async def add(self, queue: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., payloads: Sequence[Any] = ..., priority: int = ..., not_before: datetime | str | None = ..., client_key: str = ..., unique: str = ..., on_conflict: str = ..., limits: Sequence[str] = ...) -> AddedEntries:
        """Add entries to a queue; each waits until a worker leases it."""
    async def complete(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., result: Any = ..., cost: Any = ...) -> ReportedRun:
        """Complete a lease as succeeded."""
    async def drain(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ...) -> DrainResult:
        """Lease and complete entries in order, within the concurrency limit and backoff."""
    async def import_(self, queue: str, *, reason: str = ..., dry_run: bool = ..., file: Any) -> ImportedQueue:
        """Import all entries of a queue file or none, with their order, attempts, leases and parked state."""
    async def lease(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ..., holder: str = ..., length: timedelta | str | None = ...) -> LeasedEntries:
        """Lease entries within the queue's concurrency limit; expired leases are reclaimed first."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> QueueList:
        """List the queues of the namespace with the number of entries in each state."""
    async def plan(self, queue: str, *, now: datetime | str | None = ..., all: bool = ...) -> QueuePlan:
        """Show what a queue would lease now, and what waits and why; nothing changes."""
    async def policy_check(self, *, file: Any) -> PolicyDifferenceList:
        """Check a policy file and show what it would change; nothing is stored."""
    async def policy_set(self, queue: str, *, reason: str = ..., dry_run: bool = ..., max_running: int = ..., max_attempts: int = ..., lease: timedelta | str = ..., backoff: Any = ..., exhausted: str = ..., ageing: timedelta | str | None = ..., limits: Sequence[Any] = ...) -> QueuePolicyDetail:
        """Change the policy of a queue, effective at once."""
    async def policy_show(self, queue: str) -> QueuePolicyDetail:
        """Show the policy of a queue; without one, the default policy."""
    async def purge(self, queue: str, *, reason: str = ..., dry_run: bool = ..., parked: bool = ...) -> PurgedQueue:
        """Cancel the entries of a queue that have not started; leased ones continue."""
    async def reclaim(self, queue: str = ..., *, reason: str = ..., dry_run: bool = ...) -> ReclaimedRuns:
        """Reclaim every expired lease; each counts as a failed attempt."""
    async def release(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., failed: bool = ..., error: str = ..., cost: Any = ...) -> ReportedRun:
        """Release a lease: the run is ready again, or with `failed`, the attempt counts as failed."""
    async def renew(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., length: timedelta | str | None = ..., progress: float | None = ..., note: str = ..., checkpoint: Any = ...) -> RenewedLease:
        """Renew a lease while its work continues; the answer tells whether the run was cancelled."""
    async def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> ReportedRun:
        """Reset the attempts of a parked entry, so that it can start again."""
    async def show(self, queue: str, *, limit: int = ..., cursor: str = ..., state: str | None = ...) -> QueueDetail:
        """Show a queue: its policy, its counts, and its entries as they would start, parked ones last."""

class AsyncReminders:
    async def cancel(self, reminder: str, *, reason: str = ..., dry_run: bool = ...) -> CancelledReminder:
        """Cancel a reminder; its history stays."""
    async def list(self, *, limit: int = ..., cursor: str = ..., finished: bool = ...) -> ReminderList:
        """List reminders by name."""
    async def set(self, *, reason: str = ..., dry_run: bool = ..., text: str, at: datetime | str | None = ..., after: timedelta | str | None = ..., every: str = ..., cron: str = ..., rrule: str = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., zone: str = ..., name: str = ..., channel: str = ..., force: bool = ...) -> Reminder:
        """Set a reminder; when it is due, a run has its text as the result."""
    async def snooze(self, reminder: str, *, reason: str = ..., dry_run: bool = ..., after: timedelta | str = ...) -> SnoozedReminder:
        """Move a reminder that comes once; one that has come, or comes often, comes once more after the delay."""

class AsyncRuns:
    async def answer(self, run: str, *, reason: str = ..., dry_run: bool = ..., answer: Any = ...) -> RunDetail:
        """Answer a step that waits for a person; agents cannot answer."""
    async def artifacts(self, run: str, *, name: str = ..., fence: int | None = ..., offset: int = ..., limit: int = ...) -> RunArtifacts:
        """List the artifacts of a run, or read one of them in parts."""
    async def cancel(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Cancel a run or a queue entry: at once if not leased, otherwise its holder has time to stop."""
    async def counts(self, *, period: timedelta | str = ..., until: datetime | str | None = ..., step: timedelta | str | None = ...) -> RunCountSeries:
        """Count the ended runs of an hour, a day or a week by the minute they were planned in."""
    async def explain(self, run: str) -> Explanation:
        """Explain why a run was created, and why it ended, waits or never started."""
    async def failures(self, *, since: datetime | str | None = ..., schedule: str = ..., limit: int = ...) -> FailureCauses:
        """List failed and parked runs by cause: the schedule and the message without its numbers and ids."""
    async def get(self, run: str) -> RunDetail:
        """Show one run with its key, the decision behind it, and every attempt."""
    async def link(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> AnswerLink:
        """Make a one-time link with which a person without a key answers a step that waits."""
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., state: str | None = ..., queue: str | None = ..., since: datetime | str | None = ..., until: datetime | str | None = ..., group: str | None = ..., tag: str | None = ..., metadata: Mapping[str, Any] = ..., external_id: str = ...) -> RunList:
        """List runs, newest first, including those that were skipped."""
    async def logs(self, run: str, *, attempt: int | None = ..., after: str = ...) -> RunLogs:
        """Show the output of a run's attempts: head and tail, also while an attempt is running."""
    async def report(self, run: str, *, reason: str = ..., dry_run: bool = ..., fence: int, outcome: Any, external_id: str = ...) -> ReportedRun:
        """Report the start or outcome of a run that an external worker executes; a lost lease is stale."""
    async def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Reset the attempts of a parked run, so that it can start again."""
    async def retry(self, run: str, *, reason: str = ..., dry_run: bool = ..., from_step: bool = ..., input: Mapping[str, Any] = ...) -> RunDetail:
        """Retry a failed, parked or cancelled run: the same run continues with a higher fence."""
    async def retry_failures(self, *, reason: str = ..., dry_run: bool = ..., schedule: str = ..., queue: str = ..., cause: str = ..., since: datetime | str | None = ...) -> RetriedFailures:
        """Retry the failed runs of a cause, a schedule or a queue, and reset the parked ones."""
    async def wait(self, run: str, *, time_limit: timedelta | str = ...) -> RunDetail:
        """Wait until a run has ended, at most the time limit, and show it as it is then."""

class AsyncSchedules:
    async def archive(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Archive a schedule for good; its history stays, and its name can be used again."""
    async def backfill(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., since: datetime | str, until: datetime | str | None = ..., only: str = ..., rate: str = ..., newest_first: bool = ..., max_running: int | None = ...) -> BackfillResult:
        """Run past occurrences, again or for the first time; their existing records stay."""
    async def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., force: bool = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> ScheduleDetail:
        """Create a schedule and decide its first occurrence; a name in use is a conflict."""
    async def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Delete a schedule, which is the same as archiving it: its history stays."""
    async def explain(self, schedule: str, *, at: datetime | str | None = ..., last: bool = ...) -> Explanation:
        """Explain why an occurrence ran, did not run, or will run: at an instant, the last, or the next."""
    async def feed(self, *, tag: str | None = ..., group: str | None = ..., days: int = ...) -> ScheduleFeed:
        """Return the next occurrences of schedules as an iCalendar text, for calendar programs."""
    async def finish(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Finish a schedule: it plans nothing more; its name stays in use, and an edit can revive it."""
    async def get(self, schedule: str) -> ScheduleDetail:
        """Show one schedule: its definition, its progress and its next five occurrences."""
    async def grid(self, *, period: timedelta | str = ..., until: datetime | str | None = ..., group: str | None = ..., name_contains: str = ..., limit: int = ..., offset: int = ...) -> Grid:
        """Show schedules and their runs over time as a grid, failing schedules first."""
    async def health(self, schedule: str, *, since: datetime | str | None = ...) -> ScheduleHealth:
        """Show the health of a schedule: consecutive failures, rates and durations over 1, 4 and 24 hours."""
    async def list(self, *, limit: int = ..., cursor: str = ..., state: str | None = ..., group: str | None = ..., tag: str | None = ..., name_starts: str = ..., name_contains: str = ..., order: str = ..., count: bool = ..., waits_for: str | None = ..., metadata: Mapping[str, Any] = ...) -> ScheduleList:
        """List schedules by name or in another order; archived ones only with `state: archived`."""
    async def move(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: datetime | str) -> MovedOccurrence:
        """Move the next occurrence to another instant: it is skipped, and a manual run replaces it."""
    async def next(self, schedule: str = ..., *, count: int = ..., after: datetime | str | None = ..., until: datetime | str | None = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., name: str = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> NextOccurrences:
        """Show the next occurrences of a schedule, or of a trigger that is not stored."""
    async def note(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., text: str = ..., remove: bool = ...) -> WrittenNote:
        """Write or remove a note on one occurrence; it is shown before it runs and after."""
    async def outcomes(self, *, schedules: Sequence[str], each: int = ...) -> RecentOutcomes:
        """Show the newest occurrences of several schedules, including skipped ones."""
    async def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> ScheduleDetail:
        """Pause a schedule until an instant, or until someone resumes it; active runs continue."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., force: bool = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> PutScheduleResult:
        """Create a schedule or replace it completely, by its name; the same definition again changes nothing."""
    async def put_many(self, *, reason: str = ..., dry_run: bool = ..., schedules: Sequence[Mapping[str, Any]]) -> PutManyResult:
        """Create or replace many schedules by their names, in one transaction: all of them or none."""
    async def restore(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: int) -> ScheduleDetail:
        """Restore an earlier revision of a schedule, as a new revision."""
    async def resume(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> ScheduleDetail:
        """Resume a paused or parked schedule: reset its failures, skip occurrences within the pause."""
    async def revisions(self, schedule: str, *, limit: int = ..., cursor: str = ...) -> RevisionList:
        """List the revisions of a schedule, newest first, with who changed what and why."""
    async def run(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., force: bool = ..., payload: Any = ..., client_key: str = ...) -> RunDetail:
        """Run a schedule once more, now or at a future instant; its next occurrence does not change."""
    async def run_many(self, *, reason: str = ..., dry_run: bool = ..., runs: Sequence[Any]) -> NewRuns:
        """Run schedules once more, many runs in one transaction; each obeys overlap, as if made one by one."""
    async def set_state(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., state: Any, version: int | None = ...) -> ScheduleStateValue:
        """Set what a schedule with `keep_state` keeps; a run under way fails if it sets it too."""
    async def skip(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., count: int = ...) -> ScheduleDetail:
        """Skip the next occurrences; they are recorded as skipped manually."""
    async def test(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., time_limit: timedelta | str = ...) -> TargetTestResult:
        """Start a schedule's target once and show the result; nothing is recorded."""
    async def trends(self, schedule: str, *, each: int = ...) -> Trends:
        """Show each number in the results of a schedule's newest runs over time."""
    async def upcoming(self, *, until: datetime | str | None = ..., tag: str | None = ..., group: str | None = ..., zone: str | None = ..., each: int | None = ..., limit: int = ...) -> Upcoming:
        """Show what starts next, of all schedules, in order of time."""
    async def update(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., every: timedelta | str = ..., cron: str = ..., rrule: str = ..., zone: str | tzinfo = ..., after: timedelta | str | Mapping[str, Any] = ..., on: str = ..., delay: timedelta | str = ..., once: datetime | str = ..., at: datetime | str = ..., manual: bool | Mapping[str, Any] = ..., anchor: datetime | str = ..., dst: str = ..., note: str = ..., http: str | Mapping[str, Any] = ..., method: str = ..., headers: Mapping[str, str] = ..., body: Any = ..., http_timeout: timedelta | str = ..., call: str | Mapping[str, Any] = ..., shell: Sequence[str] | Mapping[str, Any] = ..., workflow: str | Mapping[str, Any] = ..., handoff: Any = ..., publish: str | Mapping[str, Any] = ..., max_attempts: int = ..., backoff: Any = ..., time_limit: timedelta | str | None = ..., name: str = ..., group: str | None = ..., description: str = ..., tags: Sequence[str] = ..., metadata: Mapping[str, Any] = ..., preset: str | None = ..., trigger: Any = ..., target: Any = ..., check: Any = ..., start_at: datetime | str | None = ..., end_at: datetime | str | None = ..., max_runs: int | None = ..., run_at_start: bool = ..., calendar: Any = ..., needs: Sequence[Any] = ..., align: str = ..., catch_up: str = ..., catch_up_limit: int = ..., catch_up_window: timedelta | str | None = ..., grace: timedelta | str = ..., spread_over: timedelta | str = ..., overlap: str = ..., max_running: int | None = ..., queue_limit: int = ..., jitter: timedelta | str = ..., jitter_side: str = ..., offset: str = ..., retry: Any = ..., cadence: Any = ..., disable_after: int | None = ..., delivery: str = ..., lease: Any = ..., deadline: timedelta | str | None = ..., queue: str | None = ..., limits: Sequence[Any] = ..., runs_on: Sequence[str] = ..., budgets: Sequence[str] = ..., provider: str | None = ..., estimate: Any = ..., priority: int | str = ..., adaptive: bool = ..., clamp: Any = ..., alerts: Any = ..., expect: Any = ..., check_in: Any = ..., rules: Sequence[Any] = ..., succeed_if: str = ..., exit_codes: Mapping[str, Any] = ..., empty: str = ..., watch: Any = ..., keep_state: bool = ...) -> ScheduleDetail:
        """Change some fields of a schedule; its next occurrence is decided again, past decisions stay."""

class AsyncSecrets:
    async def bind(self, secret: str, *, reason: str = ..., dry_run: bool = ..., hosts: Sequence[str] = ..., commands: Sequence[str] = ..., users: Sequence[str] = ...) -> SecretDetail:
        """Say where a secret may go and who may use it; the value stays, and the new binding replaces the old."""
    async def delete(self, secret: str, *, reason: str = ..., dry_run: bool = ...) -> SecretDetail:
        """Remove a secret that no schedule uses."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> SecretList:
        """List the names of the secrets and when each was set; values are never shown."""
    async def rotate(self, *, reason: str = ..., dry_run: bool = ..., everywhere: bool = ...) -> RotatedSecrets:
        """Re-encrypt every secret with the current secret key, after a new key was put first in its file."""
    async def set(self, secret: str, *, reason: str = ..., dry_run: bool = ..., value: str, hosts: Sequence[str] | None = ..., commands: Sequence[str] | None = ..., users: Sequence[str] | None = ...) -> SecretDetail:
        """Store a value under a name, encrypted; it is never shown, and the next launch uses it."""

class AsyncSessions:
    async def end(self, session: str, *, reason: str = ..., dry_run: bool = ...) -> SessionList:
        """End a browser session at once, in every process and for every copy of its cookie."""
    async def list(self, *, all: bool = ...) -> SessionList:
        """List the browser sessions that have not ended."""

class AsyncWorkflows:
    async def approve(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ...) -> DeployedWorkflow:
        """Approve a version that an agent wrote, so that it runs, and deploy its schedules; agents cannot."""
    async def delete(self, workflow: str, *, reason: str = ..., dry_run: bool = ...) -> DeletedWorkflow:
        """Delete a workflow and archive its schedules; active runs continue, and its versions stay."""
    async def get(self, workflow: str, *, version: int | None = ...) -> WorkflowDetail:
        """Show a workflow: the newest version, or an older one."""
    async def graph(self, workflow: str, *, version: int | None = ..., run: str = ...) -> WorkflowDrawing:
        """Draw a workflow as text, layer by layer; with `run`, with the state of each step."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> WorkflowList:
        """List the workflows of the namespace, each with its newest version and its schedules."""
    async def pause(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Pause a workflow run: no further steps start, active ones continue, its time limit stops."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., version: int = ..., description: str = ..., steps: Sequence[Any] = ..., input: Mapping[str, Any] = ..., input_types: Mapping[str, Any] = ..., time_limit: timedelta | str | None = ..., deadline: timedelta | str | None = ..., executor: Any = ..., schedules: Sequence[Mapping[str, Any]] = ...) -> DeployedWorkflow:
        """Store a new version of a workflow and deploy its schedules; the same again changes nothing."""
    async def reject(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ...) -> DeployedWorkflow:
        """Reject a version that an agent wrote: it stays and never runs; agents cannot."""
    async def resume(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> RunDetail:
        """Resume a paused workflow run; one that is not paused does not change."""
    async def run(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ..., input: Mapping[str, Any] = ..., user: str = ..., like: str = ..., client_key: str = ...) -> RunDetail:
        """Run a workflow now; the run stores the version and input it was started with."""
    async def signal(self, event: str, *, reason: str = ..., dry_run: bool = ..., data: Any = ...) -> SignalResult:
        """Send an event: every step that waits for it ends, with the data as its result."""

class TypedResources:
    alerts: Alerts
    analyses: Analyses
    approvals: Approvals
    audit: Audit
    backfills: Backfills
    budgets: Budgets
    calendars: Calendars
    channels: Channels
    clock: Clock
    groups: Groups
    hints: Hints
    incidents: Incidents
    instances: Instances
    keys: Keys
    limits: Limits
    namespaces: Namespaces
    pings: Pings
    providers: Providers
    queues: Queues
    reminders: Reminders
    runs: Runs
    schedules: Schedules
    secrets: Secrets
    sessions: Sessions
    workflows: Workflows

class AsyncTypedResources:
    alerts: AsyncAlerts
    analyses: AsyncAnalyses
    approvals: AsyncApprovals
    audit: AsyncAudit
    backfills: AsyncBackfills
    budgets: AsyncBudgets
    calendars: AsyncCalendars
    channels: AsyncChannels
    clock: AsyncClock
    groups: AsyncGroups
    hints: AsyncHints
    incidents: AsyncIncidents
    instances: AsyncInstances
    keys: AsyncKeys
    limits: AsyncLimits
    namespaces: AsyncNamespaces
    pings: AsyncPings
    providers: AsyncProviders
    queues: AsyncQueues
    reminders: AsyncReminders
    runs: AsyncRuns
    schedules: AsyncSchedules
    secrets: AsyncSecrets
    sessions: AsyncSessions
    workflows: AsyncWorkflows
