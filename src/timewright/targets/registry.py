"""Functions by name: what a schedule may call is what was registered here, and nothing else."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import Struct

from timewright.core.names import check_name
from timewright.core.refusals import refused, shown
from timewright.core.target import Call, Isolation
from timewright.errors import Conflict, InvalidInput, NotFound, TimewrightError
from timewright.targets.context import Context
from timewright.targets.signature import Takes, is_async, takes_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

F = TypeVar("F", bound=Callable[..., Any])

ENTRY_POINTS = "timewright.calls"
_ISOLATIONS = ("inherit", "loop", "thread", "process")


class Registered(Struct, frozen=True, kw_only=True):
    """A function under its name, with how it wants to be called and where another process finds it."""

    name: str
    function: Callable[..., Any]
    takes: Takes
    is_async: bool
    isolation: Isolation = "inherit"
    entry: str = ""
    """The entry point of the installed package that offers it, as `module:name`."""

    def invoke(self, context: Context | None, args: dict[str, Any]) -> Any:
        """Call it the way its signature asks for; one that takes no context need not be given one."""
        if self.takes.context:
            return self.function(context, **args)
        return self.function(**args)

    def reference(self) -> str:
        """Where a worker subprocess finds it: `module:name`; refused when it could not."""
        if self.entry:
            return self.entry
        module, path = _home(self.function)
        why = _hidden(self.function, module=module, path=path)
        if why:
            raise refused(
                "target.isolation",
                self.name,
                f"cannot run in a worker subprocess: {why}",
                rule="a worker imports the function by its module and name",
                fix="move it to the top of a module that can be imported, and register it there",
            )
        return f"{module}:{path}"


class Registry:
    """The functions that may be called, by name; `app` is where a worker subprocess finds this very list.

    Where those of `installed` packages count too, they are looked for when a name is not known, and at the
    latest by `load_entry_points`. A function that was registered here goes before one that is installed.
    """

    def __init__(self, *, app: str = "", installed: bool = False) -> None:
        self.app = app
        self.installed = installed
        self.broken: dict[str, str] = {}
        self._functions: dict[str, Registered] = {}
        self._looking = threading.RLock()
        self._has_looked = False

    @overload
    def register(self, name: F) -> F: ...
    @overload
    def register(self, name: str | None = None, *, isolation: Isolation = "inherit") -> Callable[[F], F]: ...
    def register(self, name: Any = None, *, isolation: Isolation = "inherit") -> Any:
        """Register the function below, under its own name or another; the function stays what it was."""
        if callable(name):
            self.add(name)
            return name

        def add(function: F) -> F:
            self.add(function, name=name, isolation=isolation)
            return function

        return add

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        isolation: Isolation = "inherit",
        entry: str = "",
        args: dict[str, Any] | None = None,
    ) -> Registered:
        """Register a function; a name that is taken is refused, and so are `args` that do not fit it."""
        named = check_name(name if name is not None else getattr(function, "__name__", ""), field="name")
        known = self._functions.get(named)
        if (
            known is not None
            and known.function != function
            and not known.entry
            and not self.is_again(named, function)
        ):
            taken = known.function
            raise Conflict(
                f"a function is already registered as {named!r}",
                field="name",
                value=named,
                rule=f"a name means one function: {getattr(taken, '__module__', '?')} has it",
                fix="give one of them another name: name='other-name'",
            )
        registered = Registered(
            name=named,
            function=function,
            takes=takes_of(function),
            is_async=is_async(function),
            isolation=_checked_isolation(isolation),
            entry=entry,
        )
        if args is not None:
            _check_fit(registered, args, field="args")
        self._functions[named] = registered
        return registered

    def is_again(self, name: str, function: Callable[..., Any]) -> bool:
        """Whether it is the function of that name, defined again: in a notebook, or by a reload."""
        known = self._functions.get(name)
        return known is not None and _is_again(known.function, function)

    def resolve(self, name: str) -> Registered:
        """The function of that name; NotFound with the nearest name when there is none."""
        found = self._functions.get(name)
        if found is None and self.installed:
            self.load_entry_points()
            found = self._functions.get(name)
        if found is None and name in self.broken:
            raise NotFound(
                f"the function {name!r} of an installed package cannot be used: {self.broken[name]}",
                field="target.name",
                value=name,
                rule=f"an entry point of the group {ENTRY_POINTS} leads to a function",
                fix="mend or remove the package, or register a function of that name here",
            )
        if found is None:
            raise NotFound(
                f"no function is registered as {shown(name)}",
                field="target.name",
                value=shown(name),
                rule=f"{len(self._functions)} functions are registered",
                fix=self._nearest(name),
            )
        return found

    def reference(self, registered: Registered) -> str:
        """Where a worker subprocess finds one of these functions: through the app, or by its own module."""
        return registered.reference() if registered.entry else self.app or registered.reference()

    def load_entry_points(self) -> dict[str, str]:
        """Register what installed packages offer, once; gives back what cannot be used, and why.

        One that cannot be imported stops no other.
        """
        with self._looking:
            if not self._has_looked:
                self._has_looked = True
                for name, points in _offered(ENTRY_POINTS).items():
                    if name not in self._functions:
                        self._take(name, points)
        return self.broken

    def _take(self, name: str, points: list[EntryPoint]) -> None:
        if len({point.value for point in points}) > 1:
            self.broken[name] = f"{' and '.join(sorted(map(_origin, points)))} both offer it"
            return
        try:
            self.add(points[0].load(), name=name, entry=points[0].value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - importing somebody else's package may do anything
            self.broken[name] = f"{_origin(points[0])}: {type(error).__name__}: {error}"

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[Registered]:
        return iter(tuple(self._functions.values()))

    def __len__(self) -> int:
        return len(self._functions)

    def _nearest(self, name: str) -> str:
        near = get_close_matches(name[:255], self._functions, n=1, cutoff=0.5)
        if near:
            return f"did you mean {near[0]!r}?"
        return "register it with a decorator, or start with --app module:scheduler"


def check_call(registry: Registry, target: Call, *, args_later: bool = False) -> None:
    """Refuse a call that cannot succeed: an unknown function, or arguments that do not fit it."""
    registered = registry.resolve(target.name)
    if not args_later:
        _check_fit(registered, target.args, field="target.args")
    if "process" in (target.isolation, registered.isolation):
        registry.reference(registered)


def _check_fit(registered: Registered, args: dict[str, Any], *, field: str) -> None:
    why = registered.takes.misfit(args)
    if why:
        raise InvalidInput(
            f"{field} do not fit {registered.name!r}: {why}",
            field=field,
            value=", ".join(sorted(args))[:64],
            rule="the arguments are those of the function",
            fix=f"args: {{{', '.join(sorted(registered.takes.names))}}}",
        )


def _is_again(before: Callable[..., Any], now: Callable[..., Any]) -> bool:
    old, new = inspect.unwrap(before), inspect.unwrap(now)
    was, code = getattr(old, "__code__", None), getattr(new, "__code__", None)
    # Two closures of one place share their code, and are two functions.
    if was is None or code is None or was is code or _home(old) != _home(new):
        return False
    is_interactive = new.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    return is_interactive or (was.co_filename, was.co_firstlineno) == (code.co_filename, code.co_firstlineno)


def _offered(group: str) -> dict[str, list[EntryPoint]]:
    """What installed packages offer, by name."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def load_app(reference: str) -> Registry:
    """The registry at `module:name`, or of the scheduler there; with a module alone, the only one in it."""
    module_name, _, path = reference.partition(":")
    try:
        module = import_module(module_name)
        found = [_registry_in(attribute(module, path))] if path else _registries_in(vars(module))
    except TimewrightError as error:
        said = f"{error.message}{_line_of(error)}"
        raise type(error)(
            said, field=error.field, value=error.value, rule=error.rule, fix=error.fix
        ) from error
    except Exception as error:
        raise _not_an_app(reference, f"{type(error).__name__}: {error}{_line_of(error)}") from error
    registries = [registry for registry in found if registry is not None]
    if len(registries) != 1:
        raise _not_an_app(reference, f"{len(registries) or 'no'} schedulers are there")
    registries[0].app = reference
    return registries[0]


