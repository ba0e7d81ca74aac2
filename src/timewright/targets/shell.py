"""Runs commands: argument vectors, a clean environment, bounded time and output, whole trees ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from timewright.core.refusals import shown
from timewright.core.run import Failed, Outcome, Succeeded
from timewright.core.target import Shell
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.ports import Launch, Work
from timewright.ports.said import Spoken
from timewright.targets.answers import cancelled, closing, failed, failure, timed_out, with_result
from timewright.targets.child import Child, Spawn, signal_name
from timewright.targets.children import Children
from timewright.targets.context import Facts
from timewright.targets.ending import GIVE_UP
from timewright.targets.environment import clean_environment, run_environment
from timewright.targets.limits import Limits
from timewright.targets.once import ENDED, Once
from timewright.targets.shell_rules import check_shell, find_folder, is_allowed, why_not_started
from timewright.targets.signing import Revealed, SecretLookup, references_in, reveal
from timewright.targets.watch import Timer

__all__ = ["ShellTarget", "check_shell"]


class ShellTarget:
    """Starts commands, if the one who runs us allows any.

    `allowed` is False (the default), True, or a list of programs: names, full paths, or folders with a
    slash at the end. `root` is the folder commands run in, and which a schedule's own `cwd` must not leave.
    `passed` names variables of our environment that commands get as well. `limits` bounds what they use.
    """

    def __init__(
        self,
        *,
        allowed: bool | Sequence[str] = False,
        root: str | None = None,
        passed: Sequence[str] = (),
        limits: Limits | None = None,
        children: Children | None = None,
        own_process: bool = False,
        secrets: SecretLookup | None = None,
    ) -> None:
        self._allowed = allowed if isinstance(allowed, bool) else tuple(allowed)
        self.root = root
        self._passed = tuple(passed)
        self._limits = limits or Limits()
        self._secrets = secrets
        self._owns_children = children is None
        self._children = children or Children(own_process=own_process)
        self._commands: set[_Command] = set()
        self._empty = threading.Event()
        self._closed = False

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Start the command on the watch's thread, and return at once."""
        once = Once(done)
        try:
            refusal = self._refusal(launch.target)
            if refusal is None:
                command = _Command(self, launch, once, self._reveal(launch))
                self._children.watch.call(command.start)
                return command
            once(refusal)
        except NotAllowed:
            once(closing())
        except NotFound as error:
            once(Failed(error=error.message))
        except TimewrightError as error:
            once(Failed(error=f"{error.message}; {error.fix}", final=True))
        except Exception as error:  # noqa: BLE001 - the boundary: a launch answers, it never raises
            once(failure(error))
        return ENDED

    def close(self, *, grace: timedelta) -> None:
        """End every command that is left, with all that grew out of it, and free what is ours."""
        seconds = grace.total_seconds()
        self._closed = True
        if self._commands:
            self._children.watch.call(lambda: self._end_all(seconds))
            self._empty.wait(seconds + GIVE_UP + 1.0)
        if self._owns_children:
            self._children.close(grace=seconds)

    def spawn(self, launch: Launch, target: Shell, revealed: Revealed) -> Spawn:
        """What to start for a launch; OSError when its folder is not there."""
        folder, why = find_folder(target.cwd, root=self.root)
        if why:
            raise OSError(why)
        facts = run_environment(Facts.of(launch))
        return Spawn(
            argv=self._limits.wrap(target.command),
            env={**clean_environment(self._passed), **revealed.fill_in(target.env), **facts},
            cwd=folder,
            output_bytes=target.output_kb * 1024,
        )

    @property
    def children(self) -> Children:
        """Who starts and ends processes for us."""
        return self._children

    def keep(self, command: _Command) -> bool:
        """Remember a command that starts; says whether it may."""
        if not self._closed:
            self._commands.add(command)
        return not self._closed

    def forget(self, command: _Command) -> None:
        """A command is over."""
        self._commands.discard(command)
        if self._closed and not self._commands:
            self._empty.set()

    def _reveal(self, launch: Launch) -> Revealed:
        """The secrets that the environment of a command names, looked up for this launch alone."""
        names = references_in(launch.target.env) if isinstance(launch.target, Shell) else frozenset()
        if not names:
            return Revealed()
        return reveal(names, namespace=launch.namespace, lookup=self._secrets, lines=True)

    def _refusal(self, target: object) -> Failed | None:
        if not isinstance(target, Shell):
            return Failed(error=f"a {type(target).__name__} is not a shell command", final=True)
        if self._allowed is False or self._allowed == ():
            return Failed(error="shell targets are off; allow them with the setting shell", final=True)
        check_shell(target)
        if not is_allowed(target.command, self._allowed):
            return Failed(
                error=f"{target.command[0]!r} is not among the programs that commands may be", final=True
            )
        return None

    def _end_all(self, grace: float) -> None:
        for command in list(self._commands):
            command.end(closing(), grace=min(grace, command.grace))
        if not self._commands:
            self._empty.set()


