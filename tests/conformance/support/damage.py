"""SQL that makes stored rows unreadable."""

from __future__ import annotations

SCHEDULE_DAMAGE = {
    "a state of a later version": "UPDATE schedules SET state = 'dreaming' WHERE id = ?",
    "a source of a later version": "UPDATE schedules SET source = 'oracle' WHERE id = ?",
    "a cut trail": "UPDATE schedules SET trail = '[{' WHERE id = ?",
    "hints that are not hints": "UPDATE schedules SET hints = '[]' WHERE id = ?",
    "a hint that breaks a rule": (
        """UPDATE schedules SET hints = '{"interval": {"interval": "-PT5S", "expires_at":"""
        """ "2026-03-10T12:00:00Z"}}' WHERE id = ?"""
    ),
    "an instant beyond the calendar": "UPDATE schedules SET cursor_at = 9000000000000000000 WHERE id = ?",
    "a field of a later version": (
        """UPDATE revisions SET body = replace(body, '"name"', '"nameless":1,"name"') WHERE schedule_id = ?"""
    ),
    "a body that is not JSON": "UPDATE revisions SET body = 'x' WHERE schedule_id = ?",
    "an empty body": "UPDATE revisions SET body = '' WHERE schedule_id = ?",
    "a rule broken": (
        """UPDATE revisions SET body = replace(body, '"name"',"""
        """ '"clamp":{"min":"PT9S","max":"PT1S"},"name"') WHERE schedule_id = ?"""
    ),
    "a revision that is not there": "DELETE FROM revisions WHERE schedule_id = ?",
}
