"""A server of embeddings over real HTTP, compatible with OpenAI's, which answers as a test wishes."""

import hashlib
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    texts: tuple[str, ...]
    model: str
    body: dict[str, Any]
    authorization: str
    at: float
    """``time.monotonic()`` when it was read."""


@dataclass(frozen=True)
class Vectors:
    """A list of vectors: right ones, unless something else is asked for."""

    more: int = 0
    """So many vectors more than texts; fewer if negative."""
    dimension: int | None = None
    first: float | None = None
    """This number in the first place of each vector, for example NaN."""
    scale: float = 1.0
    """What each number is multiplied with: 0 makes zero vectors."""
    reverse: bool = False
    """Whether the list is in the wrong order; ``index`` is right."""


@dataclass(frozen=True)
class Refusal:
    """An error with a status; ``code`` is OpenAI's, for example ``insufficient_quota``."""

    status: int
    retry_after: str | None = None
    code: str | None = None
    message: str = "refused by the test"


@dataclass(frozen=True)
class Body:
    """Status 200 with these bytes as JSON, whatever they are."""

    content: bytes


@dataclass(frozen=True)
class Cut:
    """JSON that ends in the middle: the connection breaks, or the length says that this was all."""

    breaks: bool = True


@dataclass(frozen=True)
class Reset:
    """The request is read, then the connection is reset."""


@dataclass(frozen=True)
class Stall:
    """No answer until ``release`` or the end of the server; then right vectors."""


Answer: TypeAlias = Vectors | Refusal | Body | Cut | Reset | Stall
Rule: TypeAlias = Callable[[Request], Answer]


class EmbeddingServer:
    """Listens on a free port of this machine, in threads of its own: other processes and blocked loops are served too.

    ``with EmbeddingServer() as server: server.next(Refusal(429, retry_after="3"), Reset())``
    """

    def __init__(self, dimension: int = 8, *, seconds_per_text: float = 0.0) -> None:
        self.dimension = dimension
        self.requests: list[Request] = []
        self._seconds_per_text = seconds_per_text
        self._script: deque[Answer] = deque()
        self._usual: Answer | Rule = Vectors()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Listener(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()  # waits for the threads of its connections

    @property
    def url(self) -> str:
        """For OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts of all requests, in order."""
        return [text for request in self.requests for text in request.texts]

    def next(self, *answers: Answer) -> None:
        """Answer the next requests so, one each; later ones as usual."""
        with self._lock:
            self._script.extend(answers)

    def always(self, answer: Answer | Rule) -> None:
        """Answer so from now on. A function is given the request."""
        with self._lock:
            self._usual = answer

    def release(self) -> None:
        """Let stalled requests go on. No request stalls after this."""
        self._released.set()

    def answer_to(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            answer = self._script.popleft() if self._script else self._usual
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Stall):
            self._released.wait()
            answer = Vectors()
        if isinstance(answer, Vectors) and self._seconds_per_text:
            time.sleep(self._seconds_per_text * len(request.texts))
        return answer

    def vectors(self, request: Request, answer: Vectors) -> bytes:
        texts = [*request.texts, *(f"more {number}" for number in range(answer.more))]
        texts = texts[: len(request.texts) + answer.more]
        asked = request.body.get("dimensions") or self.dimension
        data = []
        for index, text in enumerate(texts):
            vector = [answer.scale * number for number in vector_of(text, answer.dimension or asked)]
            if answer.first is not None:
                vector[0] = answer.first
            data.append({"object": "embedding", "index": index, "embedding": vector})
        if answer.reverse:
            data.reverse()
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return json.dumps({"object": "list", "data": data, "model": request.model, "usage": usage}).encode()


def vector_of(text: str, dimension: int) -> list[float]:
    """The vector that the server gives to a text: of unit length, and different for each text."""
    digest = hashlib.shake_256(text.encode()).digest(4 * dimension)
    numbers = [number / 2**31 for number in struct.unpack(f"<{dimension}i", digest)]
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, stub: EmbeddingServer) -> None:
        self.stub = stub
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of many tests."""

    def hang_up(self) -> None:
        """End connections that are kept open: their threads wait for a next request."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RD)
            except OSError:
                self._open.discard(connection)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = (body["input"],) if isinstance(body["input"], str) else tuple(body["input"])
        authorization = self.headers.get("Authorization", "")
        request = Request(texts, body["model"], body, authorization, time.monotonic())
        answer = self.server.stub.answer_to(request)
        if isinstance(answer, Vectors):
            self._send(200, self.server.stub.vectors(request, answer))
        elif isinstance(answer, Body):
            self._send(200, answer.content)
        elif isinstance(answer, Refusal):
            self._refuse(answer)
        elif isinstance(answer, Cut):
            whole = self.server.stub.vectors(request, Vectors())
            self._send(200, whole[: len(whole) // 2], length=len(whole) if answer.breaks else None)
        else:
            self._reset()

    def _refuse(self, refusal: Refusal) -> None:
        error = {"message": refusal.message, "type": "test", "param": None, "code": refusal.code}
        headers = {} if refusal.retry_after is None else {"Retry-After": refusal.retry_after}
        self._send(refusal.status, json.dumps({"error": error}).encode(), headers)

    def _send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, length: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length or len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or length is not None

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Not on stderr: ``requests`` has them."""
