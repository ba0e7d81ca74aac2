"""Stories that once differed, as small as they could be made.

Each has the definition, whether the runs succeed and how long they take, and the requests before each step of
time, whether an instance runs, and how long.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.stories import Request

LADDER = {"ladder": {"steps": ["40s", "200s"]}}
RETRY = {"max_attempts": 3, "backoff": {"constant": {"wait": "7s"}}}

SAVED: dict[str, tuple[dict[str, Any], list[tuple[bool, int]], list[tuple[list[Request], str, int]]]] = {
    "an edit does not change what was missed before it": (
        {"every": "300s", "catch_up": "all", "overlap": "replace"},
        [(True, 100)],
        [([], "outage", 1800), ([("edit", {"catch_up": "none"})], "live", 1800)],
    ),
    "a one-shot hint leaves the interval from now as it is": (
        {"preset": "adaptive", "every": "300s"},
        [(True, 0)],
        [([("skip", {})], "live", 60), ([("once", {"at": 400, "ttl": 500})], "live", 600)],
    ),
    "a cadence replaces what came due before a late failure disabled the schedule (ruling 1)": (
        {"preset": "desktop", "every": "120s"},
        [(True, 0), (True, 0), (True, 0), (True, 0), (False, 0)],
        [([], "live", 1800), ([], "outage", 1200), ([("resume", {})], "live", 4000)],
    ),
    "a hint for one instant does not repeat one that was skipped by hand (§3.1)": (
        {"preset": "adaptive", "every": "420s"},
        [(True, 0)],
        [
            ([("interval", {"interval": 30, "ttl": 100})], "live", 30),
            ([("skip", {}), ("once", {"at": 400, "ttl": 500})], "live", 300),
        ],
    ),
    "clearing hints in a pause records nothing that an interval hint replaced (ruling 1)": (
        {"preset": "routine", "every": "300s", "adaptive": True},
        [(True, 0)],
        [
            ([("interval", {"interval": 1000, "ttl": 600}), ("pause_hint", {"until": 1700})], "live", 600),
            ([("clear", {})], "live", 60),
        ],
    ),
    "asking again does not put off an interval that an edit made shorter (ruling 3)": (
        {"preset": "adaptive", "every": "3600s"},
        [(True, 0)],
        [([], "live", 300), ([("edit", {"every": "300s"})], "live", 90), ([("clear", {})], "live", 5)],
    ),
    "behind a backlog that is too old, a late occurrence overlaps what is spread (ruling 6)": (
        {"preset": "desktop", "every": "120s", "catch_up": "spread", "catch_up_window": "130s"},
        [(True, 0)],
        [([], "live", 90), ([], "outage", 240), ([], "outage", 300)],
    ),
    "a hint for one instant stands beside an interval hint during an outage": (
        {"every": "120s", "adaptive": True},
        [(True, 0)],
        [
            (
                [("once", {"at": 400, "ttl": 1800}), ("interval", {"interval": 30, "ttl": 600})],
                "outage",
                1200,
            )
        ],
    ),
    "a run by hand that ends a streak leaves the next time after a skip": (
        {"preset": "adaptive", "every": "420s"},
        [(False, 0), (False, 0), (True, 0)],
        [([], "live", 1800), ([("skip", {}), ("run", {})], "live", 60)],
    ),
    "an interval hint counts from the start of a run that began before it": (
        {"preset": "adaptive", "every": "300s"},
        [(True, 300)],
        [
            ([("interval", {"interval": 130, "ttl": 600})], "live", 240),
            ([("interval", {"interval": 1000, "ttl": 3600})], "live", 785),
            ([], "live", 1800),
        ],
    ),
    "a run by hand succeeds at the instant of the second failure": (
        {"preset": "adaptive", "every": "60s", "catch_up": "all", "grace": "10s"},
        [(True, 0), (False, 0), (False, 0), (True, 0)],
        [([], "live", 240), ([("run", {})], "outage", 1200), ([], "live", 600)],
    ),
    "a run that ends a streak opens what was replaced before a later instant of the cadence (ruling 23)": (
        {"preset": "desktop", "every": "90s", "catch_up": "spread"},
        [(False, 0), (True, 0)],
        [([], "live", 90), ([], "outage", 4000), ([], "outage", 300)],
    ),
    "a decision after the end of a hint stands": (
        {"preset": "adaptive", "every": "90s"},
        [(True, 90)],
        [
            ([], "live", 1800),
            ([("interval", {"interval": 60, "ttl": 100}), ("once", {"at": 60, "ttl": 1800})], "live", 5),
            ([], "outage", 300),
        ],
    ),
    "clearing hints changes nothing if there are none: a failure by hand leaves the next time (ruling 25)": (
        {"preset": "adaptive", "every": "3600s"},
        [(False, 0)],
        [([("run", {})], "live", 90), ([("clear", {})], "live", 600)],
    ),
    "clearing hints also decides again what an expired hint asked for": (
        {"preset": "adaptive", "every": "420s"},
        [(True, 0)],
        [
            ([("interval", {"interval": 130, "ttl": 600})], "live", 600),
            ([("clear", {})], "live", 4000),
        ],
    ),
    "a cadence replaces what the trigger has at the very start of a pause (ruling 1)": (
        {"preset": "desktop", "every": "60s"},
        [*[(True, 0)] * 9, (False, 0)],
        [
            ([], "live", 1200),
            ([("pause", {"until": 1700})], "live", 300),
            ([("resume", {})], "live", 1800),
        ],
    ),
    "an edit at the start of a pause plans nothing at that instant": (
        {"preset": "routine", "every": "3600s"},
        [(True, 0)],
        [
            ([], "live", 1800),
            ([("pause", {"until": None}), ("edit", {"every": "300s"})], "live", 90),
            ([("resume", {})], "live", 600),
        ],
    ),
    "skipping an instant behind the end of an interval hint does not end the hint": (
        {"every": "300s", "adaptive": True},
        [(True, 0)],
        [
            ([("interval", {"interval": 60, "ttl": 100})], "live", 65),
            ([("skip", {}), ("once", {"at": 400, "ttl": 1800})], "live", 300),
        ],
    ),
    "at the end of a pause the cadence decides again, by the trigger of an edit (ruling 2)": (
        {"cron": "* * * * *", "cadence": LADDER},
        [(False, 0)],
        [([], "live", 4000), ([("pause", {"until": 60}), ("edit", {"every": "300s"})], "live", 785)],
    ),
    "a hint for a skipped instant does not run it beside an interval hint (§3.1)": (
        {"preset": "adaptive", "every": "420s"},
        [(True, 0)],
        [
            ([], "live", 60),
            ([("skip", {})], "live", 300),
            (
                [("interval", {"interval": 30, "ttl": 3600}), ("once", {"at": 60, "ttl": 500})],
                "live",
                240,
            ),
        ],
    ),
    "a pause leaves what an edit planned in a streak of failures": (
        {"preset": "desktop", "every": "600s"},
        [(True, 0), (True, 0), (True, 0), (False, 0)],
        [([], "live", 4500), ([("edit", {"every": "900s"}), ("pause", {"until": 60})], "live", 60)],
    ),
    "a failure by hand keeps the trigger away when the next instant is admitted": (
        {"preset": "desktop", "every": "90s", "retry": RETRY},
        [(False, 0)],
        [([], "live", 60), ([("run", {})], "live", 30)],
    ),
    "after a failure by hand the cadence counts from its end, also while another run is under way": (
        {"preset": "queue", "every": "60s", "cadence": LADDER, "retry": RETRY},
        [(False, 0)],
        [([], "live", 4300), ([("run", {})], "live", 600)],
    ),
    "a hint for one instant stands behind a skip after an outage": (
        {"cron": "3,17,40 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 1200),
            ([("skip", {}), ("interval", {"interval": 30, "ttl": 600})], "live", 240),
            ([("once", {"at": 60, "ttl": 500})], "outage", 1200),
        ],
    ),
    "an interval that passed during a run counts from its end when a hint expires (ruling 3)": (
        {"preset": "adaptive", "every": "90s"},
        [(True, 300)],
        [([], "live", 1860), ([("interval", {"interval": 1000, "ttl": 100})], "live", 240)],
    ),
    "a run that ends when an interval hint expires leaves what stood (ruling 22)": (
        {"cron": "*/7 12-13 * * *", "adaptive": True},
        [(True, 90)],
        [([("interval", {"interval": 60, "ttl": 600})], "live", 600)],
    ),
    "at the end of a pause nothing is left of an expired hint (ruling 2)": (
        {"cron": "0 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([("interval", {"interval": 1000, "ttl": 100})], "live", 630),
            ([("pause", {"until": 1700})], "live", 5),
            ([("resume", {})], "live", 300),
        ],
    ),
    "a hint for a later instant hides nothing that a pause suppressed": (
        {"every": "3600s", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 60),
            ([("pause", {"until": 1700})], "live", 1440),
            ([("once", {"at": 400, "ttl": 1800}), ("edit", {"every": "120s"})], "live", 300),
        ],
    ),
    "a late engine runs what the cadence planned behind a skip and a pause": (
        {"every": "90s", "cadence": LADDER},
        [*[(True, 0)] * 11, (False, 0)],
        [([], "live", 1200), ([("skip", {}), ("pause", {"until": 60})], "outage", 1200)],
    ),
    "an interval hint that is over at a skipped instant asks for nothing behind it": (
        {"cron": "3,17,40 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 1500),
            ([("skip", {})], "live", 300),
            ([("interval", {"interval": 60, "ttl": 600})], "live", 785),
        ],
    ),
    "an interval is over at the instant that was skipped, and counts from the last start": (
        {"preset": "adaptive", "every": "600s"},
        [(True, 0)],
        [([("skip", {}), ("interval", {"interval": 30, "ttl": 600})], "live", 1200)],
    ),
    "an outage until a hint expires leaves what the hint replaced (ruling 1)": (
        {"preset": "queue", "every": "600s", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 90),
            ([("interval", {"interval": 130, "ttl": 600})], "outage", 600),
            ([("once", {"at": 400, "ttl": 1800})], "live", 1200),
        ],
    ),
    "an edit counts the interval from where a resume restarted it (ruling 3)": (
        {"preset": "adaptive", "every": "90s"},
        [*[(True, 0)] * 7, (False, 0)],
        [
            ([], "live", 4000),
            ([("pause_hint", {"until": 500}), ("resume", {})], "live", 5),
            ([("edit", {"every": "3600s"})], "live", 300),
        ],
    ),
    "a hint for one instant leaves the interval as it was decided before a success by hand (ruling 25)": (
        {"preset": "adaptive", "every": "300s"},
        [(True, 0), (False, 0), (False, 0), (True, 0)],
        [
            ([], "live", 1800),
            ([("run", {})], "live", 60),
            ([("once", {"at": 400, "ttl": 1800})], "live", 1800),
        ],
    ),
    "a resume when a late failure has just parked it plans from that start (ruling 3)": (
        {"preset": "adaptive", "every": "90s", "disable_after": 3},
        [(False, 0)],
        [([], "live", 600), ([], "outage", 1800), ([("resume", {})], "live", 30)],
    ),
    "a run that is replaced disables nothing, after a failure in a pause": (
        {
            "cron": "* * * * *",
            "overlap": "replace",
            "retry": {**RETRY, "max_attempts": 2},
            "disable_after": 1,
        },
        [(True, 0), (False, 90)],
        [([], "live", 1200), ([("pause", {"until": 500})], "live", 1800)],
    ),
    "an edit just before failures park the schedule takes over at the edit": (
        {"every": "600s", "catch_up": "spread", "retry": RETRY, "disable_after": 2},
        [(False, 0)],
        [([], "outage", 4000), ([("edit", {"every": "120s"})], "live", 1800)],
    ),
    "an edit at the very end of a pause plans from there": (
        {"every": "90s"},
        [(True, 0)],
        [([("pause", {"until": 60})], "live", 60), ([("edit", {"every": "60s"})], "live", 300)],
    ),
    "a second interval hint is decided again at its end, also if a skip was decided for later (ruling 22)": (
        {"preset": "adaptive", "every": "60s"},
        [(True, 0)],
        [
            ([("interval", {"interval": 1000, "ttl": 3600})], "live", 1200),
            ([("skip", {})], "live", 90),
            ([("interval", {"interval": 1000, "ttl": 600})], "live", 4000),
        ],
    ),
    "a resume when the late end of a run has just parked it plans from that end (ruling 3)": (
        {"preset": "adaptive", "every": "120s", "disable_after": 1},
        [(False, 1)],
        [([], "outage", 600), ([], "outage", 785), ([("resume", {})], "live", 1800)],
    ),
    "a hinted pause ends at an instant that was skipped by hand": (
        {"preset": "routine", "cron": "*/5 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 240),
            ([("skip", {}), ("pause_hint", {"until": 60})], "live", 300),
            ([("interval", {"interval": 60, "ttl": 3600})], "live", 90),
        ],
    ),
    "a cadence replaces what came due between the failures until one disables the schedule (ruling 1)": (
        {"preset": "desktop", "cron": "* * * * *", "catch_up": "all", "retry": RETRY},
        [*[(True, 0)] * 9, (False, 0)],
        [([], "outage", 1200), ([], "live", 300), ([("resume", {})], "live", 1200)],
    ),
    "a resume after a late failure forgets a hint that was over when the run ended (ruling 3)": (
        {"preset": "adaptive", "every": "120s", "disable_after": 1},
        [(False, 60)],
        [
            ([("once", {"at": 400, "ttl": 1800}), ("skip", {})], "live", 240),
            ([("interval", {"interval": 30, "ttl": 100})], "outage", 1800),
            ([("resume", {})], "live", 785),
        ],
    ),
    "a hint that is cleared at once leaves the next time, also if a held run has started since (ruling 3)": (
        {"preset": "adaptive", "every": "120s", "overlap": "queue"},
        [(True, 700), (True, 250), (True, 90)],
        [([], "live", 1260), ([("interval", {"interval": 1000, "ttl": 100}), ("clear", {})], "live", 5)],
    ),
    "a held run that has started counts for an edit when it ends (ruling 3)": (
        {"preset": "adaptive", "every": "60s", "overlap": "queue"},
        [(True, 700)],
        [
            ([], "live", 1200),
            ([("edit", {"every": "3600s"})], "live", 1750),
            ([("edit", {"every": "120s"})], "live", 300),
        ],
    ),
    "an edit counts from the last instant that was skipped if the interval ended before it": (
        {"preset": "adaptive", "every": "300s"},
        [(True, 0)],
        [
            ([("skip", {}), ("skip", {})], "live", 1),
            ([("once", {"at": 60, "ttl": 500})], "live", 600),
            ([("edit", {"catch_up": "last"})], "live", 600),
        ],
    ),
    "a failure by hand leaves the next time of the trigger, which a pause suppresses (ruling 25)": (
        {"every": "60s", "cadence": LADDER},
        [(False, 0)],
        [([], "live", 90), ([("run", {}), ("pause", {"until": 500})], "live", 1200)],
    ),
    "a failure by hand leaves the next time of the cadence, which a pause suppresses (ruling 25)": (
        {"every": "60s", "cadence": LADDER},
        [(True, 0), (True, 0), (True, 0), (False, 0)],
        [([], "live", 1860), ([("run", {}), ("pause", {"until": 60})], "live", 300)],
    ),
    "a hint for one instant stands behind an interval hint that expired in an outage": (
        {"every": "90s", "adaptive": True},
        [(True, 0)],
        [
            ([("interval", {"interval": 130, "ttl": 600}), ("once", {"at": 400, "ttl": 500})], "live", 5),
            ([], "outage", 1200),
        ],
    ),
    "what is due when an interval hint replaces another is decided under the first": (
        {"cron": "* * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([], "live", 785),
            ([("interval", {"interval": 130, "ttl": 600})], "live", 240),
            ([("interval", {"interval": 60, "ttl": 100})], "live", 1800),
        ],
    ),
    "an interval hint that replaces another brings nothing of the trigger back": (
        {"every": "60s", "adaptive": True},
        [(True, 0)],
        [
            ([("interval", {"interval": 1000, "ttl": 3600})], "live", 600),
            ([("interval", {"interval": 1000, "ttl": 100})], "live", 60),
        ],
    ),
    "a late engine too decides again at the end of a hint what a failure had put off (ruling 22)": (
        {"preset": "adaptive", "every": "300s"},
        [(True, 0), (False, 0), (True, 0)],
        [([], "live", 600), ([("interval", {"interval": 1000, "ttl": 100}), ("run", {})], "outage", 1200)],
    ),
    "what a hint asked for in a pause is recorded as paused although another hint replaces it": (
        {"cron": "0 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([("pause", {"until": 500})], "live", 60),
            ([("once", {"at": 10, "ttl": 500})], "live", 90),
            ([("once", {"at": 60, "ttl": 500})], "live", 1800),
        ],
    ),
    "what a hint asked for in a pause is recorded as paused although hints are cleared": (
        {"cron": "3,17,40 * * * *", "adaptive": True},
        [(True, 0)],
        [
            ([("pause_hint", {"until": 1700})], "live", 5),
            ([("once", {"at": 60, "ttl": 500})], "live", 60),
            ([], "live", 60),
            ([("clear", {})], "live", 600),
        ],
    ),
    "a hint that begins at the expiry of another replaces nothing of it": (
        {"preset": "adaptive", "every": "90s"},
        [(True, 700)],
        [
            ([("interval", {"interval": 30, "ttl": 600})], "live", 600),
            ([("interval", {"interval": 130, "ttl": 3600})], "live", 60),
        ],
    ),
}