def attribute(module: Any, path: str) -> Any:
    """What a dotted path leads to, from a module on."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _checked_isolation(isolation: Isolation) -> Isolation:
    if isolation not in _ISOLATIONS:
        raise refused(
            "isolation", isolation, "is not known", rule=", ".join(_ISOLATIONS), fix="isolation='process'"
        )
    return isolation


def _home(function: Callable[..., Any]) -> tuple[str, str]:
    """The module another process would import, and the path inside it."""
    module = getattr(function, "__module__", None) or ""
    if module == "__main__":
        # Started with -m, the module has its real name here; a plain script has none.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else ""
    return module, getattr(function, "__qualname__", "")


def _hidden(function: Callable[..., Any], *, module: str, path: str) -> str:
    """Why another process would not find this function there; "" when it would."""
    if not module:
        return "it is defined in the script that was started"
    if not path or "<" in path:
        return "it has no name at the top of a module"
    try:
        found = attribute(sys.modules[getattr(function, "__module__", module)], path)
    except (KeyError, AttributeError):
        return f"{module} has no {path}"
    if found is not function:
        return f"{module}:{path} is something else, perhaps because another decorator stands above"
    return ""


def _registry_in(thing: Any) -> Registry | None:
    found = thing if isinstance(thing, Registry) else getattr(thing, "registry", None)
    return found if isinstance(found, Registry) else None


def _registries_in(names: dict[str, Any]) -> list[Registry]:
    found = (_registry_in(thing) for thing in list(names.values()) if not inspect.ismodule(thing))
    return list({id(registry): registry for registry in found if registry is not None}.values())


def _line_of(error: BaseException) -> str:
    """Where in somebody's module it happened: ` (jobs.py, line 7)`; nothing if it never got there."""
    from sysconfig import get_path

    not_theirs = (str(Path(__file__).parents[1]), get_path("stdlib"), "<")
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    theirs = [(name, line) for name, line in frames if not name.startswith(not_theirs)]
    return f" ({Path(theirs[-1][0]).name}, line {theirs[-1][1]})" if theirs else ""


def _not_an_app(reference: str, why: str) -> TimewrightError:
    file, _, name = reference.partition(":")
    meant = ".".join(Path(file).with_suffix("").parts)
    is_file = file.endswith(".py") or "/" in file
    return refused(
        "app",
        reference,
        f"leads to no scheduler: {why}",
        rule="module:name of a scheduler or a registry",
        fix=f"--app {meant}:{name or 'app'}" if is_file else "--app myapp:scheduler",
    )
