"""The trace of a run, checked against the models themselves: every probability, verdict and draw can be computed again."""

from __future__ import annotations

import random

import pytest
import torch
from exact_law import fixed, pair_of, scrambled
from families import related_pair
from trace_checks import check, statuses, without_times

from specdec.decoding import generate, plain, stream
from specdec.sampling import SamplingRule, accept_probability, accepts, residual
from specdec.trace import TOP, Round, Settings

GREEDY = Settings(drafter="draft", temperature=0.0)
SAMPLED = Settings(drafter="draft", temperature=1.0)


WARPS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 5, "top_p": 0.5},
]


def inverse(distribution: torch.Tensor, u: float) -> int:
    """The token whose share of [0, 1] holds u."""
    return int((distribution.double().cumsum(0) > u * float(distribution.double().sum())).nonzero()[0])


def assert_top(recorded, distribution: torch.Tensor) -> None:
    """The most probable tokens of the distribution, most probable first, as far as they have any probability."""
    values = [t.probability for t in recorded]
    assert values == sorted(values, reverse=True)
    assert len({t.id for t in recorded}) == len(recorded) == min(TOP, int((distribution > 1e-12).sum()))
    assert values == pytest.approx([float(distribution[t.id]) for t in recorded], rel=1e-3, abs=2e-5)
    assert values == pytest.approx(distribution.topk(len(values)).values.tolist(), rel=1e-3, abs=2e-5)


@pytest.fixture(scope="module")
def related():
    return related_pair()


@pytest.mark.parametrize("warp", WARPS, ids=str)
@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_everything_in_the_trace_can_be_computed_again(related, drafter, warp):
    pair = related
    settings = Settings(drafter=drafter, draft_length=3, max_new_tokens=48, raw=True, seed=3, **warp)
    trace = generate(pair, "abcabcabc", settings)
    check(trace)
    text = [*trace.prompt_ids, *trace.output_ids]
    rule = SamplingRule.of(settings)
    kinds = set()
    for round_ in trace.rounds:
        before, drafted = text[: round_.start], [d.id for d in round_.drafts]
        assert text[round_.start : round_.start + len(round_.new_ids)] == list(round_.new_ids)
        p = rule.probabilities(pair.target.open().forward(before + drafted, keep=len(drafted) + 1))
        q = drafter_distribution(pair, drafter, before, drafted, rule)
        for i, draft in enumerate(round_.drafts):
            assert draft.text == pair.texts.text(draft.id)
            assert draft.p == pytest.approx(float(p[i, draft.id]), abs=2e-5)
            assert draft.q == pytest.approx(float(q[i, draft.id]), abs=2e-5)
            assert draft.overlap == pytest.approx(float(torch.minimum(p[i], q[i]).sum()), abs=5e-5)
            assert_top(draft.top_p, p[i])
            assert_top(draft.top_q, q[i])
            if rule.greedy:
                assert draft.u is None and draft.draw_u is None
                right = int(p[i].argmax()) == draft.id
                assert draft.accept_probability == float(right)
                assert draft.status == "discarded" or (draft.status == "accepted") == right
            else:
                assert draft.accept_probability == pytest.approx(accept_probability(draft.p, draft.q), rel=1e-7)
                assert (draft.u is None) == (draft.status == "discarded")
                assert draft.u is None or (draft.status == "accepted") == accepts(draft.p, draft.q, draft.u)
                assert (draft.draw_u is None) == (drafter == "lookup")
                assert draft.draw_u is None or inverse(q[i], draft.draw_u) == draft.id
        kinds.add(round_.outcome.kind)
        check_outcome(round_, p, q, greedy=rule.greedy)
    assert kinds >= ({"replacement", "bonus"} if drafter == "draft" else {"replacement"})


def drafter_distribution(pair, drafter: str, before: list[int], drafted: list[int], rule: SamplingRule) -> torch.Tensor:
    """q [n, V] from a model that has never seen anything else."""
    if not drafted:
        return torch.empty(0, pair.vocabulary)
    if drafter == "draft":
        return rule.probabilities(pair.draft.open().forward(before + drafted[:-1], keep=len(drafted)))
    if drafter == "lookup":
        return torch.nn.functional.one_hot(torch.tensor(drafted), pair.vocabulary).float()
    rows = []
    for i in range(len(drafted)):
        sequence = pair.target.open()
        sequence.forward((before + drafted[:i])[:-1], keep=1) if len(before) + i > 1 else None
        rows.append(sequence.forward_exit([(before + drafted[:i])[-1]], layers=1))
    return rule.probabilities(torch.cat(rows))


def check_outcome(round_: Round, p: torch.Tensor, q: torch.Tensor, *, greedy: bool) -> None:
    outcome, place = round_.outcome, round_.accepted
    if outcome.kind == "none":
        assert (outcome.id, outcome.p, outcome.u, outcome.distribution, outcome.residual_mass) == (None, None, None, (), None)
        return
    assert outcome.p == pytest.approx(float(p[place, outcome.id]), abs=2e-5)
    source, mass = p[place], None
    if outcome.kind == "replacement":
        assert round_.drafts[place].status == "rejected"
        if not greedy:
            source, mass = residual(p[place], q[place])
            assert outcome.residual_mass == pytest.approx(mass, abs=5e-5)
            assert outcome.residual_mass == pytest.approx(1 - round_.drafts[place].overlap, abs=1e-5)
            assert outcome.id != round_.drafts[place].id, "the residual has no mass where q is larger"
    assert (outcome.residual_mass is None) == (mass is None)
    assert_top(outcome.distribution, source)
    if greedy:
        assert outcome.u is None and outcome.id == int(p[place].argmax())
    else:
        assert inverse(source, outcome.u) == outcome.id or float(source[outcome.id]) > 0


