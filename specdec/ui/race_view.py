"""The parts of the page "With and without": what this tab races, and the verdict, table, texts and timeline of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import streamlit as st

from specdec.engine import Job, RunRequest, shared
from specdec.errors import SpecdecError, TraceError
from specdec.race import Comparison, Race, Side, compare, first_difference
from specdec.race_words import seconds, texts, verdict
from specdec.texts import number
from specdec.ui import lesson, links, session
from specdec.ui import recordings as kept_races
from specdec.ui.explain import day, literal, origin_text
from specdec.ui.figures import CHART
from specdec.ui.panels import loading_text
from specdec.ui.race_figures import timeline
from specdec.ui.race_stage import Lane, RaceStage
from specdec.ui.texts import text

RACES = session.RECORDINGS / "races"
FILE_MEGABYTES = 8


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What this tab looks at. run: its identity in the browser. One of race and job is given; a job brings its own race."""

    kind: Literal["recording", "file", "run"]
    run: str
    label: str
    race: Race | None = None
    job: Job | None = None

    @property
    def result(self) -> Race | None:
        """The race once both runs have ended, also after a stop, if there is something of both."""
        if self.job is None:
            return self.race
        plain, speculative = self.job.plain_trace, self.job.trace
        if self.job.active or plain is None or speculative is None or not speculative.rounds:
            return None
        return Race(plain=plain, speculative=speculative)


@lru_cache(maxsize=1)
def recordings() -> dict[str, Race]:
    """The shipped races by file name, without those that cannot be read. Each holds two real runs."""
    found = {}
    for path in sorted(RACES.glob("*.json")):
        try:
            found[path.stem] = Race.from_json(path.read_bytes())
        except SpecdecError:
            continue
    return found


def shown() -> Shown | None:
    """What was chosen last; at first the first recording, None if there is none."""
    now = st.session_state.get("_race")
    if now is None and recordings():
        asked = st.query_params.get("race")
        now = st.session_state["_race"] = _recording(asked if asked in recordings() else next(iter(recordings())))
    return now


def _recording(name: str) -> Shown:
    if (mine := kept_races.RACES.kept.get(name)) is not None:
        return Shown(kind="recording", run=f"race-kept-{name}", label=mine.title, race=mine)
    race = recordings()[name]
    race = race.renamed(kept_races.title(name, race))
    return Shown(kind="recording", run=f"race-{name}", label=race.title, race=race)


def _show(new: Shown) -> None:
    held = session.lease()
    if new.job is not held.job:
        held.stop()
    st.session_state["_race"] = new


def start(request: RunRequest) -> None:
    """Race with this request. Raises SpecdecError; then everything stays as it was."""
    request = RunRequest(prompt=request.prompt, settings=request.settings, pair=request.pair, race=True)
    job = session.lease().run(request)
    _show(Shown(kind="run", run=job.id, label=request.prompt[:80], job=job))


def _play(key: str) -> None:
    _show(_recording(key))
    links.put("race", None if key in kept_races.RACES.kept else key)


def play(name: str) -> None:
    """Put a shipped race on the page."""
    if name in recordings():
        _show(_recording(name))


def _open() -> None:
    file = st.session_state.race_file
    if file is None:
        return
    try:
        if file.size > FILE_MEGABYTES * 2**20:
            raise TraceError(text("file.too_large", size=file.size / 2**20, most=FILE_MEGABYTES))
        race = Race.from_json(file.getvalue())
        _show(Shown(kind="file", run=f"race-file-{file.file_id}", label=race.title or file.name, race=race))
    except SpecdecError as error:
        session.notice(text("file.refused", name=file.name, why=error))


def kept(race: Race | None, *, name: str) -> None:
    """Recorded and saved races, for the sidebar. race: what can be saved."""
    st.subheader(text("race.kept"), anchor=False)
    kept_races.chooser(kept_races.RACES, recordings(), _play, key="race_recording")
    suggested = (race.title or race.plain.prompt) if race is not None else ""
    kept_races.keeper(kept_races.RACES, race, name.removeprefix("race-kept-"), suggested, _play)
    st.download_button(
        text("race.download"),
        data=race.to_json if race is not None else b"",  # made when the button is pressed, not with every picture
        file_name=f"{name or 'race'}.json",
        mime="application/json",
        icon=":material/download:",
        help=text("race.download.help"),
        disabled=race is None,
        on_click="ignore",
        key="race_download",
        width="stretch",
    )
    st.file_uploader(
        text("race.open"),
        type=["json"],
        key="race_file",
        help=text("race.open.help"),
        on_change=_open,
        max_upload_size=FILE_MEGABYTES,
    )


def stage_of(now: Shown | None) -> RaceStage:
    """What the two sides show of `now`."""
    if now is None:
        nothing = Lane(name="plain"), Lane(name="speculative")
        return _live("", "empty", "", text("first"), *nothing)
    race = now.result
    if race is not None:
        difference = first_difference(race) if race.plain.settings.greedy else None
        place = None if difference is None else difference.place
        kind = "live" if now.kind == "run" else "recording"
        return RaceStage.of(race, run=now.run, label=_label(now, race), kind=kind, difference=place)
    job = now.job
    plain = Lane(name="plain", trace=None if job.active and not job.rounds else job.plain_trace, rounds=tuple(job.plain_rounds))
    speculative = Lane(name="speculative", rounds=tuple(job.rounds))
    state = "loading" if job.state == "queued" and shared().state == "loading" else job.state
    return _live(now.run, state, text("label.run"), _message(job), plain, speculative, job=job)


