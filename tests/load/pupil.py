"""One browser tab of the page Run and watch without a browser: it speaks Streamlit's protocol over a websocket.

It does what a tab does: it sends the state of its widgets with every message, honours `auto_rerun` until the next whole run of the
page, says once that the stage is drawn, and keeps what the stage was last told.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from urllib.parse import urlencode

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState

ENDED = ("done", "stopped", "failed")


def _slider(proto) -> WidgetState:
    state = WidgetState(id=proto.id)
    state.double_array_value.data.extend(proto.value if proto.set_value else proto.default)
    return state


# A browser sends the state of every widget each time; what is missing there does not exist for a callback. A value that the server
# sets comes once, and counts until the next one.
VALUES = {
    "text_area": lambda p: WidgetState(id=p.id, string_value=p.value if p.set_value else p.default),
    "selectbox": lambda p: WidgetState(id=p.id, string_value=p.raw_value if p.set_value else p.options[p.default]),
    "checkbox": lambda p: WidgetState(id=p.id, bool_value=p.value if p.set_value else p.default),
    "number_input": lambda p: WidgetState(id=p.id, double_value=p.value if p.set_value else p.default),
    "slider": _slider,
}


class Lost(Exception):
    """The run of this tab did not come to the end that it should have come to."""


class Pupil:
    """A tab. `stage` is the data of the stage component; times are time.monotonic()."""

    def __init__(self, address: str, *, page: str = "", **query: object):
        self.url = address.replace("http://", "ws://") + "/_stcore/stream"
        self.origin, self.page, self.query = address, page, urlencode(query)
        self.stage: dict = {}
        self.errors: list[str] = []  # exceptions that the page showed
        self.alerts: list[str] = []  # its sentences for the person
        self.bytes = self.messages = self.polls = 0
        self.pressed = self.first_round = self.ended = None
        self._ids: dict[str, str] = {}  # of the buttons, by key
        self._states: dict[str, WidgetState] = {}
        self._timers: dict[str, asyncio.Task] = {}
        self._page_hash = ""
        self._before = ""  # the run that was on the stage when Run was pressed
        self._changed = asyncio.Event()
        self._drawn = False  # whether the page was told that the stage is drawn; that may interrupt its first run,
        self._again = False  # whether it has begun to run since,
        self._whole = False  # and has come to its end
        self._socket = self._reader = None

    async def __aenter__(self) -> Pupil:
        self._socket = await websockets.connect(
            self.url, origin=self.origin, subprotocols=["streamlit"], max_size=None, open_timeout=120, ping_interval=None
        )
        self._reader = asyncio.create_task(self._read())
        await self._send()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._quiet()
        with suppress(Exception):
            await asyncio.wait_for(self._socket.close(), 5)
        await self._end()

    async def kill(self) -> None:
        """The connection breaks, without a farewell."""
        self._quiet()
        self._socket.transport.abort()
        await self._end()

    async def opened(self, seconds: float = 120) -> None:
        """Until the page is there and its charts have been asked for."""
        await self._until(lambda: self._whole, seconds, "the page did not come")

    async def press(self, key: str) -> None:
        """Click a button of the page."""
        if key == "run":
            self._before, self.pressed, self.first_round, self.ended = self.stage.get("run", ""), time.monotonic(), None, None
        await self._send(WidgetState(id=self._ids[key], trigger_value=True))

    async def saw_round(self, seconds: float) -> None:
        await self._until(lambda: self.first_round is not None or self.ended is not None, seconds, "no round came")

    async def saw_end(self, seconds: float) -> str:
        """State in which the run ended."""
        await self._until(lambda: self.ended is not None or bool(self.alerts), seconds, "the run did not end")
        return self.stage["state"] if self.ended is not None else "refused"

    # inside

    def _quiet(self) -> None:
        for task in self._timers.values():
            task.cancel()
        self._timers.clear()

    async def _end(self) -> None:
        self._reader.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._reader

    async def _until(self, true, seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not true():
            if self.errors:
                raise Lost(f"the page failed: {self.errors[-1]}")
            if self._reader.done():
                raise Lost(f"the connection ended: {self._reader.exception()!r}")
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(1.0, max(0.01, end - time.monotonic())))
            if time.monotonic() > end and not true():
                raise Lost(
                    f"{what} within {seconds:.0f} s; the stage says {self.stage.get('state')!r} {self.stage.get('message')!r}"
                )

    async def _send(self, trigger: WidgetState | None = None, *, fragment: str = "", auto: bool = False) -> None:
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string, asked.page_script_hash, asked.page_name = self.query, self._page_hash, self.page
        asked.fragment_id, asked.is_auto_rerun = fragment, auto
        asked.widget_states.widgets.extend([*self._states.values(), *([trigger] if trigger is not None else [])])
        await self._socket.send(message.SerializeToString())

    async def _poll(self, interval: float, fragment: str) -> None:
        with suppress(websockets.ConnectionClosed):
            while True:
                await asyncio.sleep(interval)
                self.polls += 1
                await self._send(fragment=fragment, auto=True)

    async def _read(self) -> None:
        async for data in self._socket:
            message = ForwardMsg.FromString(data)
            self.bytes, self.messages = self.bytes + len(data), self.messages + 1
            kind = message.WhichOneof("type")
            if kind == "new_session":
                self._page_hash = message.new_session.page_script_hash
                if not message.metadata.run.fragment_ids:
                    self._quiet()
                    self._again = self._drawn
            elif kind == "auto_rerun":
                again = message.auto_rerun
                if again.fragment_id in self._timers:
                    self._timers.pop(again.fragment_id).cancel()
                self._timers[again.fragment_id] = asyncio.create_task(self._poll(again.interval, again.fragment_id))
            elif kind == "script_finished":
                self._whole |= self._again and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
                if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                    self.errors.append("the script did not compile")
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                await self._element(message.delta.new_element)
            self._changed.set()

    async def _element(self, element) -> None:
        kind = element.WhichOneof("type")
        content = getattr(element, kind)
        if kind == "exception":
            self.errors.append(f"{content.type}: {content.message}")
        elif kind == "alert" and content.format == content.ERROR:
            self.alerts.append(content.body)
        elif kind == "button":
            self._ids[content.id.rsplit("-", 1)[-1]] = content.id
        elif kind in VALUES and (content.set_value or content.id not in self._states):
            self._states[content.id] = VALUES[kind](content)
        elif kind == "bidi_component" and content.component_name.startswith("specdec_stage"):
            self._see(json.loads(content.json or content.mixed.json))
        elif kind == "bidi_component" and content.component_name == "specdec_later" and not self._drawn:
            self._drawn = True
            name = f"$$STREAMLIT_INTERNAL_KEY_{content.id}__events"
            await self._send(WidgetState(id=name, json_trigger_value=json.dumps([{"event": "drawn", "value": True}])))

    def _see(self, stage: dict) -> None:
        self.stage = stage
        if self.pressed is None or stage["run"] == self._before:
            return
        if self.first_round is None and stage["rounds"]:
            self.first_round = time.monotonic()
        if self.ended is None and stage["state"] in ENDED:
            self.ended = time.monotonic()
