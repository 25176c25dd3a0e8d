"""A Perspective API on loopback that answers, or fails, as a test tells it; and a clock on which nobody waits."""

import asyncio
import json
import threading
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from plumbline.http.retries import Clock

KEY = "canary-AIzaSyD-0123456789abcdefghij"
VARIABLE = "PERSPECTIVE_API_KEY"


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, wall=1_800_000_000.0):
        self.passed, self.slept, self._wall = 0.0, [], wall

    async def _sleep(self, seconds):
        self.slept.append(seconds)
        self.passed += seconds
        await asyncio.sleep(0)

    @property
    def clock(self):
        return Clock(lambda: self.passed, lambda: self._wall + self.passed, self._sleep)


def scores_of(text, names):
    """Scores that depend on the text alone."""
    return {name: sha256(f"{name} {text}".encode()).digest()[0] / 255 for name in names}


def answered(sent):
    """What the API says where all is well."""
    scores = scores_of(sent["comment"]["text"], sent["requestedAttributes"])
    return 200, {"attributeScores": {name: {"summaryScore": {"value": s}} for name, s in scores.items()}}


def refused(kind, status=400, message="no", **headers):
    details = [{"@type": "type.googleapis.com/Error", "errorType": kind}]
    return status, {"error": {"code": status, "message": message, "details": details}}, headers


class Server(ThreadingHTTPServer):
    """Answers with `answer(sent, number)`: status, content (bytes as they are) and headers; None cuts the line."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.sent, self.headers, self.lock = answer, [], [], threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1alpha1/comments:analyze"

    def handle_error(self, *_):
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.sent)
            self.server.sent.append(sent)
            self.server.headers.append(dict(self.headers))
        answer = self.server.answer(sent, number)
        if answer is None:
            self.close_connection = True
            return
        status, content, *more = answer
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (more[0] if more else {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def serving(answer=lambda sent, number: answered(sent)):
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
