"""An engine behind HTTP: what a machine of a cluster answers to apps. The records and events are those of `specdec.wire`.

    POST /runs      a request; the answer is its run, one event a line, for as long as the client listens
    POST /pieces    {"text": …}; how the loaded pair's tokenizer cuts it: {"ids": […], "texts": […]}
    GET  /status    what is loaded, what is running

A client that goes away stops its run: the connection is the hold that it has on the engine. Nothing that it sends is run, evaluated
or unpickled; sizes and times are limited. Works under any ASGI server; `specdec.cluster` puts it behind Ray Serve.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from specdec import wire
from specdec.engine import Engine
from specdec.errors import SettingsError, SpecdecError
from specdec.jobs import BusyError, Job, Progress

log = logging.getLogger(__name__)

LOOK = 0.04  # seconds between two looks at a job; more where many are followed
SIGN = 1.0  # seconds without an event after which a sign of life is sent
READ_SECONDS = 10.0  # that a client may take to send its request
MOST_TEXT = 2000  # characters that are cut into pieces


class Endpoint:
    """engine: the one of this process. pairs: names that clients may ask for. token: what they have to show, "" for nothing."""

    def __init__(self, engine: Engine, *, pairs: tuple[str, ...], token: str = "") -> None:
        self.engine, self.pairs, self.token = engine, pairs, token
        self.machine = f"{socket.gethostname()}:{os.getpid()}"  # host and process, for whoever looks after it
        self._followed: set[str] = set()

    async def answer(self, request: Request) -> Response:
        """Whatever is asked. Never raises: a client gets one sentence."""
        shown = request.headers.get("authorization", "").encode()
        if self.token and not hmac.compare_digest(shown, f"Bearer {self.token}".encode()):
            return _refusal(401, "This endpoint wants a token: set SPECDEC_ENGINE_TOKEN to the one it was started with.")
        try:
            match request.method, request.url.path.rstrip("/").rpartition("/")[2]:
                case "GET", "status":
                    return JSONResponse(self.status())
                case "POST", "runs":
                    return await self._run(await _body(request))
                case "POST", "pieces":
                    return await self._pieces(await _body(request))
            return _refusal(404, "There is no such address: POST /runs, POST /pieces and GET /status are answered.")
        except BusyError as error:
            return _refusal(503 if self.engine.state == "closed" else 429, str(error))
        except _TooLarge as error:
            return _refusal(413, str(error))
        except SpecdecError as error:
            return _refusal(422, str(error))
        except (TimeoutError, ClientDisconnect):
            return _refusal(408, f"The request did not arrive within {READ_SECONDS:.0f} s: send it again.")
        except Exception as error:  # noqa: BLE001 - the others are served on; a message may quote a prompt, so only its kind is told
            log.error("a request failed: %s", type(error).__name__)
            return _refusal(400, f"The request could not be answered ({type(error).__name__}).")

    def status(self) -> dict[str, Any]:
        """Plain data about the engine, for apps and for people."""
        engine = self.engine
        pair = engine.pair if engine.state == "ready" else None
        return {
            "wire": wire.WIRE,
            "machine": self.machine,
            "state": engine.state,
            "pair": engine.pair_name,
            "title": getattr(pair, "title", ""),
            "device": getattr(pair, "device_name", ""),
            "drafters": list(getattr(pair, "drafters", ())),
            "message": engine.message,
            "progress": progress_to_data(engine.progress),
            "serving": engine.serving,
            "queue": engine.queue_length,
            "pairs": list(self.pairs),
        }

    @property
    def hung(self) -> str:
        """Why this machine has to be replaced, "" if it has not."""
        limit = self.engine.limits.round_seconds
        return f"no round was made for {limit:g} s" if self.engine.quiet > limit else ""

    # inside

    async def _run(self, body: bytes) -> Response:
        request = wire.request_from_json(body, limits=self.engine.limits, pairs=self.pairs)
        if self.hung:
            return _refusal(503, "This machine hangs and is being replaced: ask again.")
        job = self.engine.submit(request, owner=uuid.uuid4().hex)
        # A client may go away before its answer has begun, and then nothing below is ever run.
        asyncio.get_running_loop().call_later(READ_SECONDS, self._left, job)
        # A proxy on the way must hand on every line at once.
        headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store", "X-Specdec-Machine": self.machine}
        return StreamingResponse(self._follow(job), media_type="application/x-ndjson", headers=headers)

    async def _follow(self, job: Job) -> AsyncIterator[bytes]:
        """Everything that becomes of `job`, as it happens; the end of this generator, whatever ends it, is the end of the run."""
        sent, told = {"plain": 0, "run": 0}, {"plain": None, "run": None}
        state, spoken = None, 0.0
        self._followed.add(job.id)
        try:
            while True:
                # In this order: once a job is not active all else is final, and a trace speaks of rounds that are there.
                active, out = job.active, []
                for leg, result, rounds in (("plain", job.plain_trace, job.plain_rounds), ("run", job.trace, job.rounds)):
                    at = time.time() - (job.started or job.created)
                    for round_ in rounds[sent[leg] :]:
                        out.append(wire.line("round", leg=leg, at=round(at, 6), round=wire.round_to_data(round_)))
                        sent[leg] += 1
                    if result is not None and result is not told[leg]:
                        out.append(wire.result_to_line(result, leg=leg, at=at))
                        told[leg] = result
                now = time.monotonic()
                fresh = _state(job)
                if active and (fresh != state or now - spoken > SIGN):
                    out.append(wire.line("state", **fresh))
                    state = fresh
                if not active or self.hung:
                    yield b"".join([*out, self._last(job)])
                    return
                if out:
                    spoken = now
                    yield b"".join(out)
                await asyncio.sleep(LOOK * (1 + len(self._followed) / 8))
        finally:
            self._followed.discard(job.id)
            self.engine.stop(job)

    def _left(self, job: Job) -> None:
        if job.id not in self._followed:
            self.engine.stop(job)

    def _last(self, job: Job) -> bytes:
        if self.hung or (job.state == "stopped" and self.engine.state == "closed"):
            return wire.line("lost", message=self.hung or "the machine is shutting down")
        return wire.line("end", state=job.state, message=job.message)

    async def _pieces(self, body: bytes) -> Response:
        try:
            text = json.loads(body)["text"]
            text.encode()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise SettingsError('This is no text to cut: send {"text": "…"}.') from None
        if len(text) > MOST_TEXT:
            raise SettingsError(f"The text has {len(text):,} characters, {MOST_TEXT:,} are allowed: shorten it.")
        pair = self.engine.pair
        if pair is None:
            return _refusal(503, "No models are loaded yet: ask again in a moment.")
        ids = await asyncio.to_thread(pair.encode, text, raw=True) if text else []
        return JSONResponse({"ids": ids, "texts": [pair.texts.text(i) for i in ids]})


class _TooLarge(SpecdecError):
    """More than a request may have."""


async def _body(request: Request) -> bytes:
    """All of what a client sends, up to the limit."""
    # A page of some other site can send a form to this address, but not JSON without having asked first.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise SettingsError("The request should be application/json: send what specdec.wire.request_to_dict makes.")
    whole = bytearray()
    async with asyncio.timeout(READ_SECONDS):
        async for part in request.stream():
            whole += part
            if len(whole) > wire.MAX_BODY:
                raise _TooLarge(f"The request has more than {wire.MAX_BODY:,} bytes: shorten it.")
    return bytes(whole)


def _refusal(status: int, message: str) -> JSONResponse:
    return JSONResponse({"message": message}, status_code=status)


def _state(job: Job) -> dict[str, Any]:
    """Where a job stands. Times are told from now on, for clocks of two machines differ."""
    due = None if job.due is None else max(0.0, round(job.due - time.time(), 1))
    return {
        "state": job.state,
        "position": job.position,
        "ahead": job.ahead,
        "due": due,
        "progress": progress_to_data(job.progress),
    }


def progress_to_data(progress: Progress | None) -> dict[str, Any] | None:
    if progress is None:
        return None
    spent = round(time.time() - progress.since, 1)
    return {"stage": progress.stage, "done": progress.done, "total": progress.total, "spent": spent}
