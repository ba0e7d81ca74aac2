"""Pages for browsers: login, session, API reference and dashboard."""

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

from timewright.interfaces.http.api.openapi import openapi_document
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.requests.authentication import port_of, session_of
from timewright.interfaces.http.requests.http_request import HttpRequest, no_content
from timewright.interfaces.http.requests.parsing import split_query
from timewright.interfaces.http.requests.sessions import csrf_token, end_session, new_session, set_cookie
from timewright.interfaces.http.router import Router
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations.access.authentication import require_auth_cache

STATIC_FOLDER = Path(__file__).parent / "static"
MAX_FILE_BYTES = 8 * 1024 * 1024
CACHE_FOREVER = "private, max-age=31536000, immutable"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_PAGE_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}"
_STYLE_HASH = base64.b64encode(hashlib.sha256(_PAGE_STYLE.encode()).digest()).decode()
_PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"
)
_LOGIN_REQUIRED = (
    "Login required. Open the link that <code>timewright up</code> prints, "
    "or run <code>timewright dashboard</code> for a new one."
)
_LINK_EXPIRED = (
    "This link has expired or was used already. Run <code>timewright dashboard</code> for a new one."
)
_NO_DASHBOARD = (
    "Timewright is running. See the <a href='docs'>API reference</a> "
    "or the <a href='openapi.json'>OpenAPI file</a>."
)


class StaticFolder:
    """Serves the files of one folder; the list of files is read once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder if folder is not None and folder.is_dir() else None
        self._mtimes: tuple[int, ...] = ()
        self._hash = ""

    def get(self, name: str) -> Response | None:
        """Return a file as a response; `v/VERSION/name` with the current version may be cached forever.

        HTML files refer to version 0, which is replaced by the current version.
        """
        version, name = _split_version(name)
        path = self._files.get(name)
        if path is None or path.stat().st_size > MAX_FILE_BYTES:
            return None
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = "text/javascript" if path.suffix in (".js", ".mjs") else kind
        body = path.read_bytes()
        if path.suffix == ".html":
            body = body.replace(b'"v/0/', f'"v/{self._version()}/'.encode())
        is_current = version and version == self._version()
        headers = {
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "cache-control": CACHE_FOREVER if is_current else "no-cache",
        }
        return Response(body, media_type=kind, headers=headers)

    def _version(self) -> str:
        """Return a hash of all files, computed again when a file changes."""
        mtimes = tuple(path.stat().st_mtime_ns for path in self._files.values())
        if self._mtimes != mtimes:
            digest = hashlib.sha256()
            for name, path in sorted(self._files.items()):
                digest.update(name.encode() + b"\0" + path.read_bytes())
            self._mtimes, self._hash = mtimes, digest.hexdigest()[:12]
        return self._hash

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The files by relative name; only listed names are served, so no path leads out of the folder."""
        if self._folder is None:
            return {}
        found = (path for path in self._folder.rglob("*") if path.is_file() and not path.is_symlink())
        served = (path for path in found if path.suffix not in (".py", ".pyc"))
        return {path.relative_to(self._folder).as_posix(): path for path in served}


