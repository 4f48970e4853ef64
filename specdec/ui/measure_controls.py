"""What the page "Before adopting it" measures: the controls, the campaign of this tab, and the measurements that it can show."""

from __future__ import annotations

import dataclasses
import shlex
import time
from functools import lru_cache

import streamlit as st

from specdec import measure_store
from specdec.errors import SettingsError, SpecdecError
from specdec.measure import AT_ONCE, Design, Measurement
from specdec.measure_analysis import Analysis, analyse
from specdec.measure_campaign import Campaign
from specdec.measure_records import AUTO
from specdec.prompt_sets import PromptSet, parse, paste, shipped
from specdec.ui import links, panels, session
from specdec.ui.explain import literal
from specdec.ui.lesson import text, texts

FOLDER = session.ROOT / "assets" / "measurements"
POLL = 1.0  # seconds between two looks
LENGTHS = ("1", "2", "3", "4", "6", "8", "auto")
TOKENS = (16, 32, 48, 64, 128, 256)
MOST = 600  # runs of one measurement on a shared machine


# Measurements to show


def chosen() -> tuple[str, Measurement] | None:
    """Label and measurement that the page shows, with the box to choose where there are several; None where there is none."""
    found, state = measurements(), st.session_state
    if not found:
        return None
    now = campaign()
    if state.get("_show_own") and now is not None and _label(now) in found:
        state["measurement"] = _label(now)
        del state["_show_own"]
    if state.get("measurement") not in found:
        state["measurement"] = next(iter(found))
    if len(found) > 1:
        st.selectbox(text("adopt.which"), list(found), key="measurement", persist_state="session")
    return state["measurement"], found[state["measurement"]]


@lru_cache(maxsize=1)
def recorded() -> dict[str, Measurement]:
    """The shipped measurements by file name, without those that cannot be read."""
    found = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        try:
            found[path.stem] = measure_store.load(path.read_bytes())
        except SpecdecError:
            continue
    return found


def measurements() -> dict[str, Measurement]:
    """Everything that this tab can show, by label: its own, newest first, then opened files, then the recorded ones."""
    own: dict[str, Measurement] = st.session_state.get("_measurements", {})
    found = {label: own[label] for label in reversed(own)}
    now = campaign()
    if now is not None and now.measurement is not None and now.measurement.records:
        found = {_label(now): now.measurement, **{k: v for k, v in found.items() if k != _label(now)}}
    return found | {text("adopt.recorded", title=m.title or name): m for name, m in recorded().items()}


_analyses: dict[int, tuple[Measurement, Analysis]] = {}


def analysis_of(measurement: Measurement) -> Analysis:
    """Kept for the last few: a page is drawn again with every click, and a large measurement takes seconds."""
    known = _analyses.get(id(measurement))
    if known is None or known[0] is not measurement:
        known = measurement, analyse(measurement)
        while len(_analyses) >= 8:
            _analyses.pop(next(iter(_analyses)), None)
        _analyses[id(measurement)] = known
    return known[1]


def _keep(label: str, measurement: Measurement) -> None:
    st.session_state.setdefault("_measurements", {})[label] = measurement


def open_file() -> None:
    """Called when somebody gives a runs.jsonl."""
    file = st.session_state.get("measurement_file")
    if file is None:
        return
    try:
        made = measure_store.load(file.getvalue())
        if not made.records:
            raise SettingsError("there is no run in it.")
    except SpecdecError as error:
        session.notice(f"{file.name} was not opened, everything stays as it was: {error}")
        return
    _keep(file.name, made)
    st.session_state["measurement"] = file.name


# The campaign of this tab


def campaign() -> Campaign | None:
    return st.session_state.get("_campaign")


def active() -> bool:
    """Whether the page has to keep looking."""
    now = campaign()
    return now is not None and now.active


def _label(now: Campaign) -> str:
    return text("adopt.here", time=st.session_state.get("_campaign_began", ""))


