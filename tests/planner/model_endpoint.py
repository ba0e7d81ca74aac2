"""A scripted model endpoint, and replies in both API formats."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ToolCallSpec = tuple[str, Any]


def model_reply(
    shape: str, *uses: ToolCallSpec, text: str = "", tokens: tuple[int, int] = (100, 20)
) -> dict[str, Any]:
    """A model's reply in one format, with its tool calls."""
    if shape == "openai":
        calls = [
            {
                "id": f"c{n}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for n, (name, given) in enumerate(uses)
        ]
        message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
        return {"choices": [{"message": message}], "usage": usage}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": given}
        for n, (name, given) in enumerate(uses)
    ]
    return {"content": blocks, "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]}}


SUBMIT: ToolCallSpec = ("submit_analysis", {"reasoning": "all is well", "confidence": "high"})


class ModelEndpoint:
    """A scripted model endpoint: one response after another; the last repeats."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.requested = threading.Event()
        owner = self

        class ReplyHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                owner.asked.append(json.loads(self.rfile.read(length)))
                owner.headers.append({name.lower(): value for name, value in self.headers.items()})
                owner.paths.append(self.path)
                owner.requested.set()
                status, headers, body = owner.script.pop(0) if len(owner.script) > 1 else owner.script[0]
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), ReplyHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def set_replies(self, *bodies: Any) -> None:
        """Set successful responses, one after another."""
        self.script = [(200, {}, body) for body in bodies]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
