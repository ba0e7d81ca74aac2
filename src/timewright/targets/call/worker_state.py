"""Saves and restores the process state that a job may change."""

from __future__ import annotations

import gc
import locale
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

_CATCHABLE = tuple(set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_RESOURCES = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


class WorkerState:
    """The process state before a job. Restores what it can, and detects what it cannot restore."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._environment: Mapping[str, str] = dict(os.environ)
        self._cwd = _cwd()
        self._umask = _umask()
        self._signals = {number: signal.getsignal(number) for number in _CATCHABLE}
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._streams = (sys.stdout, sys.stderr)
        self._files = _standard_files()
        self._recursion_limit = sys.getrecursionlimit()
        self._switch_interval = sys.getswitchinterval()
        self._hooks = (sys.excepthook, sys.unraisablehook, threading.excepthook)
        self._default_timeout = socket.getdefaulttimeout()
        self._locale = locale.setlocale(locale.LC_ALL)
        self._limits = _limits()
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)

    def restore(self) -> bool:
        """Restore the state. Returns False if a thread, a process or another change remains."""
        self._restore_process()
        self._restore_interpreter()
        return (
            set(threading.enumerate()) <= self._threads
            and not _has_children()
            and _standard_files() == self._files
            and not any(stream.closed for stream in self._streams)
            and _limits() == self._limits
            and os.getpriority(os.PRIO_PROCESS, 0) == self._niceness
            and _has_free_descriptors()
        )

    def _restore_process(self) -> None:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, action in self._signals.items():
            if action is not None and signal.getsignal(number) is not action:
                signal.signal(number, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._umask)
        self._restore_environment()
        with suppress(OSError):
            os.chdir(self._cwd)

    def _restore_environment(self) -> None:
        now = dict(os.environ)
        for name in now.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update({name: text for name, text in self._environment.items() if now.get(name) != text})

    def _restore_interpreter(self) -> None:
        sys.stdout, sys.stderr = self._streams
        sys.excepthook, sys.unraisablehook, threading.excepthook = self._hooks
        sys.setrecursionlimit(self._recursion_limit)
        sys.setswitchinterval(self._switch_interval)
        gc.enable()
        socket.setdefaulttimeout(self._default_timeout)
        locale.setlocale(locale.LC_ALL, self._locale)


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - raises if the folder was deleted
    except OSError:
        return "/"


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _standard_files() -> tuple[object, ...]:
    """Identify the files behind stdin, stdout and stderr; None for a closed one."""
    found: list[object] = []
    for fd in (0, 1, 2):
        try:
            found.append(os.fstat(fd)[:3])
        except OSError:
            found.append(None)
    return tuple(found)


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, _RESOURCES))


def _has_free_descriptors() -> bool:
    """Whether earlier jobs have left at least half of the allowed descriptors free."""
    try:
        count = len(os.listdir("/dev/fd"))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return False
    return count <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