def _start(design: Design) -> None:
    """Begin, or go on with what this tab measured for the same design."""
    before = campaign()
    known = None
    if before is not None and before.measurement is not None and before.measurement.records:
        _keep(_label(before), before.measurement)
        known = before.measurement if _goes_on(before, design) else None
    if known is None:
        st.session_state["_campaign_began"] = time.strftime("%H:%M:%S")
    st.session_state["_campaign"] = Campaign(session.lease(), design, measurement=known)
    st.session_state["_show_own"] = True  # as soon as it has something to show


def _goes_on(before: Campaign | None, design: Design | None) -> bool:
    return (
        before is not None
        and not before.active
        and before.design == design
        and before.measurement is not None
        and 0 < len(before.measurement.records) < design.total
    )


def _stop() -> None:
    if (now := campaign()) is not None:
        now.stop()


def state() -> None:
    """What the campaign is doing, with Stop; nothing where there is none. Belongs into a fragment that runs every second."""
    now = campaign()
    if now is None:
        return
    done = len(now.measurement.records) if now.measurement is not None else 0
    total = now.design.total
    if now.active:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.progress(done / total, text=literal(_doing(now)))
            st.button(text("adopt.stop"), icon=":material/stop:", key="stop_campaign", on_click=_stop)
        if now.measurement is not None and done:
            verdict = analysis_of(now.measurement).overall
            if verdict.speedup is not None:
                st.caption(literal(text("adopt.so_far", sentence=f"{verdict.name}: {verdict.said()}")))
    elif now.state == "done":
        st.success(text("adopt.state.done", total=total), icon=":material/check:")
    else:
        words = literal(" ".join(filter(None, (text("adopt.state.stopped", done=done, total=total) if done else "", now.message))))
        (st.error if now.state == "failed" else st.info)(words or text("adopt.stop"), icon=":material/info:")


def _doing(now: Campaign) -> str:
    progress = now.progress
    if progress is None:
        job = now.job
        loading = job is not None and job.state == "queued" and job.progress is not None
        return panels.loading_text(job.progress) if loading else text("adopt.state.load")
    arm = progress.step.arm.name + (f", {progress.step.at_once} at once" if progress.step.at_once else "")
    if progress.step.warm_up:
        return text("adopt.state.warm", arm=arm)
    left = progress.seconds_left
    words = text("adopt.state.run", done=progress.done, total=progress.total, arm=arm)
    return words if left is None else words + text("adopt.state.left", left=_minutes(left))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, round(seconds))} s"


# The controls


def controls() -> None:
    """Everything that makes a design, and the button. What cannot be measured is said where the button is."""
    left, right = st.columns(2, gap="large")
    with left:
        prompts, wrong = _prompts()
    with right:
        settings = _settings()
    design = None
    if prompts is not None:
        for problem in prompts.problems[:5]:
            st.warning(literal(problem), icon=":material/warning:")
        try:
            design = Design(pair=session.offered_pairs()[0], prompts=prompts.prompts, **settings)
            if design.total > MOST:
                wrong = f"These are {design.total:,} runs, {MOST} are the most here: take fewer, or use the command line."
        except SettingsError as error:
            wrong = str(error)
    goes_on = _goes_on(campaign(), design)
    st.button(
        text("adopt.go_on" if goes_on else "adopt.start"),
        icon=":material/play_arrow:",
        type="primary",
        key="start_campaign",
        on_click=_start,
        args=(design,),
        disabled=design is None or bool(wrong) or active(),
    )
    if wrong:
        st.warning(literal(wrong), icon=":material/warning:")
    elif design is not None:
        counts = {"runs": design.total, "tokens": design.new_tokens, "arms": len(design.arms), "prompts": len(design.prompts)}
        st.caption(literal(text("adopt.count", **counts)))
        st.code(_command(design), language="bash", wrap_lines=True)


