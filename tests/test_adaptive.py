"""The adaptive draft length: it finds the best fixed one, gives way when drafting does not pay, and looks again."""

from __future__ import annotations

import copy
import dataclasses
import random

import pytest
from exact_law import assert_same_law, chain, law, pair_of, scrambled

from specdec import theory
from specdec.adaptive import LOOK_AGAIN, PRIOR_CHANCE, PRIOR_WEIGHT, AdaptiveLength, Experience
from specdec.errors import SettingsError
from specdec.trace import AUTO_LONGEST, Settings, Trace


def after(rounds: int, *, alpha: float, c: float, slope: float, longest: int = 8, seed: int = 0) -> tuple[AdaptiveLength, list[int]]:
    """Lengths that were chosen in rounds whose drafts are accepted by chance alpha; a plain step takes one second."""
    chooser, source, chosen = AdaptiveLength(longest, plain_seconds=1.0), random.Random(seed), []
    for _ in range(rounds):
        length = chooser.choose(100)
        accepted = next((i for i in range(length) if source.random() >= alpha), length)
        judged = min(length, accepted + 1)
        chooser.learn(length, accepted, judged, [c] * length, 1 + slope * length)
        chosen.append(length)
    return chooser, chosen


@pytest.mark.parametrize(("alpha", "c", "slope"), [(0.9, 0.05, 0.02), (0.75, 0.1, 0.05), (0.6, 0.1, 0.03)])
def test_the_pace_that_it_reaches_is_close_to_that_of_the_best_fixed_length(alpha, c, slope):
    def pace(length):
        return float(theory.expected_tokens(alpha, length)) / (length * c + 1 + slope * length)

    best = max(pace(length) for length in range(9))
    _, chosen = after(300, alpha=alpha, c=c, slope=slope)
    settled = chosen[50:]
    assert sum(map(pace, settled)) / len(settled) > 0.95 * best


def test_it_gives_way_to_plain_decoding_and_looks_again():
    _, chosen = after(200, alpha=0.1, c=0.5, slope=0.2)
    late = chosen[60:]
    assert late.count(0) > 0.85 * len(late)
    assert 1 in late and max(late) <= 1
    assert all(any(chosen[i : i + LOOK_AGAIN + 1]) for i in range(len(chosen) - LOOK_AGAIN - 1))


def test_the_room_that_is_left_is_never_exceeded():
    chooser, _ = after(50, alpha=0.95, c=0.02, slope=0.0)
    assert [chooser.choose(room) for room in (0, 1, 3)] == [0, 1, 3] and chooser.choose(-1) == 0
    assert chooser.choose(100) == 8


def test_expected_tokens_by_hand():
    chooser = AdaptiveLength(3, plain_seconds=1.0)
    chooser.chance = lambda position: (0.5, 0.4, 0.1)[position]
    assert chooser.expected_tokens(3) == pytest.approx(1 + 0.5 + 0.5 * 0.4 + 0.5 * 0.4 * 0.1)
    chooser.learn(2, 0, 1, [0.1, 0.3], 1.4)
    assert chooser.cost(2) == pytest.approx(2 * 0.2 + 1.4)
    assert chooser.cost(1) == pytest.approx(0.2 + 1.2)  # half-way between the plain step and two drafts
    assert chooser.cost(3) == pytest.approx(0.6 + 1.6)  # and further along the same line


def test_short_runs_one_after_the_other_come_close_to_the_best_fixed_length():
    """A pass over two tokens is dear and a draft is kept less often than was guessed: each run alone would spend its rounds finding out."""
    verify = {0: 1.0, 1: 1.08, 2: 1.29, 3: 1.35, 4: 1.40, 5: 1.5, 6: 1.58, 7: 1.65, 8: 1.72}
    alpha, c, tokens = 0.38, 0.08, 48

    def seconds(source, choose, learn):
        made, took = 0, 0.0
        while made < tokens:
            length = choose(tokens - made - 1)
            accepted = next((i for i in range(length) if source.random() >= alpha), length)
            learn(length, accepted, min(length, accepted + 1), [c] * length, verify[length])
            made, took = made + accepted + 1, took + length * c + verify[length]
        return took

    def ignore(*_):
        pass

    fixed = {n: sum(seconds(random.Random(run), lambda room, n=n: min(n, room), ignore) for run in range(60)) for n in range(5)}
    experience, alone, kept = Experience(), 0.0, 0.0
    for run in range(60):
        chooser = AdaptiveLength(8, plain_seconds=1.0)
        alone += seconds(random.Random(run), chooser.choose, chooser.learn)
        chooser = AdaptiveLength(8, plain_seconds=1.0, experience=experience)

        def learn(*round_, chooser=chooser):
            chooser.learn(*round_)
            experience.learn(*round_)

        kept += seconds(random.Random(run), chooser.choose, learn)
    assert min(fixed, key=fixed.get) == 1
    assert min(fixed.values()) / kept > 0.97
    assert kept < alone


