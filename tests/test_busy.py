"""Batched passes are measured on real sequences, and where speculation stops paying follows from them."""

from __future__ import annotations

import dataclasses

import pytest

from specdec import experiments, theory
from specdec.busy import Busy, BusyFinding, Passes
from specdec.engine import RunRequest
from specdec.errors import TraceError
from specdec.service import alone

PROMPTS = ("The cat sat on the mat and the cat sat on", "One two three one two three one two", "a b c d e f a b c d")


def finding(**changes) -> BusyFinding:
    fields = {"turns": 3, "plain": 0.1, "fastest": 0.1, "slowest": 0.1}
    usual = {
        "finish_reason": "done",
        "pair": "a",
        "device": "cpu",
        "machine": "m",
        "created": "2026-01-01T00:00:00+00:00",
        "drafter": "head",
        "draft_lengths": (1, 4),
        "context": 40.0,
        "judged": 100,
        "accepted": 60,
        "passes": tuple(
            Passes(at_once=b, ratios=(v, 1 + 4 * (v - 1)), cost=0.1, **fields)
            for b, v in ((1, 1.0), (2, 1.2), (4, 1.55), (8, 1.85))
        ),
    }
    return BusyFinding(**usual | changes)


def run(pair, asked: Busy, stop=lambda: False) -> tuple[list, BusyFinding]:
    going = experiments.begin(pair, RunRequest(prompt="x", experiment=asked), stop)
    return list(going), going.trace()


@pytest.mark.parametrize("drafter", ["draft", "lookup", "early-exit"])
def test_the_passes_decode_what_plain_decoding_would(tiny_pair, drafter):
    from specdec import busy_passes, decoding
    from specdec.trace import Settings

    pair = tiny_pair()
    asked = Busy(prompts=PROMPTS, drafter=drafter, at_once=(1, 3), draft_lengths=(1, 3), turns=2, longest_prompt=200)
    work = busy_passes._Work(pair, asked)
    assert len(list(work.steps())) == asked.total
    for one, prompt in zip(work.served, PROMPTS, strict=True):
        want = decoding.plain(pair, prompt, Settings(max_new_tokens=40))
        new = tuple(one.committed[len(want.prompt_ids) :])
        assert len(new) >= 3  # each of its turns commits one token at least
        assert new[: len(want.output_ids)] == want.output_ids[: len(new)]
    found = work.finding("done")
    assert [at.at_once for at in found.passes] == [1, 3] and all(at.turns == 2 and len(at.ratios) == 2 for at in found.passes)
    assert 0 <= found.accepted <= found.judged and (found.judged > 0 or drafter == "lookup")
    assert all(at.fastest <= at.plain <= at.slowest for at in found.passes)


def test_a_stopped_measurement_keeps_what_there_is(tiny_pair):
    asked, seen = Busy(prompts=PROMPTS, drafter="draft", at_once=(1, 2), draft_lengths=(1,), turns=4), []

    def stop() -> bool:
        seen.append(None)
        return len(seen) > 7  # two prompts, a warming turn, one turn, half of the next

    steps, found = run(tiny_pair(), asked, stop)
    assert len(steps) == 7 and found.finish_reason == "stopped"
    assert [(at.at_once, at.turns) for at in found.passes] == [(1, 2), (2, 1)]


def test_where_it_stops_paying():
    found = finding()
    speeds = [found.best(at) for at in found.passes]
    assert speeds[0] == (4, pytest.approx(theory.speedup(0.6, 4, 0.1, 1.0)))
    assert speeds[2] == (1, pytest.approx(1.6 / 1.65)) and found.stops_at() == 4
    assert found.stops_at(alpha=1.0) is None and found.stops_at(alpha=0.0) == 1
    # Once above 1 again, it has not stopped before.
    dip = [dataclasses.replace(at, ratios=(v, 9.0)) for at, v in zip(found.passes, (1.0, 2.0, 1.0, 2.0), strict=True)]
    assert finding(passes=tuple(dip)).stops_at() == 8


def test_a_measurement_that_scatters_around_1_is_called_unclear():
    """v = 1.6 at γ = 1, c = 0.1, α = 0.6: 1.6 / 1.7 < 1; with v = 1.4 it is 1.6 / 1.5 > 1."""
    sure = finding().passes[0]
    turns = (1.4, 1.4, 1.6, 1.6, 1.6)
    scattered = dataclasses.replace(
        sure, at_once=2, ratios=(1.6, 9.0), turn_ratios=(turns, (9.0,) * 5), turn_costs=(0.1,) * 5
    )
    found = finding(passes=(sure, scattered))
    assert found.spread(scattered, 1) == (pytest.approx(1.6 / 1.7), pytest.approx(1.6 / 1.5))
    assert found.pays(sure) is True and found.pays(scattered) is None and found.unclear() == (2,) and found.stops_at() is None
    slow = dataclasses.replace(scattered, turn_ratios=((1.6,) * 5, (9.0,) * 5))
    assert finding(passes=(sure, slow)).pays(slow) is False and finding(passes=(sure, slow)).stops_at() == 2


def test_a_finding_travels_as_json():
    found = finding()
    assert experiments.from_json(BusyFinding, experiments.to_json(found)) == found
    with pytest.raises(TraceError):
        experiments.from_json(BusyFinding, '{"pair": 3}')


def test_it_is_timed_alone_and_the_shipped_one_can_be_read():
    assert alone(RunRequest(prompt="x", experiment=Busy(prompts=("x",))))
    shipped = experiments.recorded("busy", BusyFinding)
    assert shipped is not None and shipped.finish_reason == "done" and [at.at_once for at in shipped.passes] == [1, 2, 4, 8, 16]