def _prompts() -> tuple[PromptSet | None, str]:
    """The chosen prompts, or None and why there are none."""
    source = st.segmented_control(
        text("adopt.source"),
        list(options := texts("adopt.source.options")),
        required=True,
        format_func=options.__getitem__,
        **links.choice("m_source", options),
        persist_state="session",
    )
    try:
        if source == "paste":
            words = st.text_area(text("adopt.paste"), key="m_paste", height=150, max_chars=50_000, persist_state="session")
            return (paste(words), "") if words.strip() else (None, "")
        if source == "upload":
            file = st.file_uploader(text("adopt.upload"), type=["txt", "jsonl", "csv"], key="m_file")
            return (parse(file.getvalue(), name=file.name), "") if file is not None else (None, "")
    except SettingsError as error:
        return None, str(error)
    ours = shipped()
    kinds = st.pills(
        text("adopt.kinds"),
        ours.kinds,
        selection_mode="multi",
        wrap=True,
        default=ours.kinds,
        key="m_kinds",
        bind="query-params",
        disabled=links.locked("m_kinds"),
        persist_state="session",
    )
    count = st.slider(
        text("adopt.per_kind"),
        1,
        6,
        6,
        key="m_per_kind",
        bind="query-params",
        disabled=links.locked("m_per_kind"),
        persist_state="session",
    )
    return ours.choose(kinds, count), ""


def _settings() -> dict:
    offered = session.offered_drafters()
    drafters = st.pills(
        text("adopt.drafters"),
        offered,
        selection_mode="multi",
        wrap=True,
        default=offered[:1],
        key="m_drafters",
        bind="query-params",
        disabled=links.locked("m_drafters"),
        persist_state="session",
    )
    lengths = st.pills(
        text("adopt.lengths"),
        LENGTHS,
        selection_mode="multi",
        wrap=True,
        default=("2", "4"),
        key="m_lengths",
        bind="query-params",
        disabled=links.locked("m_lengths"),
        persist_state="session",
    )
    one, two = st.columns(2)
    with one:
        repeats = st.slider(
            text("adopt.repeats"),
            1,
            5,
            1,
            key="m_repeats",
            bind="query-params",
            disabled=links.locked("m_repeats"),
            persist_state="session",
        )
        tokens = st.select_slider(
            text("adopt.tokens"),
            TOKENS,
            48,
            key="m_tokens",
            bind="query-params",
            disabled=links.locked("m_tokens"),
            persist_state="session",
        )
    with two:
        temperature = st.slider(
            text("adopt.temperature"),
            0.0,
            1.5,
            0.0,
            0.1,
            key="m_temperature",
            help=text("adopt.temperature.help"),
            bind="query-params",
            disabled=links.locked("m_temperature"),
            persist_state="session",
        )
        together = st.toggle(
            text("adopt.together"),
            key="m_together",
            help=text("adopt.together.help"),
            bind="query-params",
            disabled=links.locked("m_together"),
            persist_state="session",
        )
    return {
        "drafters": tuple(drafters or ()),
        "draft_lengths": tuple(AUTO if n == "auto" else int(n) for n in LENGTHS if n in (lengths or ())),
        "at_once": AT_ONCE if together else (),
        "repeats": repeats,
        "new_tokens": tokens,
        "temperature": temperature,
    }


def _command(design: Design) -> str:
    """The same measurement on the command line."""
    source = st.session_state.get("m_source")
    words = ["python", "-m", "specdec", "measure", "--out", "my-measurement"]
    if source == "ours":
        for kind in design.kinds if len(design.kinds) < len(shipped().kinds) else ():
            words += ["--kind", kind]
        words += ["--per-kind", str(st.session_state.get("m_per_kind", 6))]
    else:
        file = st.session_state.get("m_file")
        words += ["--prompts", file.name if source == "upload" and file is not None else "my-prompts.txt"]
    for drafter in design.drafters:
        words += ["--drafter", drafter]
    words += [
        "--draft-lengths",
        ",".join("auto" if n == AUTO else str(n) for n in design.draft_lengths),
        "--new-tokens",
        str(design.new_tokens),
    ]
    if design.at_once:
        words += ["--at-once", ",".join(map(str, design.at_once))]
    usual = {field.name: field.default for field in dataclasses.fields(Design)}
    for name in ("repeats", "temperature"):
        if (value := getattr(design, name)) != usual[name]:
            words += [f"--{name}", f"{value:g}"]
    return shlex.join(words)