def test_what_earlier_runs_have_shown_by_hand():
    experience = Experience()
    experience.learn(2, 1, 2, [0.1, 0.3], 1.4)
    experience.learn(2, 2, 2, [0.4, 0.4], 1.6)
    assert experience.draft_seconds == pytest.approx(0.2 + 0.2 * (0.4 - 0.2))
    assert experience.verify_seconds == {2: pytest.approx(1.4 + 0.2 * 0.2)}
    assert experience.tried[0] == pytest.approx(2, abs=0.01) and experience.kept[1] == pytest.approx(1, abs=0.01)
    chooser = AdaptiveLength(4, plain_seconds=1.0, experience=experience)
    first = (experience.kept[0] + PRIOR_WEIGHT * PRIOR_CHANCE) / (experience.tried[0] + PRIOR_WEIGHT)
    assert chooser.chance(0) == pytest.approx(first)
    assert chooser.chance(1) == pytest.approx((experience.kept[1] + PRIOR_WEIGHT * first) / (experience.tried[1] + PRIOR_WEIGHT))
    assert chooser.cost(2) == pytest.approx(2 * 0.24 + 1.44)
    chooser.learn(2, 0, 1, [0.24, 0.24], 2.44)  # the first own figure counts half, the second one fifth
    assert chooser.cost(2) == pytest.approx(2 * 0.24 + 1.94)
    chooser.learn(2, 0, 1, [0.24, 0.24], 2.44)
    assert chooser.cost(2) == pytest.approx(2 * 0.24 + 1.94 + 0.2 * 0.5)
    assert experience.verify_seconds[2] == pytest.approx(1.44)  # the run reads it and leaves it alone


def test_every_run_alone_on_the_device_adds_to_the_experience_and_shared_rounds_do_not(tiny_pair):
    from specdec import generate
    from specdec.batch import advance
    from specdec.decoding import stream

    pair = dataclasses.replace(tiny_pair(), experience={})
    fixed = Settings(draft_length=3, max_new_tokens=8, raw=True, drafter="draft")
    trace = generate(pair, "abcabc", fixed)
    (experience,) = pair.experience.values()
    assert set(experience.verify_seconds) == {len(r.drafts) for r in trace.rounds}
    assert experience.tried[0] > 0 and experience.draft_seconds > 0
    before = dict(experience.verify_seconds)
    runs = [stream(pair, "abcabc", fixed) for _ in range(2)]
    advance(runs)
    assert experience.verify_seconds == before
    advance(runs[:1])
    assert experience.verify_seconds != before
    generate(pair, "abcabc", fixed.replace(temperature=1.0))
    assert len(pair.experience) == 2  # sampled drafts are accepted at another rate


class Unchanging(dict):
    """Every run begins with the same experience, as it must for branches of one run to be compared."""

    def __init__(self, experience):
        self.experience = experience

    def setdefault(self, key, default=None):
        return copy.deepcopy(self.experience)


@pytest.mark.parametrize("experience", [Experience(), Experience(0.01, {0: 1.0, 1: 1.1, 2: 1.2}, {0: 9.0, 1: 4.0}, {0: 6.0, 1: 1.0})])
def test_the_law_stays_the_targets_whatever_length_is_chosen(experience):
    pair = pair_of(scrambled("target", vocabulary=3), scrambled("draft", vocabulary=3), experience=Unchanging(experience))
    settings = Settings(temperature=1.0, draft_length=2, adaptive=True, max_new_tokens=3, drafter="draft")
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))


def test_auto_is_a_setting_that_travels(tiny_pair):
    from specdec import generate

    settings = Settings(draft_length="auto", max_new_tokens=8, raw=True)
    assert settings.adaptive and settings.draft_length == AUTO_LONGEST
    assert settings.replace(seed=1).adaptive
    trace = generate(tiny_pair(), "abcabc", settings)
    assert Trace.from_json(trace.to_json()).settings == trace.settings and trace.settings.adaptive
    with pytest.raises(SettingsError, match="draft length is 'much'"):
        Settings(draft_length="much")


def test_a_trace_from_before_the_setting_still_opens(tiny_pair):
    from specdec import generate

    old = generate(tiny_pair(), "abc", Settings(max_new_tokens=4, raw=True)).to_json().replace('"adaptive":false,', "").replace(',"adaptive":false', "")
    assert "adaptive" not in old and Trace.from_json(old).settings.adaptive is False
