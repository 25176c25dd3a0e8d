"""An endpoint on loopback that answers, or fails, as a test tells it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny-judge-2026"


@dataclass(frozen=True)
class Sent:
    """One request as the server got it."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """Return the user's text."""
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else content[-1]["text"]


@dataclass(frozen=True)
class Reply:
    """What the server does: answers `status` with `body`, cuts the body half-way, hangs, or drips byte by byte."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    hangs: bool = False
    drips: bool = False


def completion(text: str | None, *, finish: str | None = "stop", **more: Any) -> Reply:
    """Return a chat completion; `message` is merged into the message, anything else into the top level."""
    message = {"role": "assistant", "content": text, **more.pop("message", {})}
    content = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        **more,
    }
    return Reply(body=json.dumps(content).encode())


def error(status: int, message: str = "no", *, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
    """Return an error in OpenAI's form."""
    body = json.dumps({"error": {"message": message, **more}}).encode()
    return Reply(status, body, headers or {})


class FaultServer(ThreadingHTTPServer):
    """Answers with `answer(sent)`, lists `listed`; remembers what it got and how many requests were at once."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Callable[[Sent], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.sent: list[Sent] = []
        self.listed: dict[str, Any] | None = None
        self.under_way = self.peak = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def do_POST(self) -> None:
        """Do what the test says."""
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self) -> None:
        """Do what the test says of what is listed; by default nothing is."""
        listed = self.server.listed
        self._give(Reply(404) if listed is None else Reply(body=json.dumps(listed).encode()))

    def _answer(self, body: dict[str, Any]) -> None:
        server = self.server
        with server.lock:
            sent = Sent(len(server.sent), self.path, dict(self.headers), body)
            server.sent.append(sent)
            server.under_way += 1
            server.peak = max(server.peak, server.under_way)
        try:
            reply = server.answer(sent)
        finally:
            with server.lock:
                server.under_way -= 1
        self._give(reply)

    def _give(self, reply: Reply) -> None:
        if reply.hangs:
            self.server.closing.wait(30)
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.drips:
            self._drip(reply.body)
            return
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        if reply.cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def _drip(self, body: bytes) -> None:
        """Send a byte whenever a client's patience for a single one is nearly used up, until it goes away."""
        self.close_connection = True
        for byte in body:
            if self.server.closing.wait(0.02):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answer: Callable[[Sent], Reply]) -> Iterator[FaultServer]:
    """Run a server during a block."""
    server = FaultServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def closed_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
