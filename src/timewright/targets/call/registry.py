"""The registry of functions that schedules may call, by name."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import Struct

from timewright.core.input.input_errors import check_name, input_error, show_value
from timewright.core.target import Call, Isolation
from timewright.errors import Conflict, NotFound, TimewrightError
from timewright.targets.call.signature import FunctionSignature, is_async, read_signature
from timewright.targets.context import Context

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

F = TypeVar("F", bound=Callable[..., Any])

ENTRY_POINT_GROUP = "timewright.calls"
_ISOLATIONS = ("inherit", "loop", "thread", "process")
_importing = threading.local()


@contextmanager
def importing_for_worker() -> Iterator[None]:
    """While a worker process imports a module of the user, no scheduler may start in this thread."""
    _importing.is_active = True
    try:
        yield
    finally:
        _importing.is_active = False


def is_importing_for_worker() -> bool:
    """Whether a worker process is importing a module of the user in this thread."""
    return getattr(_importing, "is_active", False)


class RegisteredFunction(Struct, frozen=True, kw_only=True):
    """A registered function with its signature, isolation and import path."""

    name: str
    function: Callable[..., Any]
    signature: FunctionSignature
    is_async: bool
    isolation: Isolation = "inherit"
    entry_point: str = ""
    """The entry point of an installed package that provides it, as `module:name`."""
    around: Callable[[], AbstractContextManager[object]] | None = None
    """Makes what each call runs inside of, such as the context of a web framework."""

    def invoke(self, context: Context | None, args: dict[str, Any]) -> Any:
        """Call the function, with the context if it takes one."""
        if self.around is None:
            return self._call(context, args)
        if self.is_async:
            return self._call_around(self.around, context, args)
        with self.around():
            return self._call(context, args)

    def _call(self, context: Context | None, args: dict[str, Any]) -> Any:
        return self.function(context, **args) if self.signature.takes_context else self.function(**args)

    async def _call_around(
        self,
        around: Callable[[], AbstractContextManager[object]],
        context: Context | None,
        args: dict[str, Any],
    ) -> Any:
        with around():
            return await self._call(context, args)

    def import_reference(self) -> str:
        """The `module:name` from which a worker process imports it, or an error why it cannot."""
        if self.entry_point:
            return self.entry_point
        module, path = _import_path(self.function)
        why = _import_problem(self.function, module=module, path=path)
        if why:
            raise input_error(
                "target.isolation",
                self.name,
                f"cannot run in a worker process: {why}",
                rule="a worker process imports the function by module and name",
                fix="define it at the top level of an importable module, and register it there",
            )
        return f"{module}:{path}"


class FunctionRegistry:
    """The functions that schedules may call, by name. Worker processes import this registry from `app`.

    With `use_entry_points`, functions of installed packages are loaded on the first unknown name, or by
    `load_entry_points`. A registered function takes precedence over one of an installed package.
    """

    def __init__(self, *, app: str = "", use_entry_points: bool = False) -> None:
        self.app = app
        self.uses_entry_points = use_entry_points
        self.broken_entry_points: dict[str, str] = {}
        self._functions: dict[str, RegisteredFunction] = {}
        self._load_lock = threading.RLock()
        self._is_loaded = False
        self.around: Callable[[], AbstractContextManager[object]] | None = None
        """What each call of a function that is registered from now on runs inside of."""
        self.version = 0
        """Rises with every function that is registered."""

    @overload
    def register(self, name: F) -> F: ...
    @overload
    def register(self, name: str | None = None, *, isolation: Isolation = "inherit") -> Callable[[F], F]: ...
    def register(self, name: Any = None, *, isolation: Isolation = "inherit") -> Any:
        """Decorator that registers a function under its own or another name, and returns it unchanged."""
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
        entry_point: str = "",
        args: dict[str, Any] | None = None,
        args_later: bool = False,
    ) -> RegisteredFunction:
        """Register a function. Refuses a name that is taken, and `args` that do not fit the function.

        With `args_later`, a payload may bring the arguments that are missing.
        """
        named = check_name(name if name is not None else getattr(function, "__name__", ""), field="name")
        known = self._functions.get(named)
        if (
            known is not None
            and known.function != function
            and not known.entry_point
            and not self.is_redefinition(named, function)
        ):
            taken = known.function
            raise Conflict(
                f"a function is already registered as {named!r}",
                field="name",
                value=named,
                rule=f"a name belongs to one function; {getattr(taken, '__module__', '?')} registered it",
                fix="use another name: name='other-name'",
            )
        registered = RegisteredFunction(
            name=named,
            function=function,
            signature=read_signature(function),
            is_async=is_async(function),
            isolation=_checked_isolation(isolation),
            entry_point=entry_point,
            around=self.around,
        )
        if args is not None:
            registered.signature.check_args(named, args, field="args", more_later=args_later)
        self._functions[named] = registered
        self.version += 1
        return registered

    def is_redefinition(self, name: str, function: Callable[..., Any]) -> bool:
        """Whether this is a new definition of the registered function: in a notebook, or by a reload."""
        known = self._functions.get(name)
        return known is not None and _is_same_definition(known.function, function)

    def resolve(self, name: str) -> RegisteredFunction:
        """The function with this name. Raises NotFound with the closest name."""
        found = self._functions.get(name)
        if found is None and self.uses_entry_points:
            self.load_entry_points()
            found = self._functions.get(name)
        if found is None and name in self.broken_entry_points:
            raise NotFound(
                f"the entry point of {name!r} cannot be used: {self.broken_entry_points[name]}",
                field="target.name",
                value=name,
                rule=f"an entry point in the group {ENTRY_POINT_GROUP} must refer to a function",
                fix="fix or remove the package, or register a function with this name",
            )
        if found is None:
            raise NotFound(
                f"no function is registered as {show_value(name)}",
                field="target.name",
                value=show_value(name),
                rule=f"{len(self._functions)} functions are registered",
                fix=self._suggest(name),
            )
        return found

    def import_reference(self, registered: RegisteredFunction) -> str:
        """Where a worker process imports the function from: the app, or its own module."""
        return (
            registered.import_reference()
            if registered.entry_point
            else self.app or registered.import_reference()
        )

    def load_entry_points(self) -> dict[str, str]:
        """Register the functions of installed packages, once. Returns broken entry points with the reason.

        If two packages register the same name, neither is used.
        """
        with self._load_lock:
            if not self._is_loaded:
                self._is_loaded = True
                for name, points in _entry_points_by_name(ENTRY_POINT_GROUP).items():
                    if name not in self._functions:
                        self._load_entry_point(name, points)
        return self.broken_entry_points

    def _load_entry_point(self, name: str, points: list[EntryPoint]) -> None:
        if len({point.value for point in points}) > 1:
            self.broken_entry_points[name] = (
                f"{' and '.join(sorted(map(_package_of, points)))} both register it"
            )
            return
        try:
            self.add(points[0].load(), name=name, entry_point=points[0].value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - importing a package may raise anything
            self.broken_entry_points[name] = f"{_package_of(points[0])}: {type(error).__name__}: {error}"

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[RegisteredFunction]:
        return iter(tuple(self._functions.values()))

    def __len__(self) -> int:
        return len(self._functions)

    def _suggest(self, name: str) -> str:
        near = get_close_matches(name[:255], self._functions, n=1, cutoff=0.5)
        if near:
            return f"did you mean {near[0]!r}?"
        if not self._functions:
            server = "http://127.0.0.1:7411"
            return f"ask the server that has it: --server {server}, or start with --app module:scheduler"
        return "register it with a decorator, or start with --app module:scheduler"


def check_call(registry: FunctionRegistry, target: Call, *, args_later: bool = False) -> None:
    """Refuse a call of an unknown function, or with arguments that do not fit it.

    With `args_later`, arguments may be missing.
    """
    registered = registry.resolve(target.name)
    registered.signature.check_args(target.name, target.args, field="target.args", more_later=args_later)
    if "process" in (target.isolation, registered.isolation):
        registry.import_reference(registered)


def check_call_payload(registry: FunctionRegistry, target: Call, payload: Any) -> None:
    """Refuse the payload of a manual run if the function would not receive it, or still needs arguments."""
    registry.resolve(target.name).signature.check_payload(target.name, target.args, payload)


def _is_same_definition(before: Callable[..., Any], now: Callable[..., Any]) -> bool:
    old, new = inspect.unwrap(before), inspect.unwrap(now)
    was, code = getattr(old, "__code__", None), getattr(new, "__code__", None)
    # Two closures of one definition share their code object, but are two functions.
    if was is None or code is None or was is code or _import_path(old) != _import_path(new):
        return False
    is_interactive = new.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    return is_interactive or (was.co_filename, was.co_firstlineno) == (code.co_filename, code.co_firstlineno)


def _entry_points_by_name(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of installed packages, by name."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def load_app(reference: str) -> FunctionRegistry:
    """Load the registry or the scheduler at `module:name`; with a module alone, the only one in it."""
    module_name, _, path = reference.partition(":")
    try:
        module = import_module(module_name)
        found = [_registry_in(resolve_attribute(module, path))] if path else _registries_in(vars(module))
    except TimewrightError as error:
        message = f"{error.message}{_location_of(error)}"
        raise type(error)(
            message, field=error.field, value=error.value, rule=error.rule, fix=error.fix
        ) from error
    except Exception as error:
        raise _not_an_app(reference, f"{type(error).__name__}: {error}{_location_of(error)}") from error
    registries = [registry for registry in found if registry is not None]
    if len(registries) != 1:
        raise _not_an_app(reference, f"{len(registries) or 'no'} schedulers found")
    registries[0].app = reference
    return registries[0]


def resolve_attribute(module: Any, path: str) -> Any:
    """Get an attribute of a module by its dotted path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _checked_isolation(isolation: Isolation) -> Isolation:
    if isolation not in _ISOLATIONS:
        raise input_error(
            "isolation", isolation, "is not valid", rule=", ".join(_ISOLATIONS), fix="isolation='process'"
        )
    return isolation


