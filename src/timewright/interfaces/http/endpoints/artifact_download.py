"""`/api/v1/runs/{run}/artifacts/{name}`: the data of an artifact, as a file to save."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from timewright.core.run.run import Artifact
from timewright.interfaces.http.endpoints.probes import request_context
from timewright.interfaces.http.requests.http_request import HttpRequest, Receive, Scope, Send
from timewright.interfaces.http.requests.parsing import split_query
from timewright.interfaces.http.thread_pool import RequestThreadPool
from timewright.operations import operations
from timewright.operations.runs.artifacts import ListArtifacts, find_artifact_by_name, read_parts

# Types that a browser does not run, whatever opens them; all others are sent as unknown data.
SAFE_TYPES = frozenset(
    {
        "application/json",
        "application/pdf",
        "application/zip",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/plain",
    }
)


class ArtifactDownload:
    """Sends artifacts part by part, without holding a whole one in memory."""

    def __init__(self, threads: RequestThreadPool) -> None:
        self._threads = threads

    async def handle(self, request: HttpRequest) -> Response:
        """Return the last artifact with this name, or that of `?fence=`."""
        context = request_context(request)
        run, name = request.path["run"], request.path["name"]
        fence = dict(split_query(request.query)).get("fence", "")
        wanted = int(fence) if fence.isdecimal() and len(fence) < 10 else None

        def find() -> tuple[Artifact, Iterator[bytes], bytes]:
            found = operations["run artifacts"].perform_read(context, ListArtifacts(run=run))
            artifact = find_artifact_by_name(found, name, fence=wanted)
            parts = read_parts(context, artifact)
            # The first part is read before the answer begins, so that a missing file is an error.
            return artifact, parts, next(parts, b"")

        artifact, parts, first = await self._threads.run(find)
        return _Download(artifact, parts, first, threads=self._threads, is_head=request.method == "HEAD")


class _Download(Response):
    """A response that reads its body in a thread while it is sent."""

    def __init__(
        self,
        artifact: Artifact,
        parts: Iterator[bytes],
        first: bytes,
        *,
        threads: RequestThreadPool,
        is_head: bool,
    ) -> None:
        super().__init__(
            headers={
                "content-type": artifact.type if artifact.type in SAFE_TYPES else "application/octet-stream",
                "content-length": str(artifact.size),
                "content-disposition": f'attachment; filename="{artifact.name}"',
                "x-content-type-options": "nosniff",
                "etag": f'"{artifact.digest}"',
            }
        )
        self._parts = parts
        self._first = first
        self._threads = threads
        self._is_head = is_head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, then one part after another."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        data = b"" if self._is_head else self._first
        while data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await self._threads.run(lambda: next(self._parts, b""))
        await send({"type": "http.response.body", "body": b""})
