"""Machines of a cluster without Ray, for tests: real endpoints over real small models, behind one address on loopback.

A request goes to the next machine that is alive. One that is `dead` breaks its connections in the middle of whatever it sends.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from waiting import WAIT, until

from specdec import decoding
from specdec.endpoint import Endpoint
from specdec.engine import Engine, Limits, start


class Gated:
    """A run that makes a round only for a permit. permits: None for as many as it likes. stuck: while it is set, not even a stop is
    noticed.
    """

    def __init__(self, run: Any, permits: threading.Semaphore | None, stop: Any, stuck: threading.Event) -> None:
        self.run, self.permits, self.stop, self.stuck = run, permits, stop, stuck
        self.prompt_ids = run.prompt_ids

    def __iter__(self) -> Any:
        rounds = iter(self.run)
        while True:
            while self.permits is not None and not self.permits.acquire(timeout=0.01):
                if self.stop() and not self.stuck.is_set():
                    break
            round_ = next(rounds, None)
            if round_ is None:
                return
            yield round_

    @property
    def finish_reason(self) -> str | None:
        return getattr(self.run, "finish_reason", None)

    def trace(self) -> Any:
        return self.run.trace()


class Machine:
    """One of them. requests: what it was asked to decode."""

    def __init__(self, pair: Any, *, limits: Limits, token: str = "") -> None:
        self.permits: threading.Semaphore | None = None
        self.requests: list[Any] = []
        self.engine = Engine(lambda name, progress: pair, start=self._start, limits=limits)
        self.endpoint = Endpoint(self.engine, pairs=("embedded",), token=token)
        self.dead = threading.Event()
        self.silent = threading.Event()  # connections stay open and nothing comes
        self.stuck = threading.Event()  # its worker hangs: runs that wait for a permit do not even look whether they are to stop
        self.engine.preload("embedded")
        until(lambda: self.engine.state == "ready")

    def _start(self, pair: Any, request: Any, stop: Any) -> Any:
        self.requests.append(request)
        return Gated(start(pair, request, stop), self.permits, stop, self.stuck)


class Machines:
    """Several, behind one address."""

    def __init__(self, *pairs: Any, limits: Limits | None = None, token: str = "") -> None:
        self.each = [Machine(pair, limits=limits or Limits(), token=token) for pair in pairs]
        self._next = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self.open()

    def open(self) -> None:
        """Begin to answer."""
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                port=self.port,
                interface="asgi3",
                log_level="critical",
                lifespan="off",
                timeout_graceful_shutdown=0,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    def shut(self) -> None:
        """Nobody answers at the address any more."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(WAIT)

    def close(self) -> None:
        self.shut()
        for one in self.each:
            one.stuck.clear()
            one.engine.close()

    async def _app(self, scope: dict, receive: Any, send: Any) -> None:
        alive = [one for one in self.each if not one.dead.is_set()]
        if not alive:
            await JSONResponse({"message": "no machine is left"}, status_code=503)(scope, receive, send)
            return
        posted = scope["path"].endswith("/runs")
        machine = alive[self._next % len(alive)] if posted else alive[0]
        self._next += posted

        async def send_while_alive(message: dict) -> None:
            while machine.silent.is_set():
                await asyncio.sleep(0.02)
            if machine.dead.is_set():
                raise ConnectionError("the machine is dead")
            await send(message)

        response = await machine.endpoint.answer(Request(scope, receive))
        await response(scope, receive, send_while_alive)


def same_but_times(a: Any, b: Any, *, most: float = 0.0) -> bool:
    """Two traces of one run, made by two machines. most: by which probabilities may differ, as they do where kernels differ."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            times = ("seconds", "created", "totals", "seconds_to_first_token", "plain_step_seconds", "read_bandwidth")
            return {name: plain(part) for name, part in value.items() if name not in (*times, "shared", "device")}
        return [plain(part) for part in value] if isinstance(value, list) else value

    def near(x: Any, y: Any) -> bool:
        if isinstance(x, float) and isinstance(y, float):
            return abs(x - y) <= most
        if isinstance(x, dict) and isinstance(y, dict):
            return x.keys() == y.keys() and all(near(x[name], y[name]) for name in x)
        if isinstance(x, list) and isinstance(y, list):
            return len(x) == len(y) and all(map(near, x, y))
        return x == y

    return near(plain(a.to_dict()), plain(b.to_dict()))


def alone(pair: Any, request: Any) -> Any:
    """The trace of the same request, decoded here."""
    begin = decoding.plain if request.method == "plain" else decoding.generate
    return begin(pair, request.prompt, request.settings)
