"""What the server answers beside the pages: the texts of the browser's own parts, by language."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from specdec.texts import ENGLISH, LANGUAGES, table

FIRST = ("stage.", "present.")  # names of the texts that a script in the browser shows


async def _texts(request: Request) -> JSONResponse:
    """/texts/de.json: every text of the stage and the race by name; what is missing is English, an unknown language is, too."""
    code = request.path_params["code"]
    both = table(ENGLISH) | table(code if code in LANGUAGES else ENGLISH)
    return JSONResponse({name: words for name, words in both.items() if name.startswith(FIRST) and isinstance(words, str)})


TEXTS = Route("/texts/{code}.json", _texts)
