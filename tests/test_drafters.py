"""The contract that every drafter keeps, whatever it is made of; and what each drafter does beyond it.

A new drafter joins by its name in `CASES`; one that a pair offers and that is not there fails a test. The heart of the contract:
the q that a drafter reports is the distribution that it really picked the token from. Everything exact follows from that.
"""

from __future__ import annotations

import random

import pytest
import torch
from exact_law import pair_of, scrambled
from hypothesis import given
from hypothesis import strategies as st

from specdec import Settings
from specdec.drafters import Drafter, DraftModel, PromptLookup, Request, find_continuation, make_drafter
from specdec.errors import SettingsError
from specdec.sampling import Draws, SamplingRule

CASES = {
    "tables": ("draft", "lookup"),
    "tiny": ("draft", "early-exit", "lookup"),  # by the lean runner
    "gpt2": ("draft", "early-exit", "lookup"),  # by the eager one
    "embedded": ("head", "head-lookup", "draft", "early-exit", "lookup"),
}
# Repeats itself, so that look-up finds something whatever has been committed.
TEXT = "one two three one two three one two"
PLAIN = SamplingRule()
# Of a probability that was computed in passes of other shapes.
TOLERANCE = {"tables": 1e-12, "tiny": 1e-5, "gpt2": 1e-5, "embedded": 1e-3}


def pair_called(name: str, request):
    if name == "tables":
        return pair_of(scrambled("target", vocabulary=8, zeros=False), scrambled("draft", vocabulary=8, zeros=False))
    if name in ("tiny", "gpt2"):
        return request.getfixturevalue("tiny_pair")("gpt2" if name == "gpt2" else "llama", layers=3, context=1024)
    return request.getfixturevalue("embedded_pair")


@pytest.fixture(params=[(pair, drafter) for pair, names in CASES.items() for drafter in names], ids="/".join)
def case(request):
    """(pair, name of a drafter that it offers, how exactly its probabilities repeat)."""
    pair_name, drafter = request.param
    pair = pair_called(pair_name, request)
    if drafter not in pair.drafters:
        pytest.skip(f"{pair.title} does not offer {drafter!r}")
    return pair, drafter, TOLERANCE[pair_name]


class WatchedDraws(Draws):
    """Remembers what every token was picked from. `choose` replaces the pick."""

    def __init__(self, seed: int = 0, *, choose=None) -> None:
        super().__init__(seed)
        self.choose = choose
        self.picks: list[tuple[torch.Tensor, int, float]] = []

    def pick(self, probabilities):
        token, u = super().pick(probabilities)
        token = token if self.choose is None else self.choose(probabilities)
        self.picks.append((probabilities.clone(), token, u))
        return token, u

    def accept(self, p, q):
        raise AssertionError("a drafter judges nothing")


class Trial:
    """A drafter in the middle of a run of which the test is the judge."""

    def __init__(self, pair, name: str, ids: list[int], **settings) -> None:
        self.pair = pair
        self.drafter = make_drafter(name, pair, Settings(drafter=name, **settings))
        self.target = pair.target.open(hidden_layers=self.drafter.hidden_layers)
        if len(ids) > 1:
            self.target.forward(ids[:-1], keep=1)
        self.drafter.start(ids, self.target)
        self.committed = list(ids)
        self.checks = 0

    def propose(self, count: int, *, rule: SamplingRule = PLAIN, draws: Draws | None = None, look: bool = True, check=None):
        return self.drafter.propose(Request(self.committed, count, rule, draws or WatchedDraws(), look, check or self._check))

    def _check(self) -> None:
        self.checks += 1

    def judge(self, proposal, *, accept: int, then: int) -> torch.Tensor:
        """The rest of a round: `accept` drafts stay, `then` is what the target adds. Returns the target's logits."""
        logits = self.target.forward([self.committed[-1], *proposal.ids])
        self.committed += [*proposal.ids[:accept], then]
        kept = len(self.committed) - 1
        self.target.crop(kept)
        self.drafter.settle(kept)
        return logits


def prompt_of(pair) -> list[int]:
    return pair.encode("abcabcab") if pair.name == "table" else pair.encode(TEXT, raw=True)


