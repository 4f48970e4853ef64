"""Experiments of the pages: a random drafter is exact, laws are compared rightly, texts of two formats part where they part."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch

from specdec import decoding, experiments, goodness, law, precision
from specdec.engine import RunRequest
from specdec.trace import Settings, Trace

PROMPT = "The cat sat on the mat and the cat sat on"


def run(pair, prompt, experiment, settings=Settings(), stop=lambda: False):  # noqa: B008 - frozen
    request = RunRequest(prompt=prompt, settings=settings, experiment=experiment)
    going = experiments.begin(pair, request, stop)
    return list(going), going.trace()


# A drafter that guesses


def test_a_random_drafter_wastes_time_and_nothing_else(tiny_pair):
    pair = tiny_pair()
    settings = Settings(drafter="random", draft_length=3, max_new_tokens=24)
    _, trace = run(pair, PROMPT, experiments.Guesses(), settings)
    assert trace.output_ids == decoding.plain(pair, PROMPT, Settings(max_new_tokens=24)).output_ids
    assert trace.settings.drafter == "random" and Trace.from_json(trace.to_json()) == trace
    drafts = [d for r in trace.rounds for d in r.drafts]
    assert {round(d.q * pair.vocabulary, 6) for d in drafts} == {1.0}
    assert all(d.id == int(d.draw_u * pair.vocabulary) for d in drafts)  # it draws from the q that it reports
    assert len({d.id for d in drafts}) > len(drafts) / 2


# One law


def test_two_counts_of_one_law_and_of_two():
    """Against the definition, and by simulation: p-values of one law are uniform."""
    test = goodness.g_test([30, 70], [45, 55])
    wanted = 2 * sum(o * math.log(o / e) for o, e in ((30, 37.5), (45, 37.5), (70, 62.5), (55, 62.5)))
    assert test.statistic == pytest.approx(wanted) and test.degrees == 1
    assert test.p_value == pytest.approx(goodness.survival(wanted, 1))
    assert goodness.g_test([500, 500], [400, 600]).p_value < 1e-4
    assert goodness.g_test([3, 2], [2, 3]).p_value is None and goodness.g_test([0, 0], [4, 4]).p_value is None
    dice = random.Random(1)
    rare = 0
    for _ in range(400):
        counts = [[0] * 6, [0] * 6]
        for side, draws in ((0, 150), (1, 90)):
            for value in dice.choices(range(6), (40, 25, 20, 10, 4, 1), k=draws):
                counts[side][value] += 1
        rare += goodness.g_test(*counts).p_value < 0.1
    assert 20 < rare < 62  # 40 expected, 6 is one standard deviation


def test_continuations_follow_the_target(tiny_pair):
    pair = tiny_pair()
    asked = law.Law(count=96, drafter="draft", temperature=0.5, at_once=16)
    steps, found = run(pair, "The cat", asked)
    assert len(steps) == asked.total == 12 and found.counts == (96, 96) and found.drafted > 0
    ids = pair.encode("The cat", raw=True)
    p = (pair.target.open().forward(list(ids), keep=1)[0].double() / 0.5).softmax(-1)
    for token, chance in found.exact:
        assert chance == pytest.approx(float(p[token]), rel=1e-3)
    first = law.compare(found, 0)
    assert first.test.p_value is None or first.test.p_value > 1e-3
    assert first.against_exact.p_value is None or first.against_exact.p_value > 1e-3
    for place in (0, 1, 2, None):
        seen = law.compare(found, place)
        assert (sum(seen.speculative), sum(seen.alone)) == (96, 96)
        assert len(seen.labels) == len(seen.speculative) == len(seen.alone) <= 9
    assert sum(first.exact) == pytest.approx(1) and len(first.exact) == len(first.labels)
    assert experiments.from_json(law.LawFinding, experiments.to_json(found)) == found


def counted(speculative: dict[int, int], alone: dict[int, int], exact: dict[int, float]) -> law.LawFinding:
    kinds = [tuple(law.Continuation(ids=(i,), texts=(f" {i}",), count=n) for i, n in kind.items()) for kind in (speculative, alone)]
    return law.LawFinding(
        finish_reason="done",
        pair="a",
        device="cpu",
        machine="m",
        created="2026-01-01",
        prompt="x",
        drafter="head",
        tokens=1,
        temperature=1.0,
        speculative=kinds[0],
        alone=kinds[1],
        exact=tuple(exact.items()),
        drafted=1,
        accepted=1,
    )


def test_another_law_is_seen_and_rare_tokens_are_no_alarm():
    exact = {1: 0.5, 2: 0.3} | {100 + i: 0.002 for i in range(50)}
    right = law.compare(counted({1: 50, 2: 30, 103: 11, 999: 9}, {1: 50, 2: 30, 104: 20}, exact | {999: 1e-5}), 0)
    # Tokens that did not come are no cell of their own: which cells there are must not depend on what came.
    assert right.against_exact.degrees == 2 and right.against_exact.p_value > 0.9
    wrong = law.compare(counted({1: 30, 2: 50, 103: 20}, {1: 50, 2: 30, 104: 20}, exact), 0)
    assert wrong.against_exact.p_value < 1e-3 and wrong.test.p_value < 0.02
    impossible = law.compare(counted({1: 99, 5: 1}, {1: 100}, exact), 0)
    assert impossible.against_exact.p_value == 0


# Precision


class Scripted:
    """A runner whose logits depend on the text, and in passes of several tokens differ by `noise` at one place."""

    def __init__(self, *, noise: float, at: int) -> None:
        self.noise, self.at, self.passes = noise, at, []

    def open(self):
        return ScriptedSequence(self)


class ScriptedSequence:
    def __init__(self, runner: Scripted) -> None:
        self.runner, self.ids = runner, []

    def forward(self, ids, *, keep=None):
        rows = []
        self.runner.passes.append(len(ids))
        for token in ids:
            self.ids.append(token)
            row = torch.zeros(16)
            best = (7 * len(self.ids) + token) % 14
            row[best], row[best + 1] = 2.0, 1.0
            if len(self.ids) == self.runner.at:
                row[best + 1] = 2.0 - 0.001 + (self.runner.noise if len(ids) > 1 else 0)
            rows.append(row)
        return torch.stack(rows)[-(keep or len(ids)) :]

    def crop(self, length):
        self.ids = self.ids[:length]


@pytest.mark.parametrize(("noise", "parts"), [(0.0, False), (0.0005, False), (0.002, True)])
def test_texts_part_where_rounding_flips_a_choice(noise, parts):
    from specdec.precision_runs import Written, one_by_one, parting, verified

    runner, prompt = Scripted(noise=noise, at=12), [1, 2, 3]
    plain, checked = Written(), Written()
    list(one_by_one(runner, prompt, plain, tokens=20, eos_ids=frozenset()))
    assert len(plain.ids) == 20
    runner.passes.clear()
    list(verified(runner, prompt, checked, guide=plain.ids, block=4, tokens=20, eos_ids=frozenset()))
    assert len(checked.ids) == 20 and max(runner.passes[1:]) == 5
    found = parting(plain, checked, str)
    assert (found is not None) == parts and (plain.ids == checked.ids) != parts
    if found is not None:
        assert found.place == 12 - len(prompt) and found.gap == pytest.approx(0.001, abs=1e-5)
        assert found.first_logits == pytest.approx((2.0, 1.999), abs=1e-5)
        assert found.second_logits == pytest.approx((2.0, 2.001), abs=1e-5)


def test_formats_of_a_real_target(tiny_pair, monkeypatch):
    from specdec import precision_runs
    from specdec.errors import ModelError

    pair, other = tiny_pair(), tiny_pair(seed=5)

    def in_format(_pair, kind):
        if kind == "int8":
            raise ModelError("there is none here.")
        return _pair.target if kind == "float32" else other.target

    monkeypatch.setattr(precision_runs, "in_format", in_format)
    asked = precision.Precision(prompts=(PROMPT, "One two"), new_tokens=20)
    steps, found = run(pair, PROMPT, asked)
    assert found.formats == ("float32", "bfloat16") and found.left_out == ("int8: there is none here.",)
    assert len(steps) <= asked.total and len(found.texts) == 4
    for one in found.of("float32"):
        want = decoding.plain(pair, asked.prompts[one.prompt], Settings(max_new_tokens=20))
        assert one.text == want.output_text and one.passes is None and one.formats is None and one.verified == one.text
    assert all(one.formats is not None for one in found.of("bfloat16"))
    assert experiments.from_json(precision.PrecisionFinding, experiments.to_json(found)) == found


@pytest.mark.parametrize(("name", "kind"), [("law", law.LawFinding), ("precision", precision.PrecisionFinding)])
def test_the_shipped_findings_can_be_read(name, kind):
    found = experiments.recorded(name, kind)
    assert found is not None and found.finish_reason == "done"
    assert dataclasses.is_dataclass(found) and found.created[:2] == "20"
