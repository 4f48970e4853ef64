"""Controls and views of the page "Why is the result exactly the target's?"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import streamlit as st

from specdec import goodness, mistakes, promises, theory
from specdec.engine import RunRequest
from specdec.trace import Draft, Settings, Trace
from specdec.ui import lesson, links, measuring, residual_figures, session
from specdec.ui.charts import View
from specdec.ui.explain import literal, origin_text, p_value, visible
from specdec.ui.figures import OTHERS
from specdec.ui.lesson import text, texts

WORDS = (" report", " invoice", " letter", " bill")
PRESETS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "example": ((0.50, 0.25, 0.15, 0.10), (0.20, 0.50, 0.10, 0.20)),
    "close": ((0.45, 0.30, 0.15, 0.10), (0.40, 0.32, 0.18, 0.10)),
    "disjoint": ((0.60, 0.40, 0.00, 0.00), (0.00, 0.00, 0.70, 0.30)),
    "peaked": ((0.92, 0.04, 0.02, 0.02), (0.70, 0.20, 0.05, 0.05)),
    "sure": ((0.50, 0.25, 0.15, 0.10), (0.00, 1.00, 0.00, 0.00)),
    "identical": ((0.50, 0.25, 0.15, 0.10), (0.50, 0.25, 0.15, 0.10)),
}
TOKENS = 8  # tokens of one run in the list
DRAWS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
THREE = "three"  # the series that writes one prompt three times
STEP = 1_000  # draws that each tick of "keep throwing" adds


@dataclass(frozen=True, eq=False)
class Two:
    """p and q over a few words."""

    words: tuple[str, ...]
    p: np.ndarray
    q: np.ndarray

    @property
    def overlap(self) -> float:
        return float(theory.overlap(self.p, self.q))


@dataclass(frozen=True)
class Start:
    """Where the sliders begin: a preset or a token of a run."""

    title: str
    words: tuple[str, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]


def starts() -> dict[str, Start]:
    """name in the address -> a preset, or a judged draft of a run at whose place the two models partly agreed."""
    found = {name: Start(texts("residual.presets")[name], WORDS, p, q) for name, (p, q) in PRESETS.items()}
    for title, trace in lesson.runs().items():
        drafts = [
            (r.index, i, d) for r in trace.rounds for i, d in enumerate(r.drafts) if d.status != "discarded" and d.top_p and d.top_q
        ]
        telling = sorted((d for d in drafts if 0.02 < d[2].overlap < 0.98), key=lambda d: abs(d[2].overlap - 0.5))[:TOKENS]
        for round_, place, draft in sorted(telling, key=lambda d: d[:2]):
            name = f"{title[:24]}.{round_ + 1}.{place + 1}"
            label = text("residual.token", token=visible(draft.text), round=round_ + 1, run=title)
            found[name] = Start(label, *_of_draft(draft))
    return found


def _of_draft(draft: Draft) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """The drafted token and the three that p and q like best of the others, and what all others have together."""
    p, q = ({t.id: t.probability for t in top} for top in (draft.top_p, draft.top_q))
    p[draft.id], q[draft.id] = draft.p, draft.q
    names = {t.id: t.text for t in (*draft.top_p, *draft.top_q)} | {draft.id: draft.text}
    best = sorted(names, key=lambda i: (i != draft.id, -max(p.get(i, 0), q.get(i, 0))))[:3]
    best.sort(key=lambda i: -max(p.get(i, 0), q.get(i, 0)))
    shown_p, shown_q = [p.get(i, 0.0) for i in best], [q.get(i, 0.0) for i in best]
    words = (*(names[i] for i in best), OTHERS)
    return words, (*shown_p, max(0.0, 1 - sum(shown_p))), (*shown_q, max(0.0, 1 - sum(shown_q)))


def _set(start: Start) -> None:
    for letter, values in (("p", start.p), ("q", start.q)):
        for i, value in enumerate(values):
            st.session_state[f"{letter}{i}"] = round(min(1.0, value), 2)


def begin_from(name: str) -> None:
    """Put the sliders where the start called `name` has them."""
    st.session_state.start = name
    _set(starts()[name])


def _begin(found: Mapping[str, Start]) -> None:
    """What the address asks for; weights that stand in it count more than the preset's."""
    state, query = st.session_state, st.query_params
    if "start" not in state:
        wanted = query.get("from", "example")
        state.start = wanted if wanted in found else "example"
        if state.start != "example" and not any(f"{letter}{i}" in query for letter in "pq" for i in range(4)):
            _set(found[state.start])
    elif state.start not in found:
        state.start = "example"


