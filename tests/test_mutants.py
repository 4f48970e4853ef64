"""Every mistake that real implementations have made makes the law test fail, by as much as the arithmetic says.

Each mutant is put into the real loop. Its total variation from the target's distribution is known in closed form, so the figure
proves that the test sees this very mistake, not just some failure.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from exact_law import (
    Branch,
    P,
    Q,
    assert_same_law,
    chain,
    law,
    pair_of,
    reference_pair,
    scrambled,
    total_variation,
)

from specdec import decoding, drafters, judging, sampling
from specdec.decoding import Run
from specdec.drafters import DraftModel, PromptLookup, Proposal, Request
from specdec.passes import Pass, one_by_one, perform
from specdec.sampling import Draws, SamplingRule
from specdec.table import TableSequence
from specdec.trace import Settings

ONE = Settings(temperature=1.0, drafter="draft", draft_length=1, max_new_tokens=2)
THREE = ONE.replace(draft_length=2, max_new_tokens=4)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def error_of_one_token(settings: Settings = ONE, **options) -> float:
    """Total variation of the first token from the target; the law test must agree that there is one, or none."""
    pair = reference_pair()
    found, wanted = law(pair, settings, tokens=1, **options), chain(pair, settings, tokens=1, prompt=options.get("prompt", "a"))
    error = total_variation(found, wanted)
    if error > 1e-9:
        with pytest.raises(AssertionError, match="the target alone gives it"):
            assert_same_law(found, wanted)
    else:
        assert_same_law(found, wanted)
    return error


def error_of_three_tokens(settings: Settings = THREE, *, prompt: str = "a", vocabulary: int = 3, **options) -> float:
    """The same for the joint law of three tokens over tables whose every context has another distribution."""
    pair = pair_of(scrambled("target", vocabulary=vocabulary), scrambled("draft", vocabulary=vocabulary))
    found = law(pair, settings, tokens=3, prompt=prompt, **options)
    return total_variation(found, chain(pair, settings, tokens=3, prompt=prompt))


def next_logits(drafter: DraftModel, committed: list[int], drafted: list[int]):
    """What the draft says of the token behind `committed` + `drafted`, [1, V]."""
    return perform([drafter._next_pass(committed, drafted)])[0]


def drafting(change) -> type[DraftModel]:
    """A draft model that picks from change(q) and says that it picked from q."""

    class Liar(DraftModel):
        def propose(self, request: Request) -> Proposal:
            rows, ids, us = [], [], []
            for _ in range(request.count):
                q = request.rule.probabilities(next_logits(self, request.committed, ids))[0]
                token, u = request.draws.pick(change(q))
                rows.append(q)
                ids.append(token)
                us.append(u)
            return Proposal(ids, torch.stack(rows) if rows else None, us, [0.0] * len(ids))

    return Liar


def liar(change):
    return lambda: drafting(change)(reference_pair().draft)


def one_hot_at_the_top(q):
    return torch.zeros_like(q).scatter(0, q.argmax(keepdim=True), 1.0)


def the_two_best(q):
    best = q.argsort(descending=True, stable=True)[:2]
    kept = torch.zeros_like(q)
    kept[best] = q[best]
    return kept / kept.sum()


# The table of the reference, part 2


def test_control_the_loop_as_it_is():
    assert error_of_one_token() < 1e-12
    assert error_of_one_token(drafter=liar(lambda q: q)) < 1e-12


def test_drafter_picks_its_argmax_but_reports_the_softmax():
    assert error_of_one_token(drafter=liar(one_hot_at_the_top)) == pytest.approx(0.250, abs=5e-4)


def test_replacement_drawn_from_p_instead_of_the_residual(monkeypatch):
    monkeypatch.setattr(judging, "residual", lambda p, q: (p, 1.0))
    assert error_of_one_token() == pytest.approx(0.125, abs=5e-4)


def test_drafts_filtered_by_top_k_with_q_reported_unfiltered():
    """Settings say top-k 2; the drafter obeys and reports its q from before the filter. Two of its tokens tie for the second place."""

    class Unfiltered(DraftModel):
        def propose(self, request: Request) -> Proposal:
            q = SamplingRule().probabilities(next_logits(self, request.committed, []))[0]
            token, u = request.draws.pick(the_two_best(q))
            return Proposal([token], q[None], [u], [0.0])

    settings = ONE.replace(top_k=2)
    error = error_of_one_token(settings, drafter=lambda: Unfiltered(reference_pair().draft))
    assert error == pytest.approx(0.143, abs=5e-4)


def test_drafted_at_temperature_0_7_with_q_reported_at_1():
    class AtTemperatureOne(DraftModel):
        def propose(self, request: Request) -> Proposal:
            logits = next_logits(self, request.committed, [])
            token, u = request.draws.pick(request.rule.probabilities(logits)[0])
            return Proposal([token], SamplingRule().probabilities(logits), [u], [0.0])

    settings = ONE.replace(temperature=0.7)
    error = error_of_one_token(settings, drafter=lambda: AtTemperatureOne(reference_pair().draft))
    assert error == pytest.approx(0.049, abs=5e-4)


def test_the_same_u_for_every_draft(monkeypatch):
    monkeypatch.setattr(Draws, "accept", lambda self, p, q: (sampling.accepts(p, q, 0.3), 0.3))
    assert error_of_one_token() == pytest.approx(0.350, abs=5e-4)


def test_lookup_draws_again_from_p_after_a_mismatch(monkeypatch):
    """It looked up b, whose p is .25. Drawing again gives b another chance: p(b) + (1 − p(b))·p(b)."""
    monkeypatch.setattr(judging, "residual", lambda p, q: (p, 1.0))
    settings = ONE.replace(drafter="lookup")
    assert error_of_one_token(settings, prompt="ababa") == pytest.approx(0.1875, abs=1e-12)  # printed as .188
    monkeypatch.undo()
    assert error_of_one_token(settings, prompt="ababa") < 1e-12  # the control: one-hot q, p without that token


def test_residual_subtracts_by_index_of_two_filtered_lists(monkeypatch):
    """p keeps three tokens and q one. Their values are subtracted one by one, as if both lists began with the same token."""

    def by_index(p, q):
        ids, values, others = p.nonzero().squeeze(-1), p[p > 0], q[q > 0]
        values = values - torch.nn.functional.pad(others, (0, len(values) - len(others)))
        rest = torch.zeros_like(p)
        rest[ids] = values.clamp(min=0)
        return rest / rest.sum(), float(rest.sum())

    p = torch.tensor([0.5, 0.25, 0.15, 0.0], dtype=torch.float64) / 0.9
    q = one_hot_at_the_top(torch.tensor(Q, dtype=torch.float64))
    right, wrong = sampling.residual(p, q)[0], by_index(p, q)[0]
    assert (right - wrong).abs().sum() / 2 == pytest.approx(0.769, abs=5e-4)

    class Best(DraftModel):
        def propose(self, request: Request) -> Proposal:
            if not request.count:
                return drafters.NOTHING
            q = one_hot_at_the_top(SamplingRule().probabilities(next_logits(self, request.committed, []))[0])
            return Proposal([int(q.argmax())], q[None], [None], [0.0])

    settings, best = ONE.replace(top_k=3), lambda: Best(reference_pair().draft)
    assert error_of_one_token(settings, drafter=best) < 1e-12
    monkeypatch.setattr(judging, "residual", by_index)
    # Rejected with 1 − p(b) = 13/18, and then wrong by 10/13.
    assert error_of_one_token(settings, drafter=best) == pytest.approx(10 / 18, abs=1e-9)


def test_lenience_called_exact(monkeypatch):
    monkeypatch.setattr(sampling, "accepts", lambda p, q, u: u * 0.5 * q < p)
    assert error_of_one_token() == pytest.approx(0.350, abs=5e-4)


# Mistakes that leave the first token right and show only in the joint law


def test_control_of_the_joint_law():
    assert error_of_three_tokens() < 1e-12


def test_one_u_shared_by_all_drafts_of_a_round():
    """Each token alone is right on average; together they are not. u is uniform: the law is its average over the pieces of [0, 1]
    between the thresholds of all branches, in each of which every verdict is fixed."""
    pair = pair_of(scrambled("target", vocabulary=2), scrambled("draft", vocabulary=2))
    settings = THREE.replace(max_new_tokens=3)
    thresholds: set[float] = {0.0, 1.0}

    class Listening(Branch):
        def accept(self, p, q):
            thresholds.add(min(1.0, p / q))
            return super().accept(p, q)

    wanted = chain(pair, settings, tokens=3)
    assert_same_law(law(pair, settings, tokens=3, branch=Listening), wanted)
    found = dict.fromkeys(wanted, 0.0)
    edges = sorted(thresholds)
    for low, high in pairwise(edges):

        class Shared(Branch):
            middle = (low + high) / 2

            def accept(self, p, q):
                return sampling.accepts(p, q, self.middle), self.middle

        for key, weight in law(pair, settings, tokens=3, branch=Shared).items():
            found[key] += (high - low) * weight
    assert sum(found.values()) == pytest.approx(1.0)
    assert sum(v for k, v in found.items() if k[0] == 0) == pytest.approx(sum(v for k, v in wanted.items() if k[0] == 0), abs=1e-12)
    assert total_variation(found, wanted) > 0.003


def test_bonus_drawn_from_the_distribution_of_the_last_draft(monkeypatch):
    real = decoding.judge

    def shifted(proposal, *, logits, p, draws, eos_ids):
        return real(proposal, logits=logits, p=torch.cat([p[:-1], p[-2:-1]]) if len(p) > 1 else p, draws=draws, eos_ids=eos_ids)

    monkeypatch.setattr(decoding, "judge", shifted)
    assert error_of_three_tokens(THREE.replace(draft_length=1)) > 0.02


def test_rejected_drafts_stay_in_the_cache_of_the_target(monkeypatch):
    class Forgetful(TableSequence):
        def crop(self, length: int) -> None:
            """Says that it rolled back, and does not."""

    monkeypatch.setattr("specdec.table.TableSequence", Forgetful)
    assert error_of_three_tokens(THREE.replace(drafter="lookup"), prompt="abab") > 0.02


def test_a_rejected_draft_stays_in_the_cache_of_the_draft_model_but_q_is_honest(monkeypatch):
    """The worst that a confused drafter can do as long as it reports what it drew from is to be slow: the law stays exact."""
    monkeypatch.setattr(DraftModel, "settle", lambda self, kept: None)
    monkeypatch.setattr(
        DraftModel, "_next_pass", lambda self, committed, drafted: Pass(one_by_one, self.sequence, (committed + drafted)[-1:])
    )
    assert error_of_three_tokens() < 1e-12


def test_q_of_all_drafts_taken_from_the_first(monkeypatch):
    real = DraftModel.steps

    def first_for_all(self, request):
        proposal = yield from real(self, request)
        q = None if proposal.q is None else proposal.q[:1].expand_as(proposal.q)
        return Proposal(proposal.ids, q, proposal.draw_us, proposal.seconds)

    monkeypatch.setattr(DraftModel, "steps", first_for_all)
    assert error_of_three_tokens() > 0.02


def test_drafts_behind_a_rejection_judged_all_the_same(monkeypatch):
    """The replacement goes where the rejected draft was, and the accepted drafts behind it stay."""
    real = Run.steps

    def keep_the_tail(self):
        round_ = yield from real(self)
        tail = [d.id for d in round_.drafts if d.status == "discarded" and d.p >= d.q]
        if tail and self.finish_reason is None:
            self.committed.extend(tail[:1])
            self.reader.target.forward([self.committed[-2]])
        return round_

    monkeypatch.setattr(Run, "steps", keep_the_tail)
    assert error_of_three_tokens(THREE.replace(max_new_tokens=5)) > 0.02


def test_an_end_of_text_among_the_drafts_is_overlooked(monkeypatch):
    real = decoding.judge
    monkeypatch.setattr(decoding, "judge", lambda proposal, **rest: real(proposal, **(rest | {"eos_ids": frozenset()})))
    pair = pair_of(scrambled("target", vocabulary=3), scrambled("draft", vocabulary=3), eos_ids=frozenset({1}))
    settings = THREE.replace(max_new_tokens=3)
    assert total_variation(law(pair, settings), chain(pair, settings)) > 0.02


def test_the_draft_is_sampled_from_the_random_stream_of_the_verdict():
    """The draw that picked the draft also judges it: small u means "early in the list", and it means "accept".

    Over u: token x is drafted while u is between its cumulative q, and then accepted while u < p/q.
    """
    low, law_, rest = 0.0, [0.0] * 4, 0.0
    residual = [max(0.0, p - q) for p, q in zip(P, Q, strict=True)]
    for x, (p, q) in enumerate(zip(P, Q, strict=True)):
        kept = max(0.0, min(low + q, p / q) - low)
        law_[x] += kept
        rest += q - kept
        low += q
    law_ = [kept + rest * r / sum(residual) for kept, r in zip(law_, residual, strict=True)]
    expected = sum(abs(a - b) for a, b in zip(law_, P, strict=True)) / 2

    class Reused(Branch):
        """A finer grid of u, half-way through the pieces on which both decisions are constant."""

        edges = sorted({0.0, 1.0, *(sum(Q[:i]) for i in range(1, 4)), *(p / q for p, q in zip(P, Q, strict=True) if p < q)})

        def pick(self, probabilities):
            if self.taken:  # the replacement
                return super().pick(probabilities)
            piece = self._choose([high - low for low, high in pairwise(self.edges)])
            self.u = self.first = (self.edges[piece] + self.edges[piece + 1]) / 2
            return Draws.pick(self, probabilities)

        def accept(self, p, q):
            return sampling.accepts(p, q, self.first), self.first

    assert expected > 0.1
    assert error_of_one_token(branch=Reused) == pytest.approx(expected, abs=1e-9)


def test_lookup_reports_what_was_found_with_less_than_certainty(monkeypatch):
    """A deterministic drafter that claims q(x) = .5 for what it always proposes."""
    real = PromptLookup.steps

    def unsure(self, request):
        proposal = yield from real(self, request)
        if proposal.q is None:
            return proposal
        q = proposal.q * 0.5 + 0.5 / proposal.q.shape[-1]
        return Proposal(proposal.ids, q, proposal.draw_us, proposal.seconds)

    monkeypatch.setattr(PromptLookup, "steps", unsure)
    assert error_of_three_tokens(THREE.replace(drafter="lookup"), prompt="abab") > 0.02