class _Command:
    """One command under way; everything but `stop` and `said` happens on the watch's thread."""

    def __init__(self, shell: ShellTarget, launch: Launch, once: Once, revealed: Revealed) -> None:
        self._shell = shell
        self._children = shell.children
        self._launch = launch
        self._once = once
        self._revealed = revealed
        self.grace = launch.grace.total_seconds()
        self._child: Child | None = None
        self._timer: Timer | None = None
        self._verdict: Outcome | None = None
        self._is_unwanted = False

    def stop(self, reason: str) -> None:
        """TERM to the whole tree, KILL to what is left after its grace; the answer is the reason."""
        self._is_unwanted = True
        try:
            self._children.watch.call(lambda: self.end(cancelled(reason), grace=self.grace))
        except NotAllowed:  # the watch is closed, and nothing it watched is left
            self._once(cancelled(reason))

    def said(self) -> Spoken | None:
        """What the command has said so far, without the secrets it was given; from any thread."""
        child = self._child
        if child is None or not child.output.size:
            return None
        return child.output.spoken(self._revealed if self._revealed.values else None)

    def start(self) -> None:
        """Start it, unless it was stopped before it began; then the stop, which is next in line, answers."""
        if self._is_unwanted:
            return
        if not self._shell.keep(self):
            self._once(closing())
            return
        target = self._launch.target
        assert isinstance(target, Shell)
        try:
            spawn = self._shell.spawn(self._launch, target, self._revealed)
            self._child = self._children.start(spawn, on_end=self._over)
        except (OSError, ValueError) as error:
            why = why_not_started(target.command[0], error, folder=target.cwd or self._shell.root)
            self._answer(failed(f"cannot start {shown(target.command[0])}: {why}"))
            return
        limit = self._launch.time_limit.total_seconds()
        self._timer = self._children.watch.later(limit, lambda: self.end(timed_out(limit), grace=self.grace))

    def end(self, verdict: Outcome, *, grace: float) -> None:
        """End it with this outcome; a command that has answered by itself is only hurried."""
        if self._once.spoken or self._verdict is not None:
            return
        if self._child is None:
            self._verdict = verdict
            self._answer(verdict)
            return
        if self._child.status is None:
            self._verdict = verdict
        self._children.end(self._child, grace=grace)

    def _over(self, child: Child) -> None:
        outcome = self._verdict or _verdict_of(child)
        self._answer(with_result(outcome, _result_of(child, self._revealed)))

    def _answer(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._once(outcome)
        self._shell.forget(self)


def _verdict_of(child: Child) -> Outcome:
    if child.status is None:
        return failed("the command could not be ended")
    if child.status.signal == signal.SIGKILL:
        return failed("killed by SIGKILL, and not by us: out of memory, or of its cpu_seconds, perhaps")
    return Succeeded() if child.status.code == 0 else failed(child.status.describe())


def _said(child: Child, revealed: Revealed) -> str:
    """What a command said, without the secrets it was given, whole or cut where its output was cut."""
    text = child.output.text()
    if not revealed.values:
        return text
    head, gap, tail = text.partition("\n… ") if child.output.left_out else (text, "", "")
    line, end, tail = tail.partition(" …\n")
    cut_head = revealed.hide_end(revealed.hide(head.encode())) if gap else revealed.hide(head.encode())
    cut_tail = revealed.hide(revealed.hide_start(tail.encode()))
    return f"{cut_head.decode(errors='replace')}{gap}{line}{end}{cut_tail.decode(errors='replace')}"


def _result_of(child: Child, revealed: Revealed) -> dict[str, Any]:
    """What is kept of a command: how it ended, and the head and tail of what it said."""
    result: dict[str, Any] = {
        "exit": child.status.code if child.status is not None else None,
        "output": _said(child, revealed),
        "output_bytes": child.output.size,
    }
    if child.status is not None and child.status.signal is not None:
        result["signal"] = signal_name(child.status.signal)
    if child.output.left_out:
        result["truncated"] = True
    if child.survivors:
        result["survivors"] = child.survivors
    return result