def test_every_drafter_that_a_pair_offers_is_in_this_suite(embedded_pair, tiny_pair):
    assert set(tiny_pair().drafters) <= set(CASES["tiny"])
    assert set(embedded_pair.drafters) <= set(CASES["embedded"])


# The contract


@pytest.mark.parametrize("rule", [SamplingRule(), SamplingRule(0.6), SamplingRule(1.0, 3), SamplingRule(1.2, 5, 0.8)], ids=str)
def test_q_is_what_the_token_was_picked_from(case, rule):
    """Either the drafter drew, and q is what it gave to the draw, or it did not, and q is one-hot.

    A drafter may draw over a part of the vocabulary and spread the result: then the values above zero are the same in that order.
    """
    pair, name, _ = case
    draws = WatchedDraws(4)
    trial = Trial(pair, name, prompt_of(pair))
    for count in (4, 1, 3):
        before = len(draws.picks)
        proposal = trial.propose(count, rule=rule, draws=draws)
        assert proposal.ids and proposal.q.shape == (len(proposal.ids), pair.vocabulary)
        drawn = iter(draws.picks[before:])
        for token, q, u in zip(proposal.ids, proposal.q, proposal.draw_us, strict=True):
            if u is None:
                assert q[token] == 1 and q.sum() == 1 and q.count_nonzero() == 1
                continue
            source, picked, picked_u = next(drawn)
            assert u == picked_u
            assert torch.equal(q[q > 0], source[source > 0])
            assert (q[: token + 1] > 0).sum() == (source[: picked + 1] > 0).sum()
        assert next(drawn, None) is None, "something was drawn and not reported"
        trial.judge(proposal, accept=len(proposal.ids) // 2, then=proposal.ids[0])


def test_the_token_that_was_picked_is_the_token_that_is_proposed(case):
    """The least probable token, which no argmax would choose."""
    pair, name, _ = case
    draws = WatchedDraws(choose=lambda p: int(torch.where(p > 0, p, 2.0).argmin()))
    proposal = Trial(pair, name, prompt_of(pair)).propose(3, rule=SamplingRule(1.0, 5), draws=draws)
    for token, q, u in zip(proposal.ids, proposal.q, proposal.draw_us, strict=True):
        assert u is None or q[token] == q[q > 0].min() < q.max()


def test_q_is_a_distribution_in_float32_or_wider_with_the_proposed_token_in_it(case):
    pair, name, _ = case
    proposal = Trial(pair, name, prompt_of(pair)).propose(5)
    assert proposal.q.dtype in (torch.float32, torch.float64)
    assert (proposal.q >= 0).all() and proposal.q.sum(-1).tolist() == pytest.approx([1.0] * len(proposal.ids), abs=1e-5)
    assert all(0 <= token < pair.vocabulary and q[token] > 0 for token, q in zip(proposal.ids, proposal.q, strict=True))
    if (ids := proposal.columns) is not None:
        assert torch.equal(torch.zeros_like(proposal.q).index_copy(1, ids, proposal.q[:, ids]), proposal.q)


def test_temperature_top_k_and_top_p_shape_q(case):
    """The first draft of each rule, behind the same text: q is the warped q of temperature 1."""
    pair, name, tolerance = case
    plain = Trial(pair, name, prompt_of(pair)).propose(1)
    for rule in (SamplingRule(0.5), SamplingRule(1.0, 3), SamplingRule(1.0, 0, 0.5), SamplingRule(1.7, 6, 0.9)):
        found = Trial(pair, name, prompt_of(pair)).propose(1, rule=rule)
        wanted = plain.q if plain.draw_us == [None] else rule.probabilities(plain.q.double().log())
        torch.testing.assert_close(found.q.double(), wanted.double(), atol=max(tolerance, 1e-6), rtol=0)


def test_greedy_drafts_are_the_most_probable_tokens_and_nothing_is_drawn(case):
    pair, name, _ = case
    draws = WatchedDraws()
    greedy = SamplingRule(0.0, 3, 0.5)
    looked = Trial(pair, name, prompt_of(pair)).propose(4, rule=greedy, draws=draws)
    assert looked.ids == looked.q.argmax(-1).tolist()
    unseen = Trial(pair, name, prompt_of(pair)).propose(4, rule=greedy, draws=draws, look=False)
    assert unseen.ids == looked.ids and not draws.picks
    assert looked.draw_us == unseen.draw_us == [None] * len(looked.ids)
    # What is shown is the drafter's own distribution at temperature 1, filters off.
    plain = Trial(pair, name, prompt_of(pair)).propose(1)
    torch.testing.assert_close(looked.q[0].double(), plain.q[0].double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_at_most_as_many_tokens_as_asked_for(case, temperature):
    pair, name, _ = case
    trial = Trial(pair, name, prompt_of(pair))
    for count in (0, 1, 3, 0, 8):
        proposal = trial.propose(count, rule=SamplingRule(temperature))
        assert len(proposal.ids) <= count
        assert len(proposal.draw_us) == len(proposal.ids) and all(s >= 0 for s in proposal.seconds)
        assert len(proposal.seconds) == len(proposal.ids) or not proposal.ids
        assert proposal.q is None if not proposal.ids else len(proposal.q) == len(proposal.ids)
        trial.judge(proposal, accept=0, then=trial.committed[1])


ACCEPTED = {
    "all rejected": (0, 0),
    "one of three": (1, 1),
    "all accepted": (3, 3),
    "nothing asked": (3, None, 3),
    "mixed": (3, 0, 2),
}


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
def test_rejected_drafts_leave_no_trace(case, accepted):
    """After some rounds the drafter answers as a fresh one that was only ever shown the committed text."""
    pair, name, tolerance = case
    trial = Trial(pair, name, prompt_of(pair))
    for number, accept in enumerate(accepted):
        proposal = trial.propose(0 if accept is None else 3, draws=WatchedDraws(number))
        # The target goes on with the text, so that look-up keeps finding it.
        trial.judge(proposal, accept=min(accept or 0, len(proposal.ids)), then=trial.committed[-3])
    found = trial.propose(2, draws=WatchedDraws(9))
    wanted = Trial(pair, name, trial.committed).propose(2, draws=WatchedDraws(9))
    assert found.ids == wanted.ids
    if found.ids:
        torch.testing.assert_close(found.q, wanted.q, atol=tolerance, rtol=0)


@pytest.mark.parametrize("length", [253, 509])
def test_a_text_that_outgrows_the_first_buffers(case, length):
    """Caches and tables of angles begin with room for 256 or 512 positions; what is in them stays when they grow."""
    pair, name, tolerance = case
    if tolerance == TOLERANCE["embedded"] and (name in ("early-exit", "lookup") or length < 500):
        pytest.skip("too slow for what it adds: the tiny pair has the same caches")
    ids = (prompt_of(pair) * length)[:length]
    trial = Trial(pair, name, ids)
    for accept in (2, 0, 3):
        proposal = trial.propose(3)
        trial.judge(proposal, accept=min(accept, len(proposal.ids)), then=trial.committed[-8])
    found, wanted = trial.propose(2, draws=WatchedDraws(9)), Trial(pair, name, trial.committed).propose(2, draws=WatchedDraws(9))
    assert found.ids == wanted.ids
    if found.ids:
        torch.testing.assert_close(found.q, wanted.q, atol=tolerance, rtol=0)


def test_what_the_target_says_does_not_depend_on_the_drafter(case):
    """Also not on one that works inside the target and shares its cache."""
    pair, name, _ = case
    ids = prompt_of(pair)
    trial = Trial(pair, name, ids)
    for accept in (0, 2, 3):
        length = trial.target.length
        proposal = trial.propose(3)
        assert trial.target.length == length == len(trial.committed) - 1
        before = list(trial.committed)
        found = trial.judge(proposal, accept=min(accept, len(proposal.ids)), then=ids[0])
        alone = pair.target.open()
        alone.forward(before[:-1], keep=1)
        wanted = alone.forward([before[-1], *proposal.ids])
        torch.testing.assert_close(found, wanted, atol=2e-3, rtol=1e-3)
        assert trial.target.length == len(trial.committed) - 1


def test_all_randomness_comes_from_the_draws(case):
    """Same draws, same proposal, whatever the generators of the process do; and they are not touched."""
    pair, name, _ = case
    proposals = []
    for seed in (1, 2):
        random.seed(seed)
        torch.manual_seed(seed)
        states = random.getstate(), torch.random.get_rng_state()
        proposals.append(Trial(pair, name, prompt_of(pair)).propose(4, draws=WatchedDraws(7)))
        assert random.getstate() == states[0] and torch.equal(torch.random.get_rng_state(), states[1])
    assert proposals[0].ids == proposals[1].ids and proposals[0].draw_us == proposals[1].draw_us


def test_committed_tokens_are_not_changed(case):
    pair, name, _ = case
    trial = Trial(pair, name, prompt_of(pair))
    before = list(trial.committed)
    trial.propose(4)
    assert trial.committed == before


def test_a_run_can_be_stopped_before_every_model_pass(case):
    pair, name, _ = case
    prompt = prompt_of(pair)
    trial = Trial(pair, name, prompt)
    trial.propose(3)
    if name in ("lookup", "head-lookup"):
        assert trial.checks == 0  # what repeats is copied, without a model
    if name == "lookup":
        return
    if name == "head-lookup":
        prompt = pair.encode("The capital of France is a", raw=True)
        trial = Trial(pair, name, prompt)
        trial.propose(3)
        assert 1 <= trial.checks <= 3  # as many as it was sure of
    else:
        assert trial.checks == 3

    class Stop(Exception):
        pass

    def stop():
        raise Stop

    with pytest.raises(Stop):
        Trial(pair, name, prompt).propose(3, check=stop)


def test_a_prompt_of_one_token(case):
    pair, name, tolerance = case
    trial = Trial(pair, name, prompt_of(pair)[:1])
    proposal = trial.propose(2)
    assert len(proposal.ids) in (0, 2)
    trial.judge(proposal, accept=0, then=prompt_of(pair)[1])
    found, wanted = trial.propose(1, draws=WatchedDraws(3)), Trial(pair, name, trial.committed).propose(1, draws=WatchedDraws(3))
    assert found.ids == wanted.ids
    if found.ids:
        torch.testing.assert_close(found.q, wanted.q, atol=tolerance, rtol=0)


def test_two_drafters_of_one_pair_do_not_disturb_each_other(case):
    pair, name, tolerance = case
    left, right = Trial(pair, name, prompt_of(pair)), Trial(pair, name, prompt_of(pair)[2:])
    for _ in range(2):
        for trial in (left, right):
            trial.judge(trial.propose(2, draws=WatchedDraws(1)), accept=1, then=trial.committed[0])
    for trial in (left, right):
        found, wanted = trial.propose(1), Trial(pair, name, trial.committed).propose(1)
        assert found.ids == wanted.ids
        if found.ids:
            torch.testing.assert_close(found.q, wanted.q, atol=tolerance, rtol=0)


# Single drafters


def test_the_draft_model_is_fed_two_tokens_behind_a_fully_accepted_round_and_one_behind_any_other():
    pair = pair_called("tables", None)
    trial = Trial(pair, "draft", prompt_of(pair))
    fed: list[int] = []
    forward = trial.drafter.sequence.forward
    trial.drafter.sequence.forward = lambda ids, **rest: (fed.append(len(ids)), forward(ids, **rest))[1]
    for accept, wanted, length in ((3, [1, 1, 1], 10), (1, [2, 1, 1], 13), (0, [1, 1, 1], 14), (2, [1, 1, 1], 17)):
        fed.clear()
        trial.judge(trial.propose(3), accept=accept, then=0)
        assert fed == wanted
        # With L committed before and n accepted, L + n positions stay, or one less if all were: the last draft was never fed.
        assert trial.drafter.sequence.length == length
        assert trial.drafter.sequence.tokens == trial.committed[:length]


def test_the_draft_model_starts_anew_with_every_run(tiny_pair):
    pair = tiny_pair()
    drafter = DraftModel(pair.draft)
    for ids in ([5, 6, 7, 8], [9, 10]):
        drafter.start(ids, pair.target.open())
        assert drafter.sequence.length == len(ids) - 1


@pytest.mark.parametrize(
    ("tokens", "ngram", "count", "found"),
    [
        ([1, 2, 3, 1, 2], 3, 2, [3, 1]),
        ([1, 2, 3, 1, 2], 3, 9, [3, 1, 2]),  # up to the end of the text, and no further
        ([1, 2, 9, 2, 5, 1, 2], 2, 1, [9]),  # the longest ending wins over a more recent shorter one
        ([1, 7, 1, 8, 1], 3, 1, [8]),  # of several places the most recent
        ([4, 4, 4, 4], 3, 2, [4]),  # the occurrence may overlap with the ending
        ([1, 2, 3], 3, 4, []),  # nothing repeats
        ([5], 3, 4, []),
        ([1, 2, 1, 2], 3, 0, []),
        ([0, 3, 0], 1, 1, [3]),  # token 0 is a token
    ],
)
def test_lookup_finds_what_followed_last_time(tokens, ngram, count, found):
    assert find_continuation(tokens, ngram=ngram, count=count) == found


@given(tokens=st.lists(st.integers(0, 2), max_size=24), ngram=st.integers(1, 5), least=st.integers(1, 3), count=st.integers(0, 4))
def test_the_continuation_is_that_of_the_longest_and_then_the_most_recent_occurrence(tokens, ngram, least, count):
    """By trying every length and every place, as the definition says."""
    places = (
        start + length
        for length in range(min(ngram, len(tokens) - 1), least - 1, -1)
        for start in range(len(tokens) - length - 1, -1, -1)
        if tokens[start : start + length] == tokens[-length:]
    )
    place = next(places, None)
    wanted = [] if place is None else tokens[place : place + count]
    assert find_continuation(tokens, ngram=ngram, count=count, least=least) == wanted


def test_lookup_finds_nothing_and_says_so():
    request = Request([1, 2, 3], 4, SamplingRule(), WatchedDraws(), True, lambda: None)
    proposal = PromptLookup(ngram=3, vocabulary=9).propose(request)
    assert proposal.ids == [] and proposal.q is None and len(proposal.seconds) == 1


def test_early_exit_takes_a_third_of_the_layers_unless_told(tiny_pair):
    pair = tiny_pair(layers=3)
    assert make_drafter("early-exit", pair, Settings()).layers == 1
    assert make_drafter("early-exit", pair, Settings(exit_layers=2)).layers == 2


@pytest.mark.parametrize("name", ["draft", "early-exit"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_each_further_draft_of_a_model_is_what_it_would_draft_first_behind_the_same_text(tiny_pair, kind, name):
    """The law does not mind a model that loses its place within a round, but its drafts get worse."""
    pair = tiny_pair(kind, layers=3)
    proposal = Trial(pair, name, prompt_of(pair)).propose(4)
    for i in range(4):
        first = Trial(pair, name, prompt_of(pair) + proposal.ids[:i]).propose(1)
        torch.testing.assert_close(first.q[0], proposal.q[i], atol=1e-5, rtol=0)


def test_early_exit_after_all_layers_but_one_differs_from_after_one(tiny_pair):
    pair = tiny_pair(layers=3)
    one, two = (Trial(pair, "early-exit", prompt_of(pair), exit_layers=n).propose(1).q for n in (1, 2))
    assert (one - two).abs().max() > 1e-3


def test_no_drafter_proposes_nothing():
    request = Request([1, 2], 4, SamplingRule(), WatchedDraws(), True, lambda: None)
    assert make_drafter("none", None, Settings()).propose(request).ids == []
    assert Drafter().propose(request).q is None


def test_a_drafter_that_the_pair_does_not_offer_is_refused_by_name(tiny_pair):
    pair = tiny_pair(draft=False)
    with pytest.raises(SettingsError, match="drafter 'draft' is not offered by .*: take one of early-exit, lookup"):
        make_drafter("draft", pair, Settings())
