"""Decisions that are made on the device, a round ahead of the host, are those that the host would have made: same draws, same
tokens, same record. Here the device is the CPU; only the clock and the transfers differ on CUDA.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict

import hypothesis
import pytest
import torch
from exact_law import Branch, assert_same_law, branches, chain, pair_of, scrambled
from families import a, build, related_pair
from hypothesis import given
from hypothesis import strategies as st

from specdec import decoding, sampling
from specdec.ahead import AheadDraws, pick
from specdec.decoding import generate, stream
from specdec.draft_runner import SmallDraftRunner
from specdec.drafters import Drafter, DraftModel, EarlyExit, PromptLookup, Proposal, Request
from specdec.errors import ModelError
from specdec.head import AttachedHead, HeadShape
from specdec.head_drafter import AttachedHeadRunner, HeadDrafter
from specdec.judging import judge
from specdec.llama import fastest_runner
from specdec.reduced import ReducedVocabulary, TargetTables
from specdec.runner import Runner
from specdec.sampling import Draws, SamplingRule, keep_top_p, keep_top_p_without_waiting, one_hot
from specdec.small_draft import DraftShape, SmallDraft
from specdec.static_runner import StaticRunner
from specdec.trace import Seconds, Settings


class Given(random.Random):
    """A generator that gives the draws it is told."""

    def __init__(self, us):
        super().__init__()
        self.us = iter(us)

    def random(self):
        return next(self.us)


def distributions(count: int, vocabulary: int, seed: int, *, zeros: float = 0.0) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, vocabulary, generator=numbers)
    logits[torch.rand(count, vocabulary, generator=numbers) < zeros] = float("-inf")
    logits[:, 0] = 0  # something is left
    return logits


us = st.floats(0, 1, exclude_max=True)


@hypothesis.settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6), us, st.sampled_from([torch.float32, torch.float64]), st.booleans())
def test_the_same_draw_picks_the_same_token(vocabulary, seed, u, dtype, zeros):
    p = distributions(1, vocabulary, seed, zeros=0.5 * zeros).to(dtype).softmax(-1)[0]
    draws = Draws(0)
    draws._random = Given([u])
    token, _ = draws.pick(p)
    found, total = pick(p, torch.tensor([u], dtype=torch.float64))
    assert found.tolist() == [token] and total.tolist() == pytest.approx([1])


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53, 1.0])  # 1: as if u · total had been rounded up to total
def test_the_ends_of_the_interval_pick_a_token_that_has_any_probability(u):
    for p in ([0, 0.5, 0.5, 0], [0, 0.1, 0.2, 0.7, 0], [1, 0, 0], [0, 0, 1]):
        token = int(pick(torch.tensor(p), torch.tensor([u], dtype=torch.float64))[0])
        possible = [i for i, x in enumerate(p) if x]
        assert token == possible[0 if u == 0 else -1]


@hypothesis.settings(deadline=None)
@given(st.integers(1, 3), st.integers(2, 300), st.integers(0, 10**6), st.floats(0.01, 0.999), st.booleans())
def test_top_p_without_waiting_is_top_p_to_the_last_bit(rows, vocabulary, seed, top_p, ties):
    logits = distributions(rows, vocabulary, seed)
    p = (logits.round() if ties else logits).softmax(-1)
    assert torch.equal(keep_top_p_without_waiting(p, top_p), keep_top_p(p, top_p))


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.9, 0.999])
def test_top_p_without_waiting_on_a_real_vocabulary(top_p):
    p = distributions(2, 49_152, 5).softmax(-1)
    p[1] = 1 / 49_152
    assert torch.equal(keep_top_p_without_waiting(p, top_p), keep_top_p(p, top_p))


rules = st.sampled_from(
    [SamplingRule(0.0), SamplingRule(1.0), SamplingRule(0.7, 5, 0.9), SamplingRule(1.3, 0, 0.6), SamplingRule(1.0, 2)]
)


@hypothesis.settings(max_examples=300, deadline=None)
@given(st.integers(0, 6), st.integers(2, 12), st.integers(0, 10**6), rules, st.booleans(), st.booleans(), st.lists(us, min_size=14))
def test_a_round_is_judged_as_on_the_host(count, vocabulary, seed, rule, one_hot_q, same, uniforms):
    """Random drafts and targets, with ends of text among them; `same`: q is p, so that all is accepted."""
    logits = distributions(count + 1, vocabulary, seed, zeros=0.3)
    q = rule.probabilities(logits[:-1] if same else distributions(count, vocabulary, seed + 1, zeros=0.3)) if count else None
    eos = frozenset({seed % vocabulary})
    host, device = Draws(0), AheadDraws(0)
    host._random, device._random = Given(uniforms), Given(uniforms)

    device.begin(count)
    ids, told, draw_us = [], [], []
    for row in range(count):
        if one_hot_q:
            ids.append(random.Random(seed + row).randrange(vocabulary))
            told.append(ids[-1])
            draw_us.append(None)
        elif rule.greedy:
            ids.append(host.best(q[row]))
            told.append(device.best(q[row]))
            draw_us.append(None)
        else:
            token, u = host.pick(q[row])
            found, same_u = device.pick(q[row])
            assert u == same_u
            ids.append(token)
            told.append(found)
            draw_us.append(u)
    if one_hot_q and count:
        q = one_hot(torch.tensor(ids), vocabulary)
    device.proposed()
    proposal = Proposal(ids, q, draw_us, [0.0] * count)
    p = None if rule.greedy else rule.probabilities(logits)
    wanted = judge(proposal, logits=logits, p=p, draws=host, eos_ids=eos)
    found = device.judge(dataclasses.replace(proposal, ids=told), logits=logits, rule=rule, eos_ids=eos)
    assert found.proposal.ids == ids and all(type(i) is int for i in found.proposal.ids)
    assert (found.p is None) == rule.greedy
    for name in ("accepted", "rejected", "us", "token", "u", "residual_mass"):
        assert getattr(found, name) == getattr(wanted, name), name
    if wanted.source is None:
        assert found.source is None
    else:
        assert torch.equal(found.source, wanted.source)
    # What is drawn next is what the host would draw next.
    device.begin(0)
    assert device._us[0] == host._random.random()


def test_a_round_that_is_broken_off_uses_no_draws():
    host, device = Draws(3), AheadDraws(3)
    p = torch.full((5,), 0.2)
    device.begin(4)
    device.pick(p)
    device.begin(2)
    for _ in range(2):
        token, u = device.pick(p)
        assert (int(token), u) == host.pick(p)


def test_a_model_that_overflows_is_an_error():
    device = AheadDraws(0)
    rule = SamplingRule(1.0)
    good, bad = torch.zeros(1, 5), torch.full((1, 5), float("nan"))
    for draft, target in ((bad, good), (good, bad)):
        device.begin(1)
        q = rule.probabilities(draft)
        token, u = device.pick(q[0])
        device.proposed()
        with pytest.raises(ModelError, match="computes nonsense"):
            device.judge(Proposal([token], q, [u], [0.0]), logits=target.expand(2, 5), rule=rule, eos_ids=frozenset())
    device.begin(0)
    device.proposed()
    with pytest.raises(ModelError, match="computes nonsense"):
        device.judge(Proposal([], None, [], []), logits=bad, rule=SamplingRule(0.0), eos_ids=frozenset())
    with pytest.raises(ModelError, match="computes nonsense"):
        judge(Proposal([], None, [], []), logits=bad, p=None, draws=Draws(0), eos_ids=frozenset())


def test_the_times_of_a_round_add_up_to_the_round():
    import time

    device = AheadDraws(0)
    p = torch.full((5,), 0.2)
    begun = time.perf_counter()
    device.begin(2)
    ids, us = zip(*(device.pick(p) for _ in range(2)), strict=True)
    device.proposed()
    time.sleep(0.02)
    found = device.judge(
        Proposal(list(ids), p.expand(2, 5), list(us), [9.0, 9.0]),
        logits=torch.zeros(3, 5),
        rule=SamplingRule(1.0),
        eos_ids=frozenset(),
    )
    whole = time.perf_counter() - begun
    parts = [*found.proposal.seconds, found.verify, found.judge]
    assert len(found.proposal.seconds) == 2 and found.verify >= 0.02
    assert all(part >= 0 for part in parts) and 0.02 <= sum(parts) <= whole


# Whole runs


def content(trace):
    """All of a trace but its times."""
    nothing = Seconds(draft=(), verify=0.0, judge=0.0)
    return trace.output_ids, trace.finish_reason, [dataclasses.replace(r, seconds=nothing) for r in trace.rounds]


SAMPLED = Settings(temperature=0.9, top_p=0.95, raw=True, max_new_tokens=24, draft_length=3)


@pytest.mark.parametrize(
    ("runner", "settings"),
    [
        (StaticRunner, SAMPLED),
        (StaticRunner, SAMPLED.replace(temperature=0.0)),
        (Runner, SAMPLED.replace(top_k=7, seed=5)),
        (fastest_runner, SAMPLED),
    ],
    ids=["static, sampled", "static, greedy", "eager, top-k", "fastest, sampled"],
)
def test_runs_are_the_same_to_the_last_digit(runner, settings, monkeypatch):
    pair = related_pair()
    model = build("llama", vocab_size=pair.vocabulary)
    pair = dataclasses.replace(pair, target=runner(model), draft=runner(build("llama", vocab_size=pair.vocabulary, seed=1)))
    for drafter in pair.drafters:
        wanted = generate(pair, "abcabc abc", settings.replace(drafter=drafter))
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "goes_ahead", lambda pair, drafter: True)
            run = stream(pair, "abcabc abc", settings.replace(drafter=drafter))
            list(run)
        assert isinstance(run._draws, AheadDraws)
        assert content(run.trace()) == content(wanted)
        assert all(r.seconds.verify > 0 and all(s > 0 for s in r.seconds.draft) for r in run.rounds)
        totals = run.trace().totals
        assert totals.seconds_draft + totals.seconds_verify + totals.seconds_judge + totals.seconds_record < totals.seconds


@pytest.mark.parametrize("drafter", ["head", "draft", "early-exit"])
def test_runs_of_the_embedded_pair_are_the_same(drafter, embedded_pair, monkeypatch):
    settings = Settings(temperature=0.8, max_new_tokens=8, draft_length=4, drafter=drafter)
    wanted = generate(embedded_pair, "One two three one two", settings)
    monkeypatch.setattr(decoding, "goes_ahead", lambda pair, drafter: True)
    assert content(generate(embedded_pair, "One two three one two", settings)) == content(wanted)


def test_only_known_drafters_on_cuda_go_ahead():
    class OnCuda:
        device = torch.device("cuda")

    class Own(Drafter):
        name = "own"

    pair = related_pair()
    cuda = dataclasses.replace(pair, target=OnCuda())
    for drafter, wanted in ((Drafter(), True), (DraftModel(pair.draft), True), (Own(), False)):
        assert decoding.goes_ahead(cuda, drafter) == wanted
        assert not decoding.goes_ahead(pair, drafter)


META = torch.device("meta")  # tensors without numbers: whoever asks for one, or mixes in a tensor of the CPU, gets an error
SIZES = {"width": 48, "heads": 4, "groups": 2, "inner": 80}


def drafter_on_meta(name: str, target: StaticRunner) -> Drafter:
    if name == "draft":
        return DraftModel(target)
    if name == "trained draft":
        return DraftModel(
            SmallDraftRunner(SmallDraft(DraftShape(layers=2, **SIZES)), TargetTables.of(target), torch.tensor([3, 9]))
        )
    if name == "head":
        head = AttachedHead(HeadShape(taps=(1, 2, 4), **SIZES))
        return HeadDrafter(AttachedHeadRunner(head, TargetTables.of(target), torch.tensor([3, 9])))
    return EarlyExit(2) if name == "early-exit" else PromptLookup(ngram=2, vocabulary=97)


@pytest.mark.parametrize("rule", [SamplingRule(0.0), SamplingRule(0.7, 5, 0.9)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["draft", "trained draft", "head", "early-exit", "lookup"])
def test_nothing_but_the_record_of_a_round_asks_the_device_for_numbers(name, rule, monkeypatch):
    monkeypatch.setattr(sampling, "keep_top_p", keep_top_p_without_waiting)  # as on CUDA
    monkeypatch.setattr(ReducedVocabulary, "__init__", lambda self, ids, full: self.__dict__.update(ids=ids, full=full))
    with META:
        model = a("Llama", tie_word_embeddings=True)
    prompt, draws = [5, 6, 7, 8, 5, 6], AheadDraws(0, META)
    with torch.inference_mode():
        target = StaticRunner(model.to(META), capture=False)
        drafter = drafter_on_meta(name, target)
        sequence = target.open(hidden_layers=drafter.hidden_layers)
        sequence.forward(prompt[:-1], keep=1)
        drafter.start(prompt, sequence)
        draws.begin(3)
        proposal = drafter.propose(Request(prompt, 3, rule, draws, False, lambda: None))
        draws.proposed()
        assert len(proposal.ids) == 3
        logits = sequence.forward([prompt[-1], *proposal.ids], keep=4)
        with pytest.raises(NotImplementedError, match="no data") as raised:
            draws.judge(proposal, logits=logits, rule=rule, eos_ids=frozenset({2}))
    assert "# here the host waits" in str(raised.traceback[-1].statement)


class Noted(Branch):
    """Remembers its draws."""

    def __init__(self, choices=()):
        super().__init__(choices)
        self.us = []

    def pick(self, probabilities):
        token, u = super().pick(probabilities)
        self.us.append(u)
        return token, u

    def accept(self, p, q):
        kept, u = super().accept(p, q)
        self.us.append(u)
        return kept, u


@pytest.mark.parametrize("drafter", ["draft", "lookup"])
@pytest.mark.parametrize("warp", [{}, {"temperature": 0.8, "top_k": 3, "top_p": 0.83}], ids=str)
def test_the_law_of_runs_that_are_decided_on_the_device(drafter, warp, monkeypatch):
    """Every branch of the loop again, with its draws: the outputs must have the probabilities of the target."""
    pair = pair_of(scrambled("target", vocabulary=4), scrambled("draft", vocabulary=4), eos_ids=frozenset({3}))
    settings = Settings(**{"drafter": drafter, "temperature": 1.0, "draft_length": 2, "max_new_tokens": 3} | warp)
    branched = []
    for run, draws in branches(pair, settings, branch=Noted, prompt="abab"):
        list(run)
        branched.append((run.output_ids, draws.weight, draws.us))
    monkeypatch.setattr(decoding, "goes_ahead", lambda pair, drafter: True)
    found = defaultdict(float)
    for output, weight, uniforms in branched:
        run = stream(pair, "abab", settings, record=False)
        run._draws._random = Given([*uniforms, *[0.5] * 20])
        list(run)
        assert run.output_ids == output
        found[*run.output_ids, run.finish_reason] += weight
    assert_same_law(dict(found), chain(pair, settings, prompt="abab"))
