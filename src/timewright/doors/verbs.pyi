# fmt: off
# ruff: noqa: A002, E501, PYI021 - names as the operations have them; one verb a line, what it does below it
"""The verbs of every noun, for editors and type checkers: docs/verbs.py writes it, a test keeps it true."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

Plain: TypeAlias = dict[str, Any]

class Schedules:
    def archive(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Retire a schedule for good; its history stays, and its name is free for another."""
    def backfill(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., since: datetime | str, until: datetime | str | None = ...) -> Plain:
        """Run past occurrences, again or for the first time; what is written of them stays."""
    def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., force: bool = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Keep a new schedule and decide its first time; a name that is taken is refused."""
    def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Delete a schedule, which is to archive it: nothing that happened is forgotten."""
    def explain(self, schedule: str, *, at: datetime | str | None = ..., last: bool = ...) -> Plain:
        """Say why an occurrence ran, did not, or will: at an instant, the last, or the next."""
    def feed(self, *, tag: str | None = ..., group: str | None = ..., days: int = ...) -> Plain:
        """Write the next occurrences of some schedules as an iCalendar text, for others to show."""
    def get(self, schedule: str) -> Plain:
        """Show one schedule: what it says, where it stands, and its next five times."""
    def health(self, schedule: str) -> Plain:
        """Show how a schedule does: failures in a row, rates and durations over 1, 4 and 24 hours."""
    def list(self, *, limit: int = ..., cursor: str = ..., state: str | None = ..., group: str | None = ..., tag: str | None = ..., name_starts: str = ..., waits_for: str | None = ..., metadata: Mapping[str, Any] = ...) -> Plain:
        """List schedules by name; archived ones are listed only when asked for."""
    def move(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: datetime | str) -> Plain:
        """Run the next occurrence at another instant: its own is left out, a run by hand takes its place."""
    def next(self, schedule: str = ..., *, count: int = ..., after: datetime | str | None = ..., until: datetime | str | None = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., trigger: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., name: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., target: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Show the next occurrences of a schedule, or of a trigger that is not stored, and their fate."""
    def note(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., text: str = ..., remove: bool = ...) -> Plain:
        """Write a note beside one occurrence, or take it away; it is shown before it runs and after."""
    def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> Plain:
        """Stop a schedule until an instant, or until someone resumes it; work under way goes on."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., force: bool = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Create a schedule or replace all of it, by its name; the same words again change nothing."""
    def restore(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: int) -> Plain:
        """Bring back what a schedule said at an earlier revision, as a new one."""
    def resume(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a paused or parked schedule go on; its failures are forgiven, what the pause covered is skipped."""
    def revisions(self, schedule: str, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List what a schedule said, newest first, with who changed what and why."""
    def run(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., force: bool = ..., payload: Any = ..., client_key: str = ...) -> Plain:
        """Run a schedule now, or once more at an instant ahead; its next time stays as it was."""
    def skip(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., count: int = ...) -> Plain:
        """Leave the next occurrence out: it is recorded as skipped by hand, and the one after it is next."""
    def strips(self, *, schedules: Sequence[str], each: int = ...) -> Plain:
        """Show the newest occurrences of several schedules, those that ran and those that did not."""
    def test(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., time_limit: timedelta | str = ...) -> Plain:
        """Start a schedule's target once, now, and say what came of it; nothing is recorded, nothing moves."""
    def trends(self, schedule: str, *, each: int = ...) -> Plain:
        """Show the numbers in the results of a schedule's newest runs, each over time."""
    def update(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., name: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Change some fields of a schedule; what was decided stays decided, its next time is decided again."""

class Runs:
    def cancel(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Stop a run: at once if nobody holds it, otherwise its holder is asked and has its grace."""
    def explain(self, run: str) -> Plain:
        """Say why a run came to be, and why it ended, waits, or never started."""
    def get(self, run: str) -> Plain:
        """Show one run with its identity, the decision behind it, and every attempt."""
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., state: str | None = ..., queue: str | None = ..., since: datetime | str | None = ..., until: datetime | str | None = ..., group: str | None = ..., tag: str | None = ..., metadata: Mapping[str, Any] = ...) -> Plain:
        """List runs, newest first: those that ran and those that did not."""
    def logs(self, run: str, *, attempt: int | None = ..., after: str = ...) -> Plain:
        """Show what the attempts of a run say: the head and the tail of their output, also while one runs."""
    def report(self, run: str, *, reason: str = ..., dry_run: bool = ..., fence: int, outcome: Any) -> Plain:
        """Tell how a run goes that someone outside executes; an answer from a lost lease changes nothing."""
    def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Give a parked run its attempts back; the only way out of park."""
    def retry(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Try a failed or cancelled run again: the same row, and the fence goes on."""

class Queues:
    def add(self, queue: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., payloads: Sequence[Any] = ..., priority: int = ..., not_before: datetime | str | None = ..., client_key: str = ...) -> Plain:
        """Put entries into a queue; each waits until someone leases it."""
    def complete(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., result: Any = ..., cost: Any | None = ...) -> Plain:
        """Say that the work of a lease is done."""
    def drain(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ...) -> Plain:
        """Lease and complete entries in order, one after another, obeying ceiling and backoff."""
    def import_(self, queue: str, *, reason: str = ..., dry_run: bool = ..., file: Any) -> Plain:
        """Take over the entries of a queue file, all or none: same order, attempts, leases and park."""
    def lease(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ..., holder: str = ..., length: timedelta | str | None = ...) -> Plain:
        """Lease what a queue would hand out now, under its ceiling; leases that are over are reclaimed first."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the queues of the namespace with what waits in them."""
    def plan(self, queue: str, *, now: datetime | str | None = ...) -> Plain:
        """Show what a queue would lease, and what waits and why; nothing changes."""
    def policy_check(self, *, file: Any) -> Plain:
        """Read a policy file and show what it would change, without keeping it."""
    def policy_set(self, queue: str, *, reason: str = ..., dry_run: bool = ..., max_concurrent: Any = ..., max_attempts: Any = ..., lease: Any = ..., backoff: Any = ..., exhausted: Any = ..., ageing: Any = ..., **others: Any) -> Plain:
        """Change the policy of a queue; its ceiling holds from this commit on."""
    def policy_show(self, queue: str) -> Plain:
        """Show the policy a queue stands under; one that nobody set is the cautious one."""
    def reclaim(self, queue: str = ..., *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Take back every lease that is over; each counts one failed attempt."""
    def release(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., failed: bool = ..., error: str = ..., cost: Any | None = ...) -> Plain:
        """Give a lease back: cleanly, and the run is ready as it was; or as failed, at the cost of an attempt."""
    def renew(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., length: timedelta | str | None = ...) -> Plain:
        """Prolong a lease while its work is alive; the answer says whether the run was asked to stop."""
    def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Give a parked entry its attempts back; the only way out of park."""
    def show(self, queue: str, *, limit: int = ..., cursor: str = ..., state: str | None = ...) -> Plain:
        """Show a queue: its policy, its counts, and its entries in the order they would start."""

class Hints:
    def clear(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Forget every wish; the next time is decided again without them."""
    def interval(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., interval: timedelta | str, ttl: timedelta | str = ...) -> Plain:
        """Wish for another interval; it may come nearer at once, never further, and expires by itself."""
    def list(self, schedule: str) -> Plain:
        """Show the wishes in force, and when the schedule would run without them."""
    def once(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., after: timedelta | str | None = ..., ttl: timedelta | str = ...) -> Plain:
        """Wish for one run at an instant; the run that uses it uses it up."""
    def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> Plain:
        """Wish for quiet until an instant, at most an hour ahead; longer is for a person to say."""

class Limits:
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the named limits and how full each is."""
    def set(self, limit: str, *, reason: str = ..., dry_run: bool = ..., most: int) -> Plain:
        """Set how many live leases a named limit admits; it holds from this commit on."""

class Budgets:
    def delete(self, budget: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a budget that no schedule names; what waited for it may start."""
    def get(self, budget: str) -> Plain:
        """Show a budget, how much of it is left, who names it and how many runs wait for it."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the budgets and how much is left of each."""
    def set(self, budget: str, *, reason: str = ..., dry_run: bool = ..., unit: str, limit: str | float, period: str = ..., zone: str = ..., currency: str = ..., principal: str = ..., host: str = ..., function: str = ..., queue: str = ..., provider: str = ...) -> Plain:
        """Set how much may be spent in a period; what waited for it looks again at once."""
    def usage(self, budget: str, *, periods: int = ...) -> Plain:
        """Show how much was spent of a budget in each period, the newest first."""

class Providers:
    def close(self, provider: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> Plain:
        """Let nothing start before an instant that names this provider; runs wait and are not failed."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the providers, until when each is closed and why."""
    def open(self, provider: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Open a provider before its time; what waited for it may start at once."""

class Calendars:
    def delete(self, calendar: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a calendar that no schedule names."""
    def get(self, calendar: str) -> Plain:
        """Show a calendar and who uses it."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the calendars of the namespace."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., holidays: str = ..., subdivision: str = ..., years: str = ..., ical: str = ..., zone: Any = ..., dates: Any = ..., yearly: Any = ..., ranges: Any = ..., weekly: Any = ..., spans: Any = ..., names: Any = ..., **others: Any) -> Plain:
        """Create a calendar or replace all of it; schedules that name it see it at their next decision."""
    def refresh(self, calendar: str, *, reason: str = ..., dry_run: bool = ..., years: str = ...) -> Plain:
        """Read the holidays of a calendar again; what changed is a new revision, and nothing else is."""

class Groups:
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the groups that schedules belong to."""
    def pause(self, group: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> Plain:
        """Pause every active schedule of a group; those that stand still already are left alone."""
    def resume(self, group: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Resume what the pause of the group stopped; what someone paused or parked by itself stays so."""

class Keys:
    def create(self, key: str, *, reason: str = ..., dry_run: bool = ..., role: str | None = ..., scopes: Sequence[str] = ..., within: Sequence[str] = ..., origin: str = ..., expires_in: timedelta | str = ...) -> Plain:
        """Make a key; its token is shown once, and only a keyed hash of it is kept."""
    def get(self, key: str) -> Plain:
        """Show a key: what it permits, until when, and when it was last used."""
    def list(self, *, limit: int = ..., cursor: str = ..., all: bool = ...) -> Plain:
        """List the keys that open this namespace."""
    def revoke(self, key: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Close a key for good, from this commit on; it stays in the list of all keys."""
    def rotate(self, key: str, *, reason: str = ..., dry_run: bool = ..., overlap: timedelta | str = ..., expires_in: timedelta | str = ...) -> Plain:
        """Replace a key by a new one that permits the same; the old one opens until the overlap is over."""

class Secrets:
    def delete(self, secret: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a secret that no schedule names."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the names of the secrets, and when each was set; never a value."""
    def rotate(self, *, reason: str = ..., dry_run: bool = ..., everywhere: bool = ...) -> Plain:
        """Lock every secret again under the secret key in use, after a new one was put first in its file."""
    def set(self, secret: str, *, reason: str = ..., dry_run: bool = ..., value: str) -> Plain:
        """Keep a value under a name, locked; it is never shown again, and the next launch uses it."""

class Namespaces:
    def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: Any = ..., schedules: Any = ..., shortest_interval: Any = ..., emissions_per_minute: Any = ..., triggers_per_minute: Any = ..., requests_per_minute: Any = ..., backlog: Any = ..., body_bytes: Any = ..., agent_shortest_interval: Any = ..., agent_emissions_per_minute: Any = ..., agent_approval: Any = ..., agent_longest_life: Any = ..., agent_longest_hint: Any = ..., advisor_tokens_per_month: Any = ..., **others: Any) -> Plain:
        """Set up a namespace with quotas of its own."""
    def get(self, name: str = ...) -> Plain:
        """Show what a namespace allows, and how much of it is used."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the namespaces that the caller may enter."""
    def set(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: Any = ..., schedules: Any = ..., shortest_interval: Any = ..., emissions_per_minute: Any = ..., triggers_per_minute: Any = ..., requests_per_minute: Any = ..., backlog: Any = ..., body_bytes: Any = ..., agent_shortest_interval: Any = ..., agent_emissions_per_minute: Any = ..., agent_approval: Any = ..., agent_longest_life: Any = ..., agent_longest_hint: Any = ..., advisor_tokens_per_month: Any = ..., **others: Any) -> Plain:
        """Change what a namespace allows; it holds from this commit on."""

class Workflows:
    def delete(self, workflow: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Delete a workflow and retire its schedules; runs under way go on, and its versions stay."""
    def get(self, workflow: str, *, version: int | None = ...) -> Plain:
        """Show a workflow as it was put: the newest version, or an older one."""
    def graph(self, workflow: str, *, version: int | None = ..., run: str = ...) -> Plain:
        """Draw a workflow as text, layer by layer; with a run, with the state of each step."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the workflows of the namespace, each with its newest version and its schedules."""
    def pause(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Start no further steps of a workflow run; what is under way goes on, its time limit stands still."""
    def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., version: Any = ..., description: Any = ..., steps: Any = ..., input: Any = ..., time_limit: Any = ..., executor: Any = ..., schedules: Any = ..., **others: Any) -> Plain:
        """Keep a new version of a workflow and deploy its schedules; the same words again change nothing."""
    def resume(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a paused workflow run go on; one that is not paused stays as it is."""
    def run(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ..., input: Mapping[str, Any] = ..., user: str = ..., like: str = ..., client_key: str = ...) -> Plain:
        """Run a workflow now; its run remembers the version and the input it was started with."""

class Reminders:
    def cancel(self, reminder: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a reminder not come any more; what it has said stays in the history."""
    def list(self, *, limit: int = ..., cursor: str = ..., over: bool = ...) -> Plain:
        """List reminders by name."""
    def set(self, *, reason: str = ..., dry_run: bool = ..., text: str, at: datetime | str | None = ..., after: timedelta | str | None = ..., every: timedelta | str | None = ..., cron: str = ..., zone: str = ..., name: str = ..., force: bool = ...) -> Plain:
        """Set a reminder; when it is due its text is the result of a run."""
    def snooze(self, reminder: str, *, reason: str = ..., dry_run: bool = ..., after: timedelta | str = ...) -> Plain:
        """Let a reminder come once more after a while, also one that is over; its other times stay."""

class Approvals:
    def approve(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a schedule begin from now on; only a person can."""
    def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List what agents scheduled and nobody has approved yet; none of it runs."""
    def reject(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Turn a schedule away before it ever ran: it is archived with the reason; only a person can."""

class Analyses:
    def due(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the adaptive schedules that deserve a look: never seen, their time has come, failures rose."""
    def get(self, analysis: str) -> Plain:
        """Show one analysis with every tool that was used, what it was told, and what was refused."""
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ...) -> Plain:
        """List what the planner has looked at, newest first; of each schedule the last twenty are kept."""
    def submit(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., advisor: str, reasoning: str, model: str = ..., tools: Sequence[Any] = ..., proposals: Sequence[str] = ..., confidence: str = ..., tokens: int = ..., cost: float = ..., took: timedelta | str = ..., warnings: Sequence[str] = ..., look_again_in: timedelta | str | None = ...) -> Plain:
        """Keep what one look at a schedule came to, and when to look again; the next look is planned by it."""

class Instances:
    def list(self) -> Plain:
        """List the instances that run what is due, with how full each is and when it was last heard of."""

class Audit:
    def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., subject: str = ..., actor: str = ..., origin: str = ..., action: str = ..., since: datetime | str | None = ..., until: datetime | str | None = ...) -> Plain:
        """List who changed what, newest first."""
    def verify(self) -> Plain:
        """Check the hash chain of the audit log, from its first line to its last."""

class AsyncSchedules:
    async def archive(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Retire a schedule for good; its history stays, and its name is free for another."""
    async def backfill(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., since: datetime | str, until: datetime | str | None = ...) -> Plain:
        """Run past occurrences, again or for the first time; what is written of them stays."""
    async def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., force: bool = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Keep a new schedule and decide its first time; a name that is taken is refused."""
    async def delete(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Delete a schedule, which is to archive it: nothing that happened is forgotten."""
    async def explain(self, schedule: str, *, at: datetime | str | None = ..., last: bool = ...) -> Plain:
        """Say why an occurrence ran, did not, or will: at an instant, the last, or the next."""
    async def feed(self, *, tag: str | None = ..., group: str | None = ..., days: int = ...) -> Plain:
        """Write the next occurrences of some schedules as an iCalendar text, for others to show."""
    async def get(self, schedule: str) -> Plain:
        """Show one schedule: what it says, where it stands, and its next five times."""
    async def health(self, schedule: str) -> Plain:
        """Show how a schedule does: failures in a row, rates and durations over 1, 4 and 24 hours."""
    async def list(self, *, limit: int = ..., cursor: str = ..., state: str | None = ..., group: str | None = ..., tag: str | None = ..., name_starts: str = ..., waits_for: str | None = ..., metadata: Mapping[str, Any] = ...) -> Plain:
        """List schedules by name; archived ones are listed only when asked for."""
    async def move(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: datetime | str) -> Plain:
        """Run the next occurrence at another instant: its own is left out, a run by hand takes its place."""
    async def next(self, schedule: str = ..., *, count: int = ..., after: datetime | str | None = ..., until: datetime | str | None = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., trigger: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., name: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., target: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Show the next occurrences of a schedule, or of a trigger that is not stored, and their fate."""
    async def note(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., text: str = ..., remove: bool = ...) -> Plain:
        """Write a note beside one occurrence, or take it away; it is shown before it runs and after."""
    async def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> Plain:
        """Stop a schedule until an instant, or until someone resumes it; work under way goes on."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., force: bool = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Create a schedule or replace all of it, by its name; the same words again change nothing."""
    async def restore(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., to: int) -> Plain:
        """Bring back what a schedule said at an earlier revision, as a new one."""
    async def resume(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a paused or parked schedule go on; its failures are forgiven, what the pause covered is skipped."""
    async def revisions(self, schedule: str, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List what a schedule said, newest first, with who changed what and why."""
    async def run(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., force: bool = ..., payload: Any = ..., client_key: str = ...) -> Plain:
        """Run a schedule now, or once more at an instant ahead; its next time stays as it was."""
    async def skip(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., count: int = ...) -> Plain:
        """Leave the next occurrence out: it is recorded as skipped by hand, and the one after it is next."""
    async def strips(self, *, schedules: Sequence[str], each: int = ...) -> Plain:
        """Show the newest occurrences of several schedules, those that ran and those that did not."""
    async def test(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., time_limit: timedelta | str = ...) -> Plain:
        """Start a schedule's target once, now, and say what came of it; nothing is recorded, nothing moves."""
    async def trends(self, schedule: str, *, each: int = ...) -> Plain:
        """Show the numbers in the results of a schedule's newest runs, each over time."""
    async def update(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., revision: int | None = ..., every: Any = ..., cron: Any = ..., rrule: Any = ..., zone: Any = ..., after: Any = ..., on: Any = ..., delay: Any = ..., at: Any = ..., manual: Any = ..., anchor: Any = ..., dst: Any = ..., note: Any = ..., http: Any = ..., headers: Any = ..., body: Any = ..., http_timeout: Any = ..., call: Any = ..., shell: Any = ..., handoff: Any = ..., max_attempts: Any = ..., backoff: Any = ..., time_limit: Any = ..., name: Any = ..., group: Any = ..., description: Any = ..., tags: Any = ..., metadata: Any = ..., preset: Any = ..., trigger: Any = ..., target: Any = ..., start_at: Any = ..., end_at: Any = ..., max_runs: Any = ..., calendar: Any = ..., needs: Any = ..., align: Any = ..., catch_up: Any = ..., catch_up_limit: Any = ..., catch_up_window: Any = ..., grace: Any = ..., spread_over: Any = ..., overlap: Any = ..., queue_limit: Any = ..., jitter: Any = ..., jitter_side: Any = ..., offset: Any = ..., retry: Any = ..., cadence: Any = ..., disable_after: Any = ..., delivery: Any = ..., lease: Any = ..., deadline: Any = ..., queue: Any = ..., limits: Any = ..., budgets: Any = ..., provider: Any = ..., estimate: Any = ..., priority: Any = ..., adaptive: Any = ..., clamp: Any = ..., **others: Any) -> Plain:
        """Change some fields of a schedule; what was decided stays decided, its next time is decided again."""

class AsyncRuns:
    async def cancel(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Stop a run: at once if nobody holds it, otherwise its holder is asked and has its grace."""
    async def explain(self, run: str) -> Plain:
        """Say why a run came to be, and why it ended, waits, or never started."""
    async def get(self, run: str) -> Plain:
        """Show one run with its identity, the decision behind it, and every attempt."""
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., state: str | None = ..., queue: str | None = ..., since: datetime | str | None = ..., until: datetime | str | None = ..., group: str | None = ..., tag: str | None = ..., metadata: Mapping[str, Any] = ...) -> Plain:
        """List runs, newest first: those that ran and those that did not."""
    async def logs(self, run: str, *, attempt: int | None = ..., after: str = ...) -> Plain:
        """Show what the attempts of a run say: the head and the tail of their output, also while one runs."""
    async def report(self, run: str, *, reason: str = ..., dry_run: bool = ..., fence: int, outcome: Any) -> Plain:
        """Tell how a run goes that someone outside executes; an answer from a lost lease changes nothing."""
    async def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Give a parked run its attempts back; the only way out of park."""
    async def retry(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Try a failed or cancelled run again: the same row, and the fence goes on."""

class AsyncQueues:
    async def add(self, queue: str, *, reason: str = ..., dry_run: bool = ..., payload: Any = ..., payloads: Sequence[Any] = ..., priority: int = ..., not_before: datetime | str | None = ..., client_key: str = ...) -> Plain:
        """Put entries into a queue; each waits until someone leases it."""
    async def complete(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., result: Any = ..., cost: Any | None = ...) -> Plain:
        """Say that the work of a lease is done."""
    async def drain(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ...) -> Plain:
        """Lease and complete entries in order, one after another, obeying ceiling and backoff."""
    async def import_(self, queue: str, *, reason: str = ..., dry_run: bool = ..., file: Any) -> Plain:
        """Take over the entries of a queue file, all or none: same order, attempts, leases and park."""
    async def lease(self, queue: str, *, reason: str = ..., dry_run: bool = ..., limit: int = ..., holder: str = ..., length: timedelta | str | None = ...) -> Plain:
        """Lease what a queue would hand out now, under its ceiling; leases that are over are reclaimed first."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the queues of the namespace with what waits in them."""
    async def plan(self, queue: str, *, now: datetime | str | None = ...) -> Plain:
        """Show what a queue would lease, and what waits and why; nothing changes."""
    async def policy_check(self, *, file: Any) -> Plain:
        """Read a policy file and show what it would change, without keeping it."""
    async def policy_set(self, queue: str, *, reason: str = ..., dry_run: bool = ..., max_concurrent: Any = ..., max_attempts: Any = ..., lease: Any = ..., backoff: Any = ..., exhausted: Any = ..., ageing: Any = ..., **others: Any) -> Plain:
        """Change the policy of a queue; its ceiling holds from this commit on."""
    async def policy_show(self, queue: str) -> Plain:
        """Show the policy a queue stands under; one that nobody set is the cautious one."""
    async def reclaim(self, queue: str = ..., *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Take back every lease that is over; each counts one failed attempt."""
    async def release(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., failed: bool = ..., error: str = ..., cost: Any | None = ...) -> Plain:
        """Give a lease back: cleanly, and the run is ready as it was; or as failed, at the cost of an attempt."""
    async def renew(self, lease: str = ..., *, reason: str = ..., dry_run: bool = ..., run: str = ..., fence: int | None = ..., length: timedelta | str | None = ...) -> Plain:
        """Prolong a lease while its work is alive; the answer says whether the run was asked to stop."""
    async def reset(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Give a parked entry its attempts back; the only way out of park."""
    async def show(self, queue: str, *, limit: int = ..., cursor: str = ..., state: str | None = ...) -> Plain:
        """Show a queue: its policy, its counts, and its entries in the order they would start."""

class AsyncHints:
    async def clear(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Forget every wish; the next time is decided again without them."""
    async def interval(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., interval: timedelta | str, ttl: timedelta | str = ...) -> Plain:
        """Wish for another interval; it may come nearer at once, never further, and expires by itself."""
    async def list(self, schedule: str) -> Plain:
        """Show the wishes in force, and when the schedule would run without them."""
    async def once(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., at: datetime | str | None = ..., after: timedelta | str | None = ..., ttl: timedelta | str = ...) -> Plain:
        """Wish for one run at an instant; the run that uses it uses it up."""
    async def pause(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> Plain:
        """Wish for quiet until an instant, at most an hour ahead; longer is for a person to say."""

class AsyncLimits:
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the named limits and how full each is."""
    async def set(self, limit: str, *, reason: str = ..., dry_run: bool = ..., most: int) -> Plain:
        """Set how many live leases a named limit admits; it holds from this commit on."""

class AsyncBudgets:
    async def delete(self, budget: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a budget that no schedule names; what waited for it may start."""
    async def get(self, budget: str) -> Plain:
        """Show a budget, how much of it is left, who names it and how many runs wait for it."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the budgets and how much is left of each."""
    async def set(self, budget: str, *, reason: str = ..., dry_run: bool = ..., unit: str, limit: str | float, period: str = ..., zone: str = ..., currency: str = ..., principal: str = ..., host: str = ..., function: str = ..., queue: str = ..., provider: str = ...) -> Plain:
        """Set how much may be spent in a period; what waited for it looks again at once."""
    async def usage(self, budget: str, *, periods: int = ...) -> Plain:
        """Show how much was spent of a budget in each period, the newest first."""

class AsyncProviders:
    async def close(self, provider: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str) -> Plain:
        """Let nothing start before an instant that names this provider; runs wait and are not failed."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the providers, until when each is closed and why."""
    async def open(self, provider: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Open a provider before its time; what waited for it may start at once."""

class AsyncCalendars:
    async def delete(self, calendar: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a calendar that no schedule names."""
    async def get(self, calendar: str) -> Plain:
        """Show a calendar and who uses it."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the calendars of the namespace."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., holidays: str = ..., subdivision: str = ..., years: str = ..., ical: str = ..., zone: Any = ..., dates: Any = ..., yearly: Any = ..., ranges: Any = ..., weekly: Any = ..., spans: Any = ..., names: Any = ..., **others: Any) -> Plain:
        """Create a calendar or replace all of it; schedules that name it see it at their next decision."""
    async def refresh(self, calendar: str, *, reason: str = ..., dry_run: bool = ..., years: str = ...) -> Plain:
        """Read the holidays of a calendar again; what changed is a new revision, and nothing else is."""

class AsyncGroups:
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the groups that schedules belong to."""
    async def pause(self, group: str, *, reason: str = ..., dry_run: bool = ..., until: datetime | str | None = ...) -> Plain:
        """Pause every active schedule of a group; those that stand still already are left alone."""
    async def resume(self, group: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Resume what the pause of the group stopped; what someone paused or parked by itself stays so."""

class AsyncKeys:
    async def create(self, key: str, *, reason: str = ..., dry_run: bool = ..., role: str | None = ..., scopes: Sequence[str] = ..., within: Sequence[str] = ..., origin: str = ..., expires_in: timedelta | str = ...) -> Plain:
        """Make a key; its token is shown once, and only a keyed hash of it is kept."""
    async def get(self, key: str) -> Plain:
        """Show a key: what it permits, until when, and when it was last used."""
    async def list(self, *, limit: int = ..., cursor: str = ..., all: bool = ...) -> Plain:
        """List the keys that open this namespace."""
    async def revoke(self, key: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Close a key for good, from this commit on; it stays in the list of all keys."""
    async def rotate(self, key: str, *, reason: str = ..., dry_run: bool = ..., overlap: timedelta | str = ..., expires_in: timedelta | str = ...) -> Plain:
        """Replace a key by a new one that permits the same; the old one opens until the overlap is over."""

class AsyncSecrets:
    async def delete(self, secret: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Remove a secret that no schedule names."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the names of the secrets, and when each was set; never a value."""
    async def rotate(self, *, reason: str = ..., dry_run: bool = ..., everywhere: bool = ...) -> Plain:
        """Lock every secret again under the secret key in use, after a new one was put first in its file."""
    async def set(self, secret: str, *, reason: str = ..., dry_run: bool = ..., value: str) -> Plain:
        """Keep a value under a name, locked; it is never shown again, and the next launch uses it."""

class AsyncNamespaces:
    async def create(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: Any = ..., schedules: Any = ..., shortest_interval: Any = ..., emissions_per_minute: Any = ..., triggers_per_minute: Any = ..., requests_per_minute: Any = ..., backlog: Any = ..., body_bytes: Any = ..., agent_shortest_interval: Any = ..., agent_emissions_per_minute: Any = ..., agent_approval: Any = ..., agent_longest_life: Any = ..., agent_longest_hint: Any = ..., advisor_tokens_per_month: Any = ..., **others: Any) -> Plain:
        """Set up a namespace with quotas of its own."""
    async def get(self, name: str = ...) -> Plain:
        """Show what a namespace allows, and how much of it is used."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the namespaces that the caller may enter."""
    async def set(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., description: Any = ..., schedules: Any = ..., shortest_interval: Any = ..., emissions_per_minute: Any = ..., triggers_per_minute: Any = ..., requests_per_minute: Any = ..., backlog: Any = ..., body_bytes: Any = ..., agent_shortest_interval: Any = ..., agent_emissions_per_minute: Any = ..., agent_approval: Any = ..., agent_longest_life: Any = ..., agent_longest_hint: Any = ..., advisor_tokens_per_month: Any = ..., **others: Any) -> Plain:
        """Change what a namespace allows; it holds from this commit on."""

class AsyncWorkflows:
    async def delete(self, workflow: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Delete a workflow and retire its schedules; runs under way go on, and its versions stay."""
    async def get(self, workflow: str, *, version: int | None = ...) -> Plain:
        """Show a workflow as it was put: the newest version, or an older one."""
    async def graph(self, workflow: str, *, version: int | None = ..., run: str = ...) -> Plain:
        """Draw a workflow as text, layer by layer; with a run, with the state of each step."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the workflows of the namespace, each with its newest version and its schedules."""
    async def pause(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Start no further steps of a workflow run; what is under way goes on, its time limit stands still."""
    async def put(self, name: str = ..., *, reason: str = ..., dry_run: bool = ..., version: Any = ..., description: Any = ..., steps: Any = ..., input: Any = ..., time_limit: Any = ..., executor: Any = ..., schedules: Any = ..., **others: Any) -> Plain:
        """Keep a new version of a workflow and deploy its schedules; the same words again change nothing."""
    async def resume(self, run: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a paused workflow run go on; one that is not paused stays as it is."""
    async def run(self, workflow: str, *, reason: str = ..., dry_run: bool = ..., version: int | None = ..., input: Mapping[str, Any] = ..., user: str = ..., like: str = ..., client_key: str = ...) -> Plain:
        """Run a workflow now; its run remembers the version and the input it was started with."""

class AsyncReminders:
    async def cancel(self, reminder: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a reminder not come any more; what it has said stays in the history."""
    async def list(self, *, limit: int = ..., cursor: str = ..., over: bool = ...) -> Plain:
        """List reminders by name."""
    async def set(self, *, reason: str = ..., dry_run: bool = ..., text: str, at: datetime | str | None = ..., after: timedelta | str | None = ..., every: timedelta | str | None = ..., cron: str = ..., zone: str = ..., name: str = ..., force: bool = ...) -> Plain:
        """Set a reminder; when it is due its text is the result of a run."""
    async def snooze(self, reminder: str, *, reason: str = ..., dry_run: bool = ..., after: timedelta | str = ...) -> Plain:
        """Let a reminder come once more after a while, also one that is over; its other times stay."""

class AsyncApprovals:
    async def approve(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Let a schedule begin from now on; only a person can."""
    async def list(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List what agents scheduled and nobody has approved yet; none of it runs."""
    async def reject(self, schedule: str, *, reason: str = ..., dry_run: bool = ...) -> Plain:
        """Turn a schedule away before it ever ran: it is archived with the reason; only a person can."""

class AsyncAnalyses:
    async def due(self, *, limit: int = ..., cursor: str = ...) -> Plain:
        """List the adaptive schedules that deserve a look: never seen, their time has come, failures rose."""
    async def get(self, analysis: str) -> Plain:
        """Show one analysis with every tool that was used, what it was told, and what was refused."""
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ...) -> Plain:
        """List what the planner has looked at, newest first; of each schedule the last twenty are kept."""
    async def submit(self, schedule: str, *, reason: str = ..., dry_run: bool = ..., advisor: str, reasoning: str, model: str = ..., tools: Sequence[Any] = ..., proposals: Sequence[str] = ..., confidence: str = ..., tokens: int = ..., cost: float = ..., took: timedelta | str = ..., warnings: Sequence[str] = ..., look_again_in: timedelta | str | None = ...) -> Plain:
        """Keep what one look at a schedule came to, and when to look again; the next look is planned by it."""

class AsyncInstances:
    async def list(self) -> Plain:
        """List the instances that run what is due, with how full each is and when it was last heard of."""

class AsyncAudit:
    async def list(self, *, limit: int = ..., cursor: str = ..., schedule: str = ..., subject: str = ..., actor: str = ..., origin: str = ..., action: str = ..., since: datetime | str | None = ..., until: datetime | str | None = ...) -> Plain:
        """List who changed what, newest first."""
    async def verify(self) -> Plain:
        """Check the hash chain of the audit log, from its first line to its last."""
