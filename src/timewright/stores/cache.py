"""In-memory cache of decoded rows. A committed revision never changes."""

from __future__ import annotations

from time import monotonic

from msgspec import Struct

from timewright.core.budgets.budgets import BudgetCatalog
from timewright.core.run.needs import Offer
from timewright.core.schedule.schedule import Schedule
from timewright.ports import Page, ScheduleRecord
from timewright.ports.objects import StoredChannel
from timewright.ports.schedules import ScheduleListRow, ScheduleSnapshot
from timewright.stores.rows import Row

MAX_CACHED_REVISIONS = 20_000
MAX_CACHED_ROWS = 4_096
MAX_CACHED_PAGES = 128
CACHE_TTL_S = 60.0
NO_BUDGETS_TTL_S = 1.0

RevisionKey = tuple[str, int]
# Everything a page depends on: namespace, limit, and all its rows as one text.
PageKey = tuple[str, int, str]


class BucketList(Struct, frozen=True):
    """The ready buckets up to an id, and those of them that an offer can serve."""

    newest: int = 0
    buckets: tuple[str, ...] = ("",)
    offer: Offer | None = None
    served: tuple[str, ...] = ()


class ProbeMemory(Struct, frozen=True):
    """Where the next probe for pending work may begin, and how far the past before that was searched.

    Handled rows leave dead index entries, which PostgreSQL keeps while any session may still see them. A
    probe that passes all of them takes ever longer, so probes before `search_at` begin at the first rows that
    the last one found. If complete probes are slow (`is_partial`), the past is searched in slices, from the
    newest to the oldest.
    """

    since: int = 0
    """Nothing waits before this instant, as far as is known."""
    leased_since: int = 0
    """No lease under way began before this instant, as far as is known."""
    is_partial: bool = False
    slow_in_a_row: int = 0
    searched_to: int = 0
    """Where the next slice ends; 0 if no search has begun."""
    slices: int = 0
    slice_micros: int = 1_000_000
    search_at: float = 0.0
    lease_end: int | None = None
    lease_end_until: int = 0
    """Until when by the store's clock the end of a lease is not searched again, unless it comes before."""


class RowCache:
    """Decoded schedules by id and revision, shared by all transactions of a store.

    Everything is dropped once a minute, so a store restored from a backup is soon read anew. `is_sole_writer`
    says that no other process can write.
    """

    def __init__(self, *, is_sole_writer: bool = False) -> None:
        self.is_sole_writer = is_sole_writer
        self._revisions: dict[RevisionKey, Schedule] = {}
        self._records: dict[str, tuple[Row, ScheduleRecord]] = {}
        self._snapshots: dict[str, tuple[Row, ScheduleSnapshot]] = {}
        # Decoded list rows by their JSON line, which contains the whole row.
        self.list_rows: dict[str, ScheduleListRow] = {}
        self._pages: dict[PageKey, Page] = {}
        self._since = monotonic()
        self.budgets: tuple[int, BudgetCatalog] | None = None
        self.no_budgets_since = -CACHE_TTL_S
        self.buckets = BucketList()
        self.probe = ProbeMemory()
        # Buckets that are committed: the listed ones, and others that a writer has found.
        self.known_buckets: set[str] = set()
        # Whether no entry of the audit log can be left that is older than the last one in its hash chain.
        self.is_audit_in_order = False
        # The channels, and when they were read.
        self.channels: tuple[float, tuple[StoredChannel, ...]] | None = None

    def revisions(self) -> dict[RevisionKey, Schedule]:
        """Return the cached definitions, after expiry."""
        self.expire()
        return self._revisions

    def expire(self) -> None:
        """Clear the cache CACHE_TTL_S after it was last cleared."""
        if monotonic() - self._since > CACHE_TTL_S:
            self._revisions, self._records, self._since = {}, {}, monotonic()
            self._snapshots, self.list_rows, self._pages = {}, {}, {}
            self.budgets = None
            self.buckets, self.known_buckets = BucketList(), set()

    def has_no_budgets(self) -> bool:
        """Whether there were no budgets within the last NO_BUDGETS_TTL_S.

        As the sole writer we know that there are none until we write one.
        """
        return (
            self.no_budgets_since > 0
            if self.is_sole_writer
            else monotonic() - self.no_budgets_since < NO_BUDGETS_TTL_S
        )

    def get_record(self, row: Row) -> ScheduleRecord | None:
        """Return the decoded form of a row, if the row is unchanged."""
        known = self._records.get(row[0])
        return known[1] if known is not None and known[0] == row else None

    def keep_record(self, row: Row, record: ScheduleRecord) -> None:
        """Cache the decoded form of a row together with the row."""
        if len(self._records) >= MAX_CACHED_ROWS:
            self._records = {}
        self._records[row[0]] = (row, record)

    def get_snapshot(self, row: Row) -> ScheduleSnapshot | None:
        """Return the cached snapshot of a row, if the row is unchanged."""
        known = self._snapshots.get(row[0])
        return known[1] if known is not None and known[0] == row else None

    def keep_snapshot(self, row: Row, snapshot: ScheduleSnapshot) -> None:
        """Cache the snapshot of a row together with the row."""
        if len(self._snapshots) >= MAX_CACHED_ROWS:
            self._snapshots = {}
        self._snapshots[row[0]] = (row, snapshot)

    def keep_list_rows(self, read: dict[str, ScheduleListRow]) -> None:
        """Cache decoded list rows by their line."""
        if len(self.list_rows) + len(read) > MAX_CACHED_ROWS:
            self.list_rows = {}
        self.list_rows |= read

    def get_page(self, key: PageKey) -> Page | None:
        """Return the cached page for these rows."""
        return self._pages.get(key)

    def keep_page(self, key: PageKey, page: Page) -> None:
        """Cache a page under its rows."""
        if len(self._pages) >= MAX_CACHED_PAGES:
            self._pages = {}
        self._pages[key] = page

    def keep_revisions(self, read: dict[RevisionKey, Schedule]) -> None:
        """Cache definitions; a full cache is cleared first."""
        if len(self._revisions) + len(read) > MAX_CACHED_REVISIONS:
            self._revisions = {}
        self._revisions |= read
