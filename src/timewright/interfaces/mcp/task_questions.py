"""Questions of a workflow to a person, in the task of its run.

A step that waits is answered by a person and not by an agent, so its answer is not taken from the client. The
client opens the page of the step, where the person signs in and answers.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types

from timewright.core.alerts.channels import DASHBOARD_URL
from timewright.operations import OperationContext
from timewright.operations.text_safety import sanitize
from timewright.operations.workflows.waits import PendingAnswer, pending_answers_of
from timewright.ports import Transaction


def can_open_pages(ctx: Any) -> bool:
    """Whether a client opens a page for its person; it says so with every request."""
    declared = ctx.session.client_capabilities
    asking = declared.elicitation if declared is not None else None
    return asking is not None and asking.url is not None


def question_fields(context: OperationContext, run: dict[str, Any], *, has_pages: bool) -> dict[str, Any]:
    """Return the fields of a task whose run waits for a person; none if it does not."""

    def read(tx: Transaction) -> tuple[list[PendingAnswer], str]:
        asked = pending_answers_of(tx, context.namespace, run=run["id"], holder=run["holder"])
        return asked, tx.get_meta(DASHBOARD_URL) or "" if asked else ""

    asked, dashboard = context.store.read(read)
    if not asked:
        return {}
    message = f"waits for a person: {sanitize('; '.join(one.question for one in asked))}"
    if not (has_pages and dashboard):
        return {"statusMessage": f"{message}; approval list shows it, run answer answers it"}
    pages = {one.run: _page_request(one, dashboard.rstrip("/")) for one in asked}
    return {"status": "input_required", "statusMessage": message, "inputRequests": pages}


def _page_request(one: PendingAnswer, dashboard: str) -> dict[str, Any]:
    page = types.ElicitRequestURLParams(message=sanitize(one.question), url=f"{dashboard}/runs/{one.run}")
    return types.ElicitRequest(params=page).model_dump(by_alias=True, mode="json", exclude_none=True)