def _live(run: str, state, label: str, message: str, plain: Lane, speculative: Lane, job: Job | None = None) -> RaceStage:
    request = job.request if job is not None else RunRequest(prompt="")
    return RaceStage(
        run=run,
        label=label,
        kind="live",
        state=state,
        prompt=request.prompt,
        settings=request.settings,
        plain=plain,
        speculative=speculative,
        clock=False,
        message=message,
        progress=job.progress.fraction if job is not None and job.progress else None,
    )


def _label(now: Shown, race: Race) -> str:
    if now.kind == "run":
        return text("label.run")
    trace = race.speculative
    return " · ".join([text(f"label.{now.kind}"), day(trace.created), trace.device.split(" (")[0][:20]])


def _message(job: Job) -> str:
    """How a race stands that has no clock yet."""
    if job.state == "queued":
        if job.progress is not None:
            return loading_text(job.progress)
        return text("race.queued.next") if job.position <= 1 else text("race.queued", count=job.position)
    if job.state == "running":
        return text("race.now.speculative" if _plain_is_over(job) else "race.now.plain")
    if job.state == "stopped":
        return f"{job.message} {text('race.stopped')}".strip()
    return job.message


def _plain_is_over(job: Job) -> bool:
    return bool(job.rounds) or (job.plain_trace is not None and job.plain_trace.finish_reason != "stopped")


def banner(now: Shown | None) -> None:
    """Who won, and why. One box of the same size before there is an answer, so that nothing jumps."""
    race = now.result if now is not None else None
    job = now.job if now is not None else None
    if job is not None and not job.active and job.message:  # what went wrong, or ended it early
        (st.error if job.state == "failed" else st.info)(literal(job.message), icon=":material/error:")
    with st.container(key="race_verdict"):
        if race is None:
            st.info(text("race.later"), icon=":material/info:")
            return
        said = verdict(race)
        icon = {True: ":material/trending_up:", False: ":material/trending_down:", None: ":material/info:"}[said.faster]
        box = {True: st.success, False: st.warning, None: st.info}[said.faster]
        box(f"**{literal(said.head)}** {literal(said.rest)}", icon=icon)


def figures(race: Race | None) -> None:
    """Both runs beside each other in figures, and whether the two texts are the same."""
    if race is None:
        return
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        st.markdown(f"**{text('race.table')}**")
        st.container(key="race_table").markdown(table(compare(race)))
        st.caption(text("race.table.words"))
    with right:
        said = texts(race)
        st.markdown(f"**{text('race.texts')}**")
        box = {True: st.success, False: st.error, None: st.info}[said.good]
        icon = {True: ":material/check:", False: ":material/error:", None: ":material/casino:"}[said.good]
        box(f"**{literal(said.head)}** {literal(said.rest)}", icon=icon)


def table(found: Comparison) -> str:
    """The two runs as a Markdown table, times apart from counts."""

    def per_pass(side: Side) -> str:
        return "–" if side.tokens_per_pass is None else number(side.tokens_per_pass, ".2f")

    a, b = found.plain, found.speculative
    whole = found.whole
    rows = [
        ("race.first", seconds(a.first), seconds(b.first), _later(a.first, b.first)),
        ("race.complete", seconds(a.complete), seconds(b.complete), _later(a.complete, b.complete) if whole else "–"),
        ("race.tokens", str(a.tokens), str(b.tokens), ""),
        ("race.passes", str(a.passes), str(b.passes), f"{b.passes - a.passes:+d}".replace("-", "−") if whole else "–"),
        ("race.per_pass", per_pass(a), per_pass(b), ""),
    ]
    head = ("", text("race.plain"), text("race.speculative"), text("race.difference"))
    # A number stays together with its unit, however narrow the screen is.
    lines = [head, ("---", "--:", "--:", "--:"), *((text(n), *(c.replace(" ", "\u00a0") for c in cells)) for n, *cells in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _later(plain: float | None, speculative: float | None) -> str:
    if plain is None or speculative is None:
        return "–"
    gap = speculative - plain
    return f"{'+' if gap >= 0 else '−'}{seconds(abs(gap))}"


def timelines(race: Race | None, *, ready: bool) -> None:
    """Where the time went, as a picture and as a table. ready: False leaves the picture's place empty."""
    if race is None:
        return
    st.markdown(f"**{text('race.timeline')}**")
    close = lesson.choose("race_show", {"whole": text("race.whole"), "close": text("race.close")}, text("race.timeline")) == "close"
    view = timeline(race, close=close)
    if ready:
        st.plotly_chart(view.figure, key="chart_race", config=CHART, alt=view.alt)
    else:
        st.container(height=view.figure["layout"]["height"], border=False)
    lesson.table(view.rows, name="race-timeline", height=420)
    versions = race.speculative.versions
    made = f"torch {versions['torch']}" if "torch" in versions else text("race.unknown")
    st.caption(f"{text('race.about')} {literal(origin_text(race.speculative))} · {literal(made)}")
