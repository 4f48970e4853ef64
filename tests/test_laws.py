"""Speculative decoding emits what the target alone would emit: the exact law of the real loop, every branch of it added up.

Theorem 1 and appendix A.1 of Leviathan, Kalman, Matias 2023 (arXiv 2211.17192) say that it does whatever the drafter is. Here the
statement is checked for the program: for several tokens at once, over tables whose every context has another distribution.
"""

from __future__ import annotations

import pytest
import torch
from exact_law import (
    P,
    Q,
    assert_same_law,
    branches,
    chain,
    fixed,
    law,
    pair_of,
    reference_pair,
    scrambled,
)

from specdec.drafters import Drafter, Proposal, Request
from specdec.sampling import one_hot
from specdec.table import TablePair
from specdec.trace import Settings

SAMPLED = Settings(temperature=1.0, drafter="draft")


@pytest.fixture(autouse=True)
def one_thread():
    """Tables of three numbers gain nothing from threads, and on a busy machine lose a hundredfold waiting for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class OneTokenDrafter(Drafter):
    """Proposes the same token over and over, without drawing: q is one-hot, wherever p is."""

    name = "draft"

    def __init__(self, token: int, vocabulary: int) -> None:
        self.token, self.vocabulary = token, vocabulary

    def propose(self, request: Request) -> Proposal:
        ids = [self.token] * request.count
        q = one_hot(torch.tensor(ids), self.vocabulary) if ids else None
        return Proposal(ids, q, [None] * len(ids), [0.0] * len(ids))


def different_pair(**options) -> TablePair:
    """Target and draft that agree on nothing in particular; each leaves out one token of three, another one in each context."""
    return pair_of(scrambled("target", vocabulary=3), scrambled("draft", vocabulary=3), **options)


@pytest.mark.parametrize("draft_length", [1, 2, 3])
def test_one_token_follows_the_target_on_the_reference_distributions(draft_length):
    settings = SAMPLED.replace(draft_length=draft_length, max_new_tokens=draft_length + 1)
    found = law(reference_pair(), settings, tokens=1)
    assert_same_law(found, {(i,): p for i, p in enumerate(P)})


def test_the_first_draft_is_accepted_with_the_overlap_as_probability():
    settings = SAMPLED.replace(draft_length=1, max_new_tokens=2)
    accepted = 0.0
    for run, draws in branches(reference_pair(), settings):
        rounds = list(run)  # the second one is the target alone, behind a rejection
        accepted += draws.weight * rounds[0].accepted
    assert accepted == pytest.approx(sum(map(min, P, Q)), abs=1e-12) == pytest.approx(0.65)


@pytest.mark.parametrize("draft_length", [1, 2, 3, 4])
def test_three_tokens_follow_the_target(draft_length):
    pair = different_pair()
    settings = SAMPLED.replace(draft_length=draft_length, max_new_tokens=draft_length + 2)
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))


@pytest.mark.parametrize(
    "warping",
    [
        {"temperature": 0.6},
        {"top_k": 2},
        {"top_p": 0.71},
        {"temperature": 0.8, "top_k": 3, "top_p": 0.83},
        {"top_k": 1},
        {"top_p": 0.01},
    ],
    ids=str,
)
def test_three_tokens_follow_the_filtered_target(warping):
    pair = pair_of(scrambled("target", vocabulary=4), scrambled("draft", vocabulary=4))
    settings = Settings(drafter="draft", draft_length=2, max_new_tokens=4, **{"temperature": 1.0} | warping)
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))


@pytest.mark.parametrize("draft_length", [1, 2, 4])
def test_a_draft_equal_to_the_target_is_always_accepted(draft_length):
    pair = pair_of(scrambled("same", vocabulary=3), scrambled("same", vocabulary=3))
    settings = SAMPLED.replace(draft_length=draft_length, max_new_tokens=draft_length + 1)
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))
    for run, _ in branches(pair, settings.replace(draft_length=1, max_new_tokens=2)):
        assert [round_.accepted for round_ in run] == [1]


@pytest.mark.parametrize("draft_length", [1, 2, 3])
def test_a_draft_with_disjoint_support_is_never_accepted_and_does_no_harm(draft_length):
    pair = pair_of(
        scrambled("target", vocabulary=4, only=(2, 3), zeros=False), scrambled("draft", vocabulary=4, only=(0, 1), zeros=False)
    )
    settings = SAMPLED.replace(draft_length=draft_length, max_new_tokens=3)
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))
    for run, _ in branches(pair, settings.replace(draft_length=1, max_new_tokens=2)):
        assert sum(round_.accepted for round_ in run) == 0


@pytest.mark.parametrize("prompt", ["abcabcab", "aaaa", "abcba", "b"])
@pytest.mark.parametrize("draft_length", [1, 2, 3, 4])
def test_prompt_lookup_follows_the_target(prompt, draft_length):
    pair = different_pair()
    settings = Settings(drafter="lookup", temperature=1.0, draft_length=draft_length, max_new_tokens=draft_length + 2)
    assert_same_law(law(pair, settings, tokens=3, prompt=prompt), chain(pair, settings, tokens=3, prompt=prompt))


def test_prompt_lookup_follows_the_filtered_target():
    pair = pair_of(scrambled("target", vocabulary=4), fixed(Q))
    settings = Settings(drafter="lookup", temperature=0.7, top_k=3, top_p=0.9, draft_length=3, max_new_tokens=5)
    assert_same_law(law(pair, settings, tokens=4, prompt="abcdab"), chain(pair, settings, tokens=4, prompt="abcdab"))


@pytest.mark.parametrize("token", [0, 1, 2])
def test_a_drafter_that_does_not_draw_follows_the_target(token):
    """The control of the reference: one-hot q, and a residual that is p without that token."""
    pair = different_pair()
    settings = SAMPLED.replace(draft_length=2, max_new_tokens=4)
    found = law(pair, settings, tokens=3, drafter=lambda: OneTokenDrafter(token, 3))
    assert_same_law(found, chain(pair, settings, tokens=3))


@pytest.mark.parametrize(("draft_length", "length"), [(g, n) for g in (1, 2, 3) for n in range(1, min(g + 2, 4) + 1)])
def test_whole_outputs_follow_the_target_for_every_length(draft_length, length):
    """max_new_tokens of 1, 2, γ, γ + 1, γ + 2: exactly that many tokens, with the probabilities of the target."""
    pair = pair_of(scrambled("target", vocabulary=2), scrambled("draft", vocabulary=2))
    settings = SAMPLED.replace(draft_length=draft_length, max_new_tokens=length)
    found = law(pair, settings)
    assert {len(key) - 1 for key in found} == {length}
    assert_same_law(found, chain(pair, settings))


@pytest.mark.parametrize("length", [1, 2, 4, 5, 6])
def test_whole_outputs_of_prompt_lookup_follow_the_target(length):
    pair = pair_of(scrambled("target", vocabulary=2), scrambled("draft", vocabulary=2))
    settings = Settings(drafter="lookup", temperature=1.0, draft_length=4, max_new_tokens=length)
    assert_same_law(law(pair, settings, prompt="abaab"), chain(pair, settings, prompt="abaab"))


@pytest.mark.parametrize("eos", [{0}, {1}, {2}, {1, 2}])
@pytest.mark.parametrize("drafter", ["draft", "lookup"])
def test_outputs_that_may_end_early_follow_the_target(drafter, eos):
    """The end of the text may be the first, a middle or the last draft, a replacement or the bonus."""
    pair = different_pair(eos_ids=frozenset(eos))
    settings = Settings(drafter=drafter, temperature=1.0, draft_length=2, max_new_tokens=3)
    found = law(pair, settings, prompt="abab")
    assert "eos" in {key[-1] for key in found}
    assert_same_law(found, chain(pair, settings, prompt="abab"))


@pytest.mark.parametrize("context", [2, 3, 4])
def test_outputs_that_meet_the_end_of_the_context_follow_the_target(context):
    pair = different_pair(context=context)
    settings = SAMPLED.replace(draft_length=3, max_new_tokens=9)
    found = law(pair, settings)
    assert {(len(key) - 1, key[-1]) for key in found} == {(context - 1, "context")}  # the prompt is one token
    assert_same_law(found, chain(pair, settings))


def test_a_draft_that_equals_the_target_to_rounding_does_no_harm():
    """0.1 + 0.2 is not 0.3: a rejection has a chance of 1e-16 and leaves a residual of nothing but rounding."""
    pair = pair_of(fixed([0.3, 0.3, 0.4]), fixed([0.1 + 0.2, 0.3, 0.4]))
    settings = SAMPLED.replace(draft_length=1, max_new_tokens=3)
    assert_same_law(law(pair, settings, tokens=3), chain(pair, settings, tokens=3))
