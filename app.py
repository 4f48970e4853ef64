"""The door: `streamlit run app.py` (or `uvicorn app:app`). The pages start in specdec/ui/shell.py.

It is an st.App and not a script, so that no folder pages/ lies beside the entry script (the old multipage mode would take it
over), and so that the models begin to load with the server. SPECDEC_PRELOAD=0 leaves loading to the first run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from specdec import engine  # noqa: E402 - the folder has to be on the path first
from specdec.catalogue import offered  # noqa: E402
from specdec.errors import SettingsError  # noqa: E402
from specdec.ui.served import TEXTS  # noqa: E402

# A pass gives the interpreter away thousands of times; whoever took it has to give it back soon, see specdec/ui/looks.py.
sys.setswitchinterval(0.0005)

try:
    PAIRS = offered(os.environ)
    engine.shared()  # here, or at the address that SPECDEC_ENGINE gives
except SettingsError as error:
    sys.exit(f"specdec: {error}")
PRELOAD_DELAY = 3.0  # seconds; the first page comes before the models, and importing torch would slow it down


@asynccontextmanager
async def lifespan(_app: st.App):
    async def preload() -> None:
        await asyncio.sleep(PRELOAD_DELAY)
        engine.shared().preload(PAIRS[0])

    task = asyncio.create_task(preload()) if os.environ.get("SPECDEC_PRELOAD", "1") != "0" else None
    yield {}
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.to_thread(engine.shared().close)


async def readyz(_request: Request) -> JSONResponse:
    """200 once a pair is loaded; until then 503 with the stage of loading."""
    shared = engine.shared()
    stage = shared.progress.stage if shared.progress else ""
    body = {
        "state": shared.state,
        "pair": shared.pair_name,
        "stage": stage,
        "message": shared.message,
        "running": shared.running,
        "queue": shared.queue_length,
    }
    return JSONResponse(body, status_code=200 if shared.state == "ready" else 503)


app = st.App(str(ROOT / "specdec" / "ui" / "shell.py"), lifespan=lifespan, routes=[Route("/readyz", readyz), TEXTS])
