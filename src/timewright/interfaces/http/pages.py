"""Pages for browsers: login, session, API reference and dashboard."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from html import escape
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from timewright.errors import Unauthorized
from timewright.interfaces.http.authentication import (
    charge_failed_key,
    csrf_token,
    new_session,
    port_of,
    read_cookie,
    session_of,
    set_cookie,
)
from timewright.interfaces.http.openapi import openapi_document
from timewright.interfaces.http.openid import OpenIdProvider
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.request import HttpRequest, split_query
from timewright.interfaces.http.responses import ApiResponse, json_response
from timewright.interfaces.http.routing import HandledRoute
from timewright.operations.access.authentication import (
    EndSession,
    Identity,
    authenticate,
    end_session,
    require_auth_cache,
)

STATIC_FOLDER = Path(__file__).parent / "static"
MAX_FILE_BYTES = 8 * 1024 * 1024
CACHE_FOREVER = "private, max-age=31536000, immutable"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# The colours of the dashboard's styles/base.css.
_PAGE_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:26em;margin:12vh auto;padding:0 1em;"
    "background:light-dark(#f7f8fa,#14161a);color:light-dark(#1b1f27,#e7e9ee)}"
    "main{padding:1.5em;border:1px solid light-dark(#dfe3ea,#2e333d);border-radius:10px;"
    "background:light-dark(#ffffff,#1c1f25)}h1{font-size:22px;margin:0 0 .8em}"
    "a{color:light-dark(#2f4fc7,#8fa5ff)}p{color:light-dark(#5a6372,#9aa3b2)}"
    "input{font:inherit;width:100%;box-sizing:border-box;padding:.5em;margin:.3em 0 .8em;border-radius:7px;"
    "border:1px solid light-dark(#8a93a3,#5d6675);background:transparent;color:inherit}"
    "button{font:inherit;font-weight:600;padding:.5em 1.2em;cursor:pointer;border:0;border-radius:7px;"
    "background:light-dark(#2f4fc7,#8fa5ff);color:light-dark(#ffffff,#10131a)}"
    ":focus-visible{outline:2px solid light-dark(#2f4fc7,#8fa5ff);outline-offset:2px}"
    ".problem{color:light-dark(#c02a2a,#ff8c8c)}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_PAGE_STYLE.encode()).digest()).decode()
_PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"
)
_LINK_EXPIRED = "This link has expired or was used already."
_KEY_REFUSED = "API key missing or invalid."
# The form posts to the address of the page, so that the browser comes back to the screen after the `#`.
_KEY_FORM = """<form method="post"><label>API key or sign-in link<br>
<input name="key" type="password" required autofocus
autocomplete="current-password"></label>
<button>Sign in</button></form>
<p>Run <code>timewright dashboard</code> for a sign-in link,
or <code>timewright key create</code> for a key.</p>"""
_PROVIDER_FORM = """<form method="get" action="{root}/session/openid"><button class="main">
Sign in with {issuer}</button></form><p>or</p>"""
_PROVIDER_COOKIE = "timewright_openid"
_PROVIDER_PATHS = (("session", "openid"), ("session", "openid", "callback"))
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
        *,
        secure: bool = False,
        command: tuple[str, str | None] = ("timewright", None),
        sign_in_url: str = "",
        provider: OpenIdProvider | None = None,
    ) -> None:
        self._provider = provider
        self._sign_in_url = sign_in_url
        self._secure = secure
        self._command = command
        self._dashboard = StaticFolder(dashboard)
        self._reference = StaticFolder(STATIC_FOLDER)

    def routes(self) -> list[HandledRoute]:
        """The routes of all pages."""
        return [
            ("GET", ("session",), self.session),
            ("POST", ("session", "links"), self.create_login_link),
            ("DELETE", ("session",), self.log_out),
            ("GET", ("openapi.json",), self.openapi),
            ("GET", ("docs",), self.docs),
            ("GET", ("docs", "{file}"), self.docs),
        ]

    def signs_in(self, request: HttpRequest) -> bool:
        """Whether the request signs a browser in: by a one-time link, a key, or the provider."""
        if request.segments == ("",):
            by_link = request.method == "GET" and "key" in request.query_fields
            return by_link or (request.method == "POST" and not self._sign_in_url)
        return self._provider is not None and request.method == "GET" and request.segments in _PROVIDER_PATHS

    async def sign_in(self, request: HttpRequest) -> Response:
        """Exchange a one-time link, a key or the answer of the provider for a session cookie."""
        form = dict(split_query((await request.body()).decode("latin-1"))) if request.method == "POST" else {}
        return await run_in_threadpool(self._sign_in_by, request, form)

    def _sign_in_by(self, request: HttpRequest, form: Mapping[str, str]) -> Response:
        if request.segments in _PROVIDER_PATHS:
            return self._sign_in_by_provider(request)
        if request.method == "GET":
            return self._sign_in_by_link(request, request.query_fields["key"])
        given = form.get("key", "").strip()
        link = dict(split_query(given.partition("?")[2])).get("key")
        return self._sign_in_by_link(request, link) if link else self._sign_in_by_key(request, given)

    def _sign_in_by_link(self, request: HttpRequest, token: str) -> Response:
        now = request.context.now()
        caller = require_auth_cache(request.context).redeem_login_link(token, now=now)
        if caller is None:
            return self.login_required(request, problem=_LINK_EXPIRED)
        return self._signed_in(request, caller.key)

    def _sign_in_by_key(self, request: HttpRequest, key: str) -> Response:
        try:
            caller = authenticate(request.context, key)
        except Unauthorized:
            charge_failed_key(request)
            return self.login_required(request, problem=_KEY_REFUSED)
        if " " in caller.key:
            # A service token ends by itself; a session would outlive it.
            return self.login_required(request, problem=_KEY_REFUSED)
        return self._signed_in(request, caller.key)

    def _sign_in_by_provider(self, request: HttpRequest) -> Response:
        assert self._provider is not None
        context, now = request.context, request.context.now()
        scheme = "https" if self._is_secure(request) else "http"
        back = f"{scheme}://{request.headers['host']}{request.root_path}/{'/'.join(_PROVIDER_PATHS[1])}"
        try:
            if request.segments == _PROVIDER_PATHS[0]:
                address, kept = self._provider.start(context, back, now=now)
                # Lax, because the browser comes back from the site of the provider.
                where = f"Path={request.root_path}/session; HttpOnly; SameSite=Lax; Max-Age=600"
                secure = "; Secure" if self._is_secure(request) else ""
                cookie = f"{_PROVIDER_COOKIE}={kept}; {where}{secure}"
                return Response(status_code=303, headers={"location": address, "set-cookie": cookie})
            kept = read_cookie(request.headers.get("cookie", ""), _PROVIDER_COOKIE) or ""
            key, identity = self._provider.finish(context, request.query_fields, kept, back, now=now)
        except HttpProblem as problem:
            hints = (problem.details.get(name, "") for name in ("rule", "fix"))
            text = "; ".join(filter(None, [problem.message, *hints]))
            return self.login_required(request, problem=escape(text))
        return self._signed_in(request, key, identity=identity, is_foreign=True)

    def _signed_in(
        self, request: HttpRequest, key: str, *, identity: Identity | None = None, is_foreign: bool = False
    ) -> Response:
        """Start a session; `is_foreign` if another site sent the browser here."""
        client = request.headers.get("user-agent", "")
        session = new_session(
            request.context, key, client=client, now=request.context.now(), identity=identity
        )
        cookie = set_cookie(session, port=port_of(request), secure=self._is_secure(request))
        home = f"{request.root_path}/"
        if not is_foreign:
            return Response(status_code=303, headers={"location": home, "set-cookie": cookie})
        # A redirect from another site would not send the cookie; a page of ours does.
        refresh = f"<meta http-equiv='refresh' content='0;url={escape(home)}'>"
        page = html_page(f"{refresh}<a href='{escape(home)}'>Continue</a>", status=200)
        page.headers["set-cookie"] = cookie
        return page

    def wants_html(self, request: HttpRequest) -> bool:
        """Whether the client is a browser that asks for a page."""
        return request.method == "GET" and "text/html" in request.headers.get("accept", "")

    def login_required(self, request: HttpRequest, *, problem: str = "") -> Response:
        """Return the sign-in page; `problem` is HTML."""
        if self._sign_in_url:
            return Response(status_code=303, headers={"location": self._sign_in_url})
        parts = [f"<p class='problem' role='alert'>{problem}</p>"] if problem else []
        if self._provider is not None:
            issuer = escape(self._provider.name)
            parts.append(_PROVIDER_FORM.format(root=escape(request.root_path), issuer=issuer))
        return html_page("".join([*parts, _KEY_FORM]), status=401, has_form=True)

    async def session(self, request: HttpRequest) -> ApiResponse:
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
            "provider": self._provider.name if self._provider is not None else "",
            "session": session.partition(".")[0] if session is not None else "",
        }
        return json_response(data)

    async def create_login_link(self, request: HttpRequest) -> ApiResponse:
        """`POST /session/links`: create a one-time login link for this caller."""
        caller = request.context.caller
        if not caller.key or " " in caller.key:
            raise HttpProblem("not_allowed", "a login link needs an API key", fix="timewright key create")
        token = require_auth_cache(request.context).create_login_link(caller, now=request.context.now())
        return json_response({"link": f"{request.root_path}/?key={token}"}, status=201)

    def _is_secure(self, request: HttpRequest) -> bool:
        return self._secure or request.is_secure

    async def log_out(self, request: HttpRequest) -> Response:
        """`DELETE /session`: end the session, also for a copy of its cookie, and delete the cookie."""
        session = session_of(request)
        if session is not None:
            ended = EndSession(session=session.partition(".")[0])
            await run_in_threadpool(end_session, request.context, ended)
        expired = set_cookie("", port=port_of(request), secure=self._is_secure(request), max_age=timedelta(0))
        return Response(status_code=204, headers={"set-cookie": expired})

    async def openapi(self, request: HttpRequest) -> ApiResponse:
        """`/openapi.json`: the OpenAPI description."""
        return await run_in_threadpool(lambda: json_response(openapi_document(request.root_path)))

    async def docs(self, request: HttpRequest) -> Response:
        """`/docs`: the API reference."""
        found = self._reference.get(request.path.get("file", "reference.html"))
        if found is None:
            raise _not_found("/docs")
        return found

    async def dashboard(self, request: HttpRequest) -> Response:
        """`/`: the dashboard, or a short page if it is not installed."""
        name = "/".join(request.segments) or "index.html"
        found = self._dashboard.get(name)
        if found is None and request.segments == ("",):
            return html_page(_NO_DASHBOARD, status=200)
        if found is None:
            raise _not_found("/openapi.json lists the paths")
        return found


def _not_found(fix: str) -> HttpProblem:
    return HttpProblem("not_found", "path not found", field="path", fix=fix)


def _split_version(name: str) -> tuple[str, str]:
    """Split `v/VERSION/name` into version and name."""
    first, _, rest = name.partition("/")
    version, slash, path = rest.partition("/")
    return (version, path) if first == "v" and slash else ("", name)


def html_page(text: str, *, status: int, has_form: bool = False) -> Response:
    """A small page without scripts; `text` is HTML, `has_form` if it has a form to send."""
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='color-scheme' content='light dark'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape('Timewright')}</title><style>{_PAGE_STYLE}</style><main><h1>Timewright</h1>"
        f"<div>{text}</div></main></html>"
    )
    headers = {"content-security-policy": _PAGE_POLICY}
    if has_form:
        # Without a referrer, the browser would send the form with the origin `null`, which is refused.
        headers["referrer-policy"] = "same-origin"
    return Response(page, status_code=status, media_type="text/html", headers=headers)
