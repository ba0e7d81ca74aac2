"""What a browser is shown: the way in, the reference of the API, and the dashboard where there is one."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from datetime import timedelta
from functools import cached_property
from html import escape
from pathlib import Path

import msgspec
from starlette.responses import Response

from timewright.doors.http.asked import split_query
from timewright.doors.http.callers import port_of, session_of
from timewright.doors.http.openapi import document
from timewright.doors.http.problems import Refused
from timewright.doors.http.routes import Routes
from timewright.doors.http.sessions import csrf_token, new_session, set_cookie
from timewright.doors.http.threads import Threads
from timewright.doors.http.visits import Visit, no_content
from timewright.operations.access import doorkeeper_of

STATIC = Path(__file__).parent / "static"
LARGEST_FILE = 8 * 1024 * 1024
LASTING = "private, max-age=31536000, immutable"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}"
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PLAIN_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'"
_CLOSED = (
    "This page needs a way in. Open the link that <code>timewright up</code> has printed, "
    "or get one by <code>timewright dashboard</code>."
)
_USED = "This link was used, or is over. A new one: <code>timewright dashboard</code>, where the store is."
_EMPTY = (
    "Timewright is running. <a href='docs'>The API</a> is described <a href='openapi.json'>as data</a> too."
)


class Files:
    """The files of one folder by their names; what is not there when it is first asked for is not served."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder if folder is not None and folder.is_dir() else None
        self._stamps: tuple[int, ...] = ()
        self._hash = ""

    def get(self, name: str) -> Response | None:
        """A file as an answer; `v/VERSION/name`, where the version is right, may be kept for ever.

        A page names its files as of version 0, and is given out with the version that the files have.
        """
        version, name = _versioned(name)
        path = self._known.get(name)
        if path is None or path.stat().st_size > LARGEST_FILE:
            return None
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = "text/javascript" if path.suffix in (".js", ".mjs") else kind
        body = path.read_bytes()
        if path.suffix == ".html":
            body = body.replace(b'"v/0/', f'"v/{self._version()}/'.encode())
        lasting = version and version == self._version()
        headers = {"content-security-policy": POLICY, "cache-control": LASTING if lasting else "no-cache"}
        return Response(body, media_type=kind, headers=headers)

    def _version(self) -> str:
        """A hash of all the files; looked for again when one of them was changed."""
        stamps = tuple(path.stat().st_mtime_ns for path in self._known.values())
        if self._stamps != stamps:
            whole = hashlib.sha256()
            for name, path in sorted(self._known.items()):
                whole.update(name.encode() + b"\0" + path.read_bytes())
            self._stamps, self._hash = stamps, whole.hexdigest()[:12]
        return self._hash

    @cached_property
    def _known(self) -> dict[str, Path]:
        """Names that were listed cannot lead out of the folder, however they are spelled."""
        if self._folder is None:
            return {}
        found = (path for path in self._folder.rglob("*") if path.is_file() and not path.is_symlink())
        shown = (path for path in found if path.suffix not in (".py", ".pyc"))
        return {path.relative_to(self._folder).as_posix(): path for path in shown}