def test_the_discarded_tail_keeps_its_p():
    """The target has scored it, and it is what a pupil asks about."""
    trace = generate(pair_of(fixed([0.6, 0.3, 0.1]), fixed([0.0, 0.5, 0.5])), "a", SAMPLED.replace(seed=5, max_new_tokens=30))
    tail = [d for r in trace.rounds for d in r.drafts if d.status == "discarded"]
    assert tail and all(d.p == pytest.approx({1: 0.3, 2: 0.1}[d.id]) and d.u is None for d in tail)
    assert all(d.accept_probability == pytest.approx({1: 0.6, 2: 0.2}[d.id]) for d in tail)


def test_times_are_those_of_the_steps(tiny_pair):
    trace = generate(tiny_pair(), "abcabc", Settings(drafter="draft", max_new_tokens=20, raw=True))
    for round_ in trace.rounds:
        assert len(round_.seconds.draft) == len(round_.drafts) and all(s > 0 for s in round_.seconds.draft)
        assert round_.seconds.verify > 0 and round_.seconds.judge > 0 and round_.seconds.record > 0
    assert trace.totals.seconds_prefill > 0 and trace.seconds_to_first_token >= trace.totals.seconds_prefill


def test_a_vocabulary_that_is_padded_differently_is_cut_to_the_common_part(tiny_pair):
    """The target has 37 more rows than the draft; no trace of them in p, whatever their logits."""
    padded = tiny_pair(padding=37)
    assert padded.vocabulary == padded.target.vocabulary == padded.draft.vocabulary
    for temperature in (0.0, 1.0):
        settings = Settings(drafter="draft", temperature=temperature, max_new_tokens=30, raw=True)
        trace = generate(padded, "abc", settings)
        assert max(trace.output_ids) < padded.vocabulary
        check(trace)
    assert generate(padded, "abc", GREEDY.replace(raw=True)).output_ids == plain(padded, "abc", GREEDY.replace(raw=True)).output_ids


# Random streams


@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_same_seed_same_trace(tiny_pair, drafter):
    pair = tiny_pair(layers=3)
    settings = Settings(drafter=drafter, temperature=1.0, max_new_tokens=20, raw=True, seed=11)
    torch.manual_seed(1)
    first = generate(pair, "abcabc", settings)
    torch.manual_seed(2)
    assert without_times(generate(pair, "abcabc", settings)) == without_times(first)
    assert generate(pair, "abcabc", settings.replace(seed=12)).output_ids != first.output_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_runs_that_take_turns_on_one_pair_do_not_disturb_each_other(tiny_pair, temperature):
    pair = tiny_pair(layers=3)
    prompts = {"draft": "abcabc", "early-exit": "hello hello", "lookup": "one one one"}
    runs, alone = [], []
    for number, (drafter, prompt) in enumerate(prompts.items()):
        settings = Settings(drafter=drafter, temperature=temperature, max_new_tokens=20, raw=True, seed=number)
        alone.append(generate(pair, prompt, settings))
        runs.append(stream(pair, prompt, settings))
    going = list(runs)
    while going:
        going = [run for run in going if next(run, None) is not None]
    for run, trace in zip(runs, alone, strict=True):
        assert without_times(run.trace()) == without_times(trace)


def test_every_draw_is_in_the_trace_and_comes_from_the_one_seeded_generator(related):
    """Drafts are drawn first, then judged left to right, then the target draws: that is the stream of the seed, none left out."""
    for seed in range(5):
        trace = generate(related, "abc", Settings(drafter="draft", temperature=1.0, seed=seed, max_new_tokens=24, raw=True))
        shown = []
        for round_ in trace.rounds:
            shown += [d.draw_u for d in round_.drafts]
            shown += [d.u for d in round_.drafts if d.status != "discarded"]
            shown += [round_.outcome.u] if round_.outcome.kind != "none" else []
        stream_of_seed = random.Random(seed)
        assert shown == pytest.approx([stream_of_seed.random() for _ in shown], abs=1e-11)  # recorded to twelve digits


def test_without_recording_the_run_is_the_same():
    pair = pair_of(scrambled("target", vocabulary=5), scrambled("draft", vocabulary=5))
    for settings in (SAMPLED, GREEDY):
        full = generate(pair, "ab", settings.replace(max_new_tokens=20))
        bare = generate(pair, "ab", settings.replace(max_new_tokens=20), record=False)
        assert bare.output_ids == full.output_ids
        assert [statuses(r) for r in bare.rounds] == [statuses(r) for r in full.rounds]
        for one, other in zip(full.rounds, bare.rounds, strict=True):
            for a, b in zip(one.drafts, other.drafts, strict=True):
                assert (a.id, a.u, a.draw_u) == (b.id, b.u, b.draw_u) and b.top_p == b.top_q == ()
                assert settings.greedy or (a.p, a.q, a.accept_probability) == (b.p, b.q, b.accept_probability)
        check(bare)
