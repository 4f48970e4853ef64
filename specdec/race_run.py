"""Making a race: both methods on one device, one after the other, never at once, each warmed up before its clock starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specdec.decoding import stream, stream_plain
from specdec.race import Race
from specdec.trace import Method, Settings, Trace

WARM_UP = 200  # characters of the prompt


def begin(pair: Any, prompt: str, settings: Settings, *, method: Method, stop: Callable[[], bool] | None = None) -> Any:
    """A run of `specdec.decoding` that is about to start, after `warm_up`. Raises SettingsError as that does, in the plain half
    also for what only the other half would trip over: nobody waits for a race that cannot end."""
    run = stream(pair, prompt, settings, stop=stop)
    if method == "plain":
        run = stream_plain(pair, prompt, settings, stop=stop)
    warm_up(pair, prompt, settings, method=method, stop=stop)
    return run


def warm_up(pair: Any, prompt: str, settings: Settings, *, method: Method, stop: Callable[[], bool] | None = None) -> None:
    """A few tokens with the same shapes: what is made once (buffers, graphs, kernels) is no part of the race.

    The text is the beginning of the prompt, twice, so that look-up has something to copy.
    """
    start = stream_plain if method == "plain" else stream
    most = 2 if method == "plain" else settings.draft_length + 2
    for _ in start(pair, 2 * prompt[:WARM_UP], settings.replace(max_new_tokens=most, raw=True), stop=stop, record=False):
        pass


def run(
    pair: Any,
    prompt: str,
    settings: Settings,
    *,
    title: str = "",
    stop: Callable[[], bool] | None = None,
    progress: Callable[[str, int], None] = lambda method, tokens: None,
) -> Race:
    """Decode plainly, then speculatively. After a stop the race holds what there is, a run without tokens for what never began."""
    traces: list[Trace] = []
    for method in ("plain", "speculative"):
        made = begin(pair, prompt, settings, method=method, stop=stop)
        progress(method, 0)
        for _ in made:
            progress(method, len(made.output_ids))
        traces.append(made.trace())
    return Race(plain=traces[0], speculative=traces[1], title=title)