def _import_path(function: Callable[..., Any]) -> tuple[str, str]:
    """The module to import in another process, and the path inside it."""
    module = getattr(function, "__module__", None) or ""
    if module == "__main__":
        # With `python -m`, the spec has the real module name. A script is imported by the name of its file.
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else _module_of_script(getattr(main, "__file__", None))
    return module, getattr(function, "__qualname__", "")


def _module_of_script(file: str | None) -> str:
    """The name under which another process can import the main script, or ""."""
    if file is None or not sys.path:
        return ""
    script = Path(file).resolve()
    is_on_path = script.parent == Path(sys.path[0]).resolve()
    return script.stem if is_on_path and script.stem.isidentifier() else ""


def _import_problem(function: Callable[..., Any], *, module: str, path: str) -> str:
    """Explain why another process could not import the function; "" if it could."""
    if not module:
        return "it is defined in a notebook, or in a script whose name is not a module name"
    if not path or "<" in path:
        return "it is not at the top level of a module"
    try:
        found = resolve_attribute(sys.modules[getattr(function, "__module__", module)], path)
    except (KeyError, AttributeError):
        return f"{module} has no {path}"
    if found is not function:
        return f"{module}:{path} is another object; perhaps another decorator wraps it"
    return ""


def _registry_in(thing: Any) -> FunctionRegistry | None:
    found = thing if isinstance(thing, FunctionRegistry) else getattr(thing, "registry", None)
    return found if isinstance(found, FunctionRegistry) else None


def _registries_in(names: dict[str, Any]) -> list[FunctionRegistry]:
    found = (_registry_in(thing) for thing in list(names.values()) if not inspect.ismodule(thing))
    return list({id(registry): registry for registry in found if registry is not None}.values())


def _location_of(error: BaseException) -> str:
    """The last line in user code: ` (jobs.py, line 7)`; "" if there is none."""
    from sysconfig import get_path

    not_user_code = (str(Path(__file__).parents[2]), get_path("stdlib"), "<")
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    user_frames = [(name, line) for name, line in frames if not name.startswith(not_user_code)]
    return f" ({Path(user_frames[-1][0]).name}, line {user_frames[-1][1]})" if user_frames else ""


def _not_an_app(reference: str, why: str) -> TimewrightError:
    file, _, name = reference.partition(":")
    is_file = file.endswith(".py") or "/" in file
    meant = ".".join(Path(file.removesuffix(".py")).parts)
    return input_error(
        "app",
        reference,
        f"is not a scheduler: {why}",
        rule="module:name of a scheduler or a registry",
        fix=f"--app {meant}:{name or 'app'}" if is_file else "--app myapp:scheduler",
    )
