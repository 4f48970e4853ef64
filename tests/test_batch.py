"""Many requests in one pass each: the text, and the law of the text, of every request are those of its run alone."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from exact_law import Branch, assert_same_law, chain, pair_of, scrambled

from specdec import decoding
from specdec.batch import BatchRun
from specdec.decoding import generate, plain
from specdec.errors import SettingsError
from specdec.runner import Runner
from specdec.trace import Settings

# Lengths, draft lengths, seeds, drafters and ends all differ.
MIXED = [
    ("abcabcab", Settings(raw=True, drafter="draft", draft_length=3, max_new_tokens=17, seed=1)),
    ("a", Settings(raw=True, drafter="lookup", draft_length=5, max_new_tokens=24, seed=2)),
    ("Once upon a time there was a whale, and the whale was the", Settings(raw=True, drafter="early-exit", draft_length=2, max_new_tokens=9)),
    ("1 2 3 4 1 2 3", Settings(raw=True, drafter="draft", draft_length=1, max_new_tokens=30, seed=4)),
    ("zz", Settings(raw=True, drafter="draft", draft_length=4, max_new_tokens=1, seed=5)),
    ("hello", Settings(raw=True, drafter="draft", draft_length="auto", max_new_tokens=12, seed=6)),
]


def finished(batch: BatchRun) -> BatchRun:
    for _ in batch:
        pass
    return batch


@pytest.mark.parametrize("kind", ["llama", "gpt2"])  # the lean runner, and one that can only take turns
@pytest.mark.parametrize("at_once", [1, 3, 6])
def test_the_greedy_text_of_each_request_is_that_of_its_run_alone(tiny_pair, kind, at_once):
    pair = tiny_pair(kind, layers=3)
    batch = finished(BatchRun(pair, MIXED, at_once=at_once))
    for run, (prompt, settings) in zip(batch.runs, MIXED, strict=True):
        alone = plain(pair, prompt, settings)
        assert (tuple(run.output_ids), run.finish_reason) == (alone.output_ids, alone.finish_reason)


def test_a_plain_batch_is_plain_decoding(tiny_pair):
    pair = tiny_pair("llama", layers=3)
    batch = finished(BatchRun(pair, MIXED, method="plain", at_once=4))
    assert [tuple(run.output_ids) for run in batch.runs] == [plain(pair, *one).output_ids for one in MIXED]
    assert all(run.trace().method == "plain" for run in batch.runs)


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_with_the_same_seed_a_sampled_request_makes_the_same_draws_as_alone(tiny_pair, temperature):
    pair = tiny_pair("llama", layers=3)
    requests = [(prompt, settings.replace(temperature=temperature)) for prompt, settings in MIXED if not settings.adaptive]
    batch = finished(BatchRun(pair, requests, at_once=4, record=True))
    for run, request in zip(batch.runs, requests, strict=True):
        alone, found = generate(pair, *request), run.trace()
        assert found.output_ids == alone.output_ids
        verdicts = [[(d.id, d.status, d.u, pytest.approx(d.p, abs=1e-5), pytest.approx(d.q, abs=1e-5)) for d in r.drafts] for r in alone.rounds]
        assert [[(d.id, d.status, d.u, d.p, d.q) for d in r.drafts] for r in found.rounds] == verdicts


def test_the_law_of_a_request_is_the_targets_whatever_runs_beside_it():
    pair = pair_of(scrambled("target", vocabulary=3), scrambled("draft", vocabulary=3))
    settings = Settings(temperature=1.0, draft_length=2, max_new_tokens=3, drafter="draft")
    beside = ("ab", settings.replace(draft_length=3, seed=7, drafter="lookup"))
    choices, found = [], {}
    while choices is not None:
        draws = Branch(choices)
        with mock.patch.object(decoding, "Draws", side_effect=[draws, decoding.Draws(7), decoding.Draws(8)]):
            batch = BatchRun(pair, [("a", settings), beside, ("c", beside[1])], at_once=2)
        finished(batch)
        key = tuple(batch.runs[0].output_ids)
        found[key] = found.get(key, 0.0) + draws.weight
        choices = draws.next()
    assert_same_law(found, chain(pair, settings, tokens=3))


def test_passes_are_shared(tiny_pair, monkeypatch):
    pair, rows = tiny_pair("llama", layers=3), []
    real = type(pair.target).run

    def counted(self, x, parts, **rest):
        if self is pair.target and rest["layers"] == 3:
            rows.append(len(parts))
        return real(self, x, parts, **rest)

    monkeypatch.setattr(type(pair.target), "run", counted)
    same = [(prompt, Settings(raw=True, drafter="draft", draft_length=2, max_new_tokens=8)) for prompt in ("abc", "b", "cde", "d e f")]
    rounds = list(BatchRun(pair, same, method="plain", at_once=4))
    alone = sum(len(prompt) > 1 for prompt, _ in same)  # the prompts that are read before anything is shared
    assert len(rounds) == 8 and rows.count(4) == 8 and len(rows) <= 8 + alone
    assert all(one.members == (0, 1, 2, 3) and one.new_tokens == (1, 1, 1, 1) for one in rounds)


def test_the_next_one_joins_when_one_ends(tiny_pair):
    pair = tiny_pair("llama", layers=3)
    requests = [("abc", Settings(raw=True, max_new_tokens=count)) for count in (2, 6, 3, 1)]
    rounds = list(BatchRun(pair, requests, method="plain", at_once=2))
    assert [one.members for one in rounds] == [(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (1, 3)]
    assert [one.joined for one in rounds] == [(0, 1), (), (2,), (), (), (3,)]
    assert all(one.seconds >= one.seconds_prefill >= 0 for one in rounds)


def test_a_stop_ends_all_and_keeps_what_there_is(tiny_pair):
    pair, rounds = tiny_pair("llama", layers=3), []
    batch = BatchRun(pair, MIXED, at_once=3, stop=lambda: len(rounds) >= 2)
    for one in batch:
        rounds.append(one)
    assert len(rounds) == 2
    assert {run.finish_reason for run in batch.runs} <= {"stopped", "length", "eos"}
    assert sum(run.finish_reason == "stopped" for run in batch.runs) >= 3
    assert batch.runs[0].output_ids and batch.runs[0].trace().finish_reason == "stopped"


def test_times_are_those_of_the_clock(tiny_pair):
    pair = tiny_pair("llama", layers=3)
    batch = BatchRun(pair, [MIXED[0], MIXED[3]], at_once=2)
    rounds = list(batch)
    for number, run in enumerate(batch.runs):
        there = [one.seconds for one in rounds if number in one.members]
        assert run.seconds == pytest.approx(sum(there))
        assert 0 < run.seconds_to_first_token <= there[0]
    assert batch.seconds == pytest.approx(sum(one.seconds for one in rounds))


def test_bad_requests_are_refused_before_anything_runs(tiny_pair):
    with pytest.raises(SettingsError, match="at_once is 0"):
        BatchRun(tiny_pair(), MIXED, at_once=0)
    with pytest.raises(SettingsError, match="the prompt has 513 tokens"):
        BatchRun(tiny_pair(), [*MIXED, ("x" * 513, Settings(raw=True))])


def test_the_test_can_fail_a_pass_that_mixes_the_sequences_up_is_noticed(tiny_pair, monkeypatch):
    pair = tiny_pair("llama", layers=3)
    real = type(pair.target).together
    monkeypatch.setattr(type(pair.target), "together", lambda self, passes: real(self, passes)[::-1] if len(passes) > 1 else real(self, passes))
    batch = finished(BatchRun(pair, [(p, s.replace(max_new_tokens=6, draft_length=2, adaptive=False)) for p, s in MIXED[:2]], method="plain"))
    assert [tuple(run.output_ids) for run in batch.runs] != [plain(pair, p, s.replace(max_new_tokens=6)).output_ids for p, s in MIXED[:2]]


@pytest.mark.parametrize("drafter", ["head", "head-lookup", "draft", "early-exit", "lookup"])
def test_the_embedded_pair_in_a_batch(embedded_pair, drafter):
    """Texts with a tie closer than rounding would part here; these do not."""
    settings = Settings(drafter=drafter, draft_length=3, max_new_tokens=16)
    requests = [(prompt, settings) for prompt in ("Count from one to five.", "What is a noun?", "Say hello, say hello, say")]
    batch = finished(BatchRun(embedded_pair, requests, at_once=3))
    for run, (prompt, _) in zip(batch.runs, requests, strict=True):
        assert tuple(run.output_ids) == generate(embedded_pair, prompt, settings, record=False).output_ids
    assert isinstance(embedded_pair.target, Runner) and torch.is_inference_mode_enabled() is False