def _to_link() -> None:
    name = st.session_state.start
    _set(starts()[name])
    if name == "example":
        st.query_params.pop("from", None)
    else:
        st.query_params["from"] = name


def sliders() -> Two:
    """p and q as weights from 0 to 1, scaled so that each adds up to 1; in the address p0 … p3 and q0 … q3."""
    found = starts()
    _begin(found)
    st.selectbox(
        text("residual.start"),
        list(found),
        format_func=lambda n: found[n].title,
        key="start",
        on_change=_to_link,
        persist_state="session",
        disabled=links.locked("start") or links.locked("from"),
    )
    words = found[st.session_state.start].words
    weights: dict[str, list[float]] = {"p": [], "q": []}
    usual = dict(zip("pq", PRESETS["example"]))
    for i, word in enumerate(words):
        with st.container(key=f"word{i}", horizontal=True, gap="small"):
            for letter in "pq":
                shown = text("figure.others") if word == OTHERS else literal(visible(word))
                label = f"{text(f'residual.{letter}')} {shown}"
                key = f"{letter}{i}"
                weights[letter].append(
                    st.slider(
                        label,
                        0.0,
                        1.0,
                        usual[letter][i],
                        0.01,
                        key=key,
                        bind="query-params",
                        disabled=links.locked(key),
                        persist_state="session",
                    )
                )
    vectors = []
    for letter in "pq":
        if not sum(weights[letter]):
            st.warning(text("residual.empty", letter=letter))
            weights[letter] = [1.0] * len(words)
        vectors.append(mistakes.normalised(weights[letter]))
    if any(abs(sum(weights[letter]) - 1) > 0.006 for letter in "pq"):
        st.caption(text("residual.scaled", p=sum(weights["p"]), q=sum(weights["q"])))
    return Two(words, *vectors)


def parts(two: Two) -> None:
    """What is accepted, what is left, and that both together are p."""
    rejected = 1 - two.overlap
    lesson.answer(text("residual.parts" if rejected > 5e-4 else "residual.same", overlap=two.overlap, rejected=rejected))
    left, right = st.columns(2, gap="medium")
    for column, name, view in (
        (left, "pq", residual_figures.two_distributions(two.words, two.p, two.q)),
        (right, "sum", residual_figures.two_parts(two.words, two.p, two.q)),
    ):
        with column:
            st.markdown(f"**{text(f'residual.{name}')}**")
            _view(view, name)
    lesson.kind(text("residual.kind.parts"))


def _again() -> None:
    st.session_state.dice += 1
    links.put("dice", str(st.session_state.dice))


def draws(two: Two, *, ticks: int) -> None:
    """Dice: the exact rule or a mistake, thousands of times. ticks: times that "keep throwing" added `STEP` draws; 0 is off."""
    titles = texts("residual.rules")
    top = st.columns([2.2, 2, 1.1], vertical_alignment="bottom")
    with top[0]:
        name = st.selectbox(text("residual.rule"), list(titles), format_func=titles.__getitem__, **links.choice("rule", titles))
    with top[1]:
        count = st.select_slider(
            text("residual.draws"),
            DRAWS,
            3_000,
            key="draws",
            bind="query-params",
            persist_state="session",
            format_func=lambda n: f"{n:,}",
            disabled=ticks > 0 or links.locked("draws"),
        )
    with top[2]:
        st.button(text("residual.again"), icon=":material/casino:", key="again", on_click=_again, width="stretch")
    st.toggle(text("residual.keep"), key="keep", on_change=lambda: st.session_state.update(_turned=True))
    st.session_state.setdefault("dice", int(float(st.query_params.get("dice", 1))))
    rule = mistakes.MISTAKES[name](two.p, two.q)
    counts = mistakes.simulate(rule, STEP * ticks if ticks else count, seed=st.session_state.dice)
    test = goodness.chi_square(counts, rule.wanted)
    outside = int((np.abs(counts / counts.sum() - rule.wanted) > goodness.band(rule.wanted, counts.sum()) + 1e-12).sum())
    lesson.answer(_verdict(rule, test, total=int(counts.sum()), outside=outside), good=test.p_value is None or test.p_value >= 0.01)
    _view(residual_figures.drawn(two.words, rule, counts), "draws")
    lesson.kind(f"{texts('residual.why')[name]} {text('residual.kind.draws')}")


