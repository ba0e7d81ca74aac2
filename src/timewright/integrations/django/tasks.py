"""A backend for `django.tasks`: what is enqueued is a run, with the retries and the history of all runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone
from django.utils.module_loading import import_string

from timewright.core.run.run import RunState
from timewright.errors import NotFound
from timewright.integrations.commands import missing_package
from timewright.integrations.django.django_scheduler import DjangoScheduler, project_scheduler
from timewright.operations.views import RunDetail

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:  # Django before 6.0: the package django-tasks has the same interface
    try:
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ImportError as error:
        raise missing_package("Django 6 or django-tasks", "django") from error

SCHEDULE = "django-tasks"
# Django: -100 to 100, larger first. Here: 0 to 1000, smaller first, 100 is normal.
NORMAL_PRIORITY = 100

_STATUS = {
    RunState.READY: TaskResultStatus.READY,
    RunState.HELD: TaskResultStatus.READY,
    RunState.LEASED: TaskResultStatus.RUNNING,
    RunState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}


class TimewrightBackend(BaseTaskBackend):
    """Enqueues tasks as runs of one schedule for each queue and priority.

    OPTIONS are fields of that schedule: `{"retry": 3}`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._known: set[str] = set()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Add a run of the task."""
        self.validate_task(task)
        scheduler = project_scheduler()
        result = _new_result(self.alias, task, args, kwargs)
        payload = {
            "task": task.module_path,
            "backend": self.alias,
            "args": result.args,
            "kwargs": result.kwargs,
        }
        at = task.run_after if task.run_after is not None and task.run_after > timezone.now() else None
        run = scheduler.schedules.run(self._schedule_of(scheduler, task), payload=payload, at=at).run
        _set(result, id=run.id, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return what is known about an enqueued task."""
        try:
            detail = project_scheduler().runs.get(result_id)
            return _result_of(detail)
        except (NotFound, KeyError, TypeError, ImportError, AttributeError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    def _schedule_of(self, scheduler: DjangoScheduler, task: Any) -> str:
        """Return the schedule of the task's queue and priority; it is saved when it is first used."""
        queue = "" if task.queue_name == "default" else task.queue_name
        name = "-".join([SCHEDULE, *filter(None, [queue, str(task.priority or "")])])
        if name not in self._known:
            register(scheduler)
            fields = {"overlap": "allow", **({"queue": queue} if queue else {}), **self.options}
            priority = NORMAL_PRIORITY - task.priority
            scheduler.schedules.put(name, manual=True, call=SCHEDULE, priority=priority, **fields)
            self._known.add(name)
        return name


def register(scheduler: DjangoScheduler) -> None:
    """Register the function that runs tasks."""
    if SCHEDULE not in scheduler.registry:
        scheduler.registry.add(run_task, name=SCHEDULE)


def run_task(ctx: Any) -> dict[str, Any]:
    """Run the task that a payload names."""
    detail = project_scheduler().runs.get(ctx.run_id)
    result = _result_of(detail)
    now = timezone.now()
    _set(result, status=TaskResultStatus.RUNNING, started_at=result.started_at or now, last_attempted_at=now)
    result.worker_ids.append(detail.run.holder)
    return {"value": _run(result)}


def as_function(task: Any) -> Callable[[], Any]:
    """Return a function that runs a task without arguments, for a schedule."""

    def run() -> Any:
        return _run(_new_result(task.backend, task, (), {}))

    run.__module__, run.__qualname__ = task.func.__module__, f"{task.func.__qualname__}.func"
    return run


def _run(result: Any) -> Any:
    """Call the task and send the signals of Django."""
    sender = type(result.task.get_backend())
    task_started.send(sender, task_result=result)
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    try:
        value = result.task.call(*context, *result.args, **result.kwargs)
    except BaseException:
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        task_finished.send(sender, task_result=result)
        raise
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    task_finished.send(sender, task_result=result)
    return value


def _new_result(backend: str, task: Any, args: Any, kwargs: Any) -> Any:
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def _result_of(detail: RunDetail) -> Any:
    """Return the state of a run as a result of Django."""
    run, payload = detail.run, detail.payload
    result = _new_result(
        payload["backend"], import_string(payload["task"]), payload["args"], payload["kwargs"]
    )
    status = _STATUS.get(run.state, TaskResultStatus.FAILED)
    last = detail.attempts[-1].result if detail.attempts else None
    _set(
        result,
        id=run.id,
        status=status,
        enqueued_at=detail.created_at,
        started_at=run.first_started_at,
        last_attempted_at=run.started_at,
        finished_at=run.finished_at,
        errors=[_error(one.error, one.result) for one in detail.attempts if one.error],
        worker_ids=[one.holder for one in detail.attempts],
        _return_value=last.get("value") if isinstance(last, dict) else None,
    )
    return result


def _error(text: str, result: Any) -> Any:
    trace = str(result.get("traceback", text)) if isinstance(result, dict) else text
    name = (trace.strip().splitlines() or [""])[-1].partition(":")[0].strip()
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=trace)


def _set(result: Any, **values: Any) -> None:
    """Change a result; Django has frozen it, and changes it in the same way."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