class Pages:
    """Everything that is not an operation and not a probe."""

    def __init__(self, dashboard: Path | None, threads: Threads, *, secure: bool = False) -> None:
        self._secure = secure
        self._threads = threads
        self._dashboard = Files(dashboard)
        self._reference = Files(STATIC)

    def add_to(self, routes: Routes) -> None:
        """Put every page on the list of routes."""
        routes.add("GET", ("session",), self.session)
        routes.add("POST", ("session", "links"), self.new_link)
        routes.add("DELETE", ("session",), self.leave)
        routes.add("GET", ("openapi.json",), self.openapi)
        routes.add("GET", ("docs",), self.docs)
        routes.add("GET", ("docs", "{file}"), self.docs)
        routes.folders[()] = self.dashboard

    def lets_in(self, visit: Visit) -> bool:
        """Whether this is someone with a link."""
        return visit.segments == ("",) and visit.method == "GET" and "key" in dict(split_query(visit.query))

    async def let_in(self, visit: Visit) -> Response:
        """Turn a link that works once into a session."""
        now = visit.context.now()
        token = dict(split_query(visit.query))["key"]
        caller = doorkeeper_of(visit.context).redeem(token, now=now)
        if caller is None:
            return _plain(_USED, status=401)
        session = new_session(visit.context, caller, now=now)
        cookie = set_cookie(session, port=port_of(visit), secure=self._is_secure(visit))
        return Response(status_code=303, headers={"location": f"{visit.root}/", "set-cookie": cookie})

    def is_page(self, visit: Visit) -> bool:
        """Whether a person looks, and not a program."""
        return visit.method == "GET" and "text/html" in visit.headers.get("accept", "")

    def closed(self, _visit: Visit) -> Response:
        """What a person is shown who has no way in."""
        return _plain(_CLOSED, status=401)

    async def session(self, visit: Visit) -> Response:
        """`/session`: who I am, and the token that a browser's writes carry."""
        session, caller = session_of(visit), visit.context.caller
        token = csrf_token(visit.context, session) if session is not None else ""
        said = {
            "actor": caller.actor,
            "scopes": sorted(caller.scopes),
            "namespaces": list(caller.namespaces),
            "csrf": token,
        }
        return Response(msgspec.json.encode(said), media_type="application/json")

    async def new_link(self, visit: Visit) -> Response:
        """`POST /session/links`: a link that lets a browser in as this caller, once and soon."""
        caller = visit.context.caller
        if not caller.key:
            raise Refused(409, "not_allowed", "only a key can be handed on by a link", fix="key create")
        token = doorkeeper_of(visit.context).new_link(caller, now=visit.context.now())
        said = {"link": f"{visit.root}/?key={token}"}
        return Response(msgspec.json.encode(said), status_code=201, media_type="application/json")

    def _is_secure(self, visit: Visit) -> bool:
        return self._secure or visit.scope.get("scheme") == "https"

    async def leave(self, visit: Visit) -> Response:
        """`DELETE /session`: forget this browser."""
        gone = set_cookie("", port=port_of(visit), secure=self._is_secure(visit), lives=timedelta(0))
        return no_content(headers={"set-cookie": gone})

    async def openapi(self, visit: Visit) -> Response:
        """`/openapi.json`: the whole API as data."""
        text = await self._threads.run(lambda: msgspec.json.encode(document(visit.root)))
        return Response(text, media_type="application/json")

    async def docs(self, visit: Visit) -> Response:
        """`/docs`: the reference, from the same data."""
        found = self._reference.get(visit.path.get("file", "reference.html"))
        if found is None:
            raise Refused(404, "not_found", "there is nothing at this path", field="path", fix="/docs")
        return found

    async def dashboard(self, visit: Visit) -> Response:
        """`/`: the dashboard, or where to look while there is none."""
        name = "/".join(visit.segments) or "index.html"
        found = self._dashboard.get(name)
        if found is None and visit.segments == ("",):
            return _plain(_EMPTY, status=200)
        if found is None:
            raise Refused(
                404,
                "not_found",
                "there is nothing at this path",
                field="path",
                fix="/openapi.json lists the paths",
            )
        return found


def _versioned(name: str) -> tuple[str, str]:
    """The version that a name asks for, if it does, and of what."""
    first, _, rest = name.partition("/")
    version, slash, path = rest.partition("/")
    return (version, path) if first == "v" and slash else ("", name)


def _plain(text: str, *, status: int) -> Response:
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='color-scheme' content='light dark'>"
        f"<title>{escape('Timewright')}</title><style>{_STYLE}</style><h1>Timewright</h1><p>{text}</p></html>"
    )
    headers = {"content-security-policy": _PLAIN_POLICY}
    return Response(page, status_code=status, media_type="text/html", headers=headers)