def _verdict(rule: mistakes.Rule, test: goodness.ChiSquare, *, total: int, outside: int) -> str:
    values = {"total": total, "outside": outside, "bias": 100 * rule.bias, "chi": test.statistic, "degrees": test.degrees}
    if test.p_value is None:
        return text("residual.verdict.none", **values)
    shown = p_value(test.p_value) if test.p_value >= 1e-12 else "< 1e-12"
    which = "right" if rule.bias < 1e-9 else "unseen" if test.p_value >= 0.01 else "wrong"
    return text(f"residual.verdict.{which}", p_value=shown, **values)


def errors(two: Two) -> None:
    """The bias of each tempting mistake for this p and q."""
    titles = texts("residual.rules")
    worst = max(mistakes.MISTAKES, key=lambda n: mistakes.MISTAKES[n](two.p, two.q).bias)
    bias = mistakes.MISTAKES[worst](two.p, two.q).bias
    lesson.answer(
        text("residual.errors" if bias > 1e-9 else "residual.errors.none", worst=titles[worst], bias=100 * bias), good=bias < 1e-9
    )
    _view(residual_figures.all_mistakes(titles, two.p, two.q), "mistakes")
    lines = "\n".join(f"- **{titles[name]}.** {why}" for name, why in texts("residual.why").items())
    with st.expander(text("residual.explain")):
        st.markdown(lines)
    lesson.kind(text("residual.kind.errors"))


def real() -> None:
    """The promise of Σ min(p, q) kept by a real run, and the same prompt with other dice."""
    runs = {n: t for n, t in lesson.runs().items() if not t.settings.greedy and any(d.top_p for r in t.rounds for d in r.drafts)}
    if runs:
        _promise(runs[st.selectbox(text("run.choose"), list(runs), key="which_sampled")])
    else:
        st.info(text("residual.real.none"))
    st.markdown(f"**{text('residual.two')}**")
    st.markdown(text("residual.two.text"))
    prompt = st.text_input(
        text("residual.two.prompt"),
        text("residual.two.example"),
        key="two_prompt",
        max_chars=2000,
        bind="query-params",
        disabled=links.locked("two_prompt"),
    )
    measuring.panel(THREE, label=text("residual.two.run"), requests=lambda: _three(prompt))
    found = measuring.results(THREE)
    for column, (name, trace) in zip(st.columns(max(1, len(found))), found):
        with column:
            st.markdown(f"**{name}**")
            st.text(trace.output_text)
            st.caption(literal(origin_text(trace)))


def _promise(trace: Trace) -> None:
    """Two sums of a run: of its drafts, and, which is the claim of this page, of what came out."""
    for name, promise in (("favourites", promises.favourites(trace)), ("acceptance", promises.acceptance(trace))):
        if not len(promise.chances):
            continue
        rare = promise.p_value
        fits = rare is None or rare > 0.01
        verdict = text("residual.real.fits") if fits else text("residual.real.off", rarity=1 / max(rare, 1e-12))
        values = {"expected": promise.expected, "error": promise.error, "count": promise.count, "of": len(promise.chances)}
        lesson.answer(text(f"residual.real.{name}", **values, verdict=verdict), good=fits)
        names = texts(f"residual.real.{name}.axes")
        _view(residual_figures.promised(promise.chances, promise.kept, **names), name)
    lesson.kind(f"{text('residual.kind.real')} {literal(origin_text(trace))}")


def _three(prompt: str) -> list[tuple[str, RunRequest]]:
    first, second, alone = texts("residual.two.names")
    settings = Settings(drafter=session.offered_drafters()[0], temperature=1.0, top_p=0.9, max_new_tokens=32, seed=1)
    return [
        (first, RunRequest(prompt=prompt, settings=settings)),
        (second, RunRequest(prompt=prompt, settings=settings.replace(seed=2))),
        (alone, RunRequest(prompt=prompt, settings=settings, method="plain")),
    ]


def _view(view: View, name: str) -> None:
    lesson.chart(view.figure, view.alt, key=f"chart_{name}")
    lesson.table(view.rows, name=f"residual-{name}")