class Pages:
    """Handlers of the login, session, reference and dashboard pages."""

    def __init__(
        self,
        dashboard: Path | None,
        threads: RequestThreadPool,
        *,
        secure: bool = False,
        command: tuple[str, str | None] = ("timewright", None),
        sign_in_url: str = "",
    ) -> None:
        self._sign_in_url = sign_in_url
        self._secure = secure
        self._command = command
        self._threads = threads
        self._dashboard = StaticFolder(dashboard)
        self._reference = StaticFolder(STATIC_FOLDER)

    def register(self, router: Router) -> None:
        """Add the routes of all pages."""
        router.add("GET", ("session",), self.session)
        router.add("POST", ("session", "links"), self.create_login_link)
        router.add("DELETE", ("session",), self.log_out)
        router.add("GET", ("openapi.json",), self.openapi)
        router.add("GET", ("docs",), self.docs)
        router.add("GET", ("docs", "{file}"), self.docs)
        router.folders[()] = self.dashboard

    def is_login_link(self, request: HttpRequest) -> bool:
        """Whether the request opens a one-time login link."""
        return (
            request.segments == ("",)
            and request.method == "GET"
            and "key" in dict(split_query(request.query))
        )

    async def log_in(self, request: HttpRequest) -> Response:
        """Exchange a one-time login link for a session cookie."""
        now = request.context.now()
        token = dict(split_query(request.query))["key"]
        caller = require_auth_cache(request.context).redeem_login_link(token, now=now)
        if caller is None:
            return html_page(_LINK_EXPIRED, status=401)
        session = new_session(request.context, caller, now=now)
        cookie = set_cookie(session, port=port_of(request), secure=self._is_secure(request))
        return Response(status_code=303, headers={"location": f"{request.root_path}/", "set-cookie": cookie})

    def wants_html(self, request: HttpRequest) -> bool:
        """Whether the client is a browser that asks for a page."""
        return request.method == "GET" and "text/html" in request.headers.get("accept", "")

    def login_required(self, _request: HttpRequest) -> Response:
        """Return the page for a browser without a session."""
        if self._sign_in_url:
            return Response(status_code=303, headers={"location": self._sign_in_url})
        return html_page(_LOGIN_REQUIRED, status=401)

    async def session(self, request: HttpRequest) -> Response:
        """`GET /session`: the caller, and the CSRF token for writes."""
        session, caller = session_of(request), request.context.caller
        token = csrf_token(request.context, session) if session is not None else ""
        data = {
            "actor": caller.actor,
            "scopes": sorted(caller.scopes),
            "namespaces": list(caller.namespaces),
            "csrf": token,
            "program": self._command[0],
            "store_option": self._command[1],
            "sign_in_url": self._sign_in_url,
        }
        return Response(msgspec.json.encode(data), media_type="application/json")

    async def create_login_link(self, request: HttpRequest) -> Response:
        """`POST /session/links`: create a one-time login link for this caller."""
        caller = request.context.caller
        if not caller.key:
            raise HttpProblem(
                409, "not_allowed", "a login link needs an API key", fix="timewright key create"
            )
        token = require_auth_cache(request.context).create_login_link(caller, now=request.context.now())
        data = {"link": f"{request.root_path}/?key={token}"}
        return Response(msgspec.json.encode(data), status_code=201, media_type="application/json")

    def _is_secure(self, request: HttpRequest) -> bool:
        return self._secure or request.scope.get("scheme") == "https"

    async def log_out(self, request: HttpRequest) -> Response:
        """`DELETE /session`: end the session, also for a copy of its cookie, and delete the cookie."""
        session = session_of(request)
        if session is not None:
            await self._threads.run(lambda: end_session(request.context, session))
        expired = set_cookie("", port=port_of(request), secure=self._is_secure(request), max_age=timedelta(0))
        return no_content(headers={"set-cookie": expired})

    async def openapi(self, request: HttpRequest) -> Response:
        """`/openapi.json`: the OpenAPI description."""
        text = await self._threads.run(lambda: msgspec.json.encode(openapi_document(request.root_path)))
        return Response(text, media_type="application/json")

    async def docs(self, request: HttpRequest) -> Response:
        """`/docs`: the API reference."""
        found = self._reference.get(request.path.get("file", "reference.html"))
        if found is None:
            raise HttpProblem(404, "not_found", "path not found", field="path", fix="/docs")
        return found

    async def dashboard(self, request: HttpRequest) -> Response:
        """`/`: the dashboard, or a short page if it is not installed."""
        name = "/".join(request.segments) or "index.html"
        found = self._dashboard.get(name)
        if found is None and request.segments == ("",):
            return html_page(_NO_DASHBOARD, status=200)
        if found is None:
            raise HttpProblem(
                404,
                "not_found",
                "path not found",
                field="path",
                fix="/openapi.json lists the paths",
            )
        return found


def _split_version(name: str) -> tuple[str, str]:
    """Split `v/VERSION/name` into version and name."""
    first, _, rest = name.partition("/")
    version, slash, path = rest.partition("/")
    return (version, path) if first == "v" and slash else ("", name)


def html_page(text: str, *, status: int) -> Response:
    """A small page without scripts; `text` is HTML."""
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='color-scheme' content='light dark'>"
        f"<title>{escape('Timewright')}</title><style>{_PAGE_STYLE}</style><h1>Timewright</h1><p>{text}</p></html>"
    )
    headers = {"content-security-policy": _PAGE_POLICY}
    return Response(page, status_code=status, media_type="text/html", headers=headers)
