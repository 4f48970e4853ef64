"""Prompts of several runs are read together, long ones in pieces, what they have in common once. Texts are those of each alone."""

from __future__ import annotations

import dataclasses

import pytest

from specdec import llama
from specdec.batch import advance
from specdec.decoding import generate, plain, stream
from specdec.service import READING
from specdec.trace import Settings

CHAT = ["Count to ten.", "Count to twelve, please.", "Count back."]


@pytest.fixture
def rows(monkeypatch):
    """Tokens of each pass of a whole lean model, in order, by sequence."""
    found: list[list[int]] = []
    real = llama.LlamaRunner.run

    def counted(self, x, parts, **rest):
        if rest["layers"] == self.layers == 3:
            found.append([part.count for part in parts])
        return real(self, x, parts, **rest)

    monkeypatch.setattr(llama.LlamaRunner, "run", counted)
    return found


def finish(runs) -> None:
    while any(run.finish_reason is None for run in runs):
        for outcome in advance(runs):
            assert not isinstance(outcome, Exception), outcome


@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_prompts_that_begin_alike_are_read_together_and_their_beginning_once(tiny_pair, rows, drafter):
    pair = tiny_pair("llama", layers=3)
    settings = Settings(drafter=drafter, draft_length=2, max_new_tokens=9)
    runs = [stream(pair, prompt, settings) for prompt in CHAT]
    common = next(i for i, tokens in enumerate(zip(*(run.prompt_ids for run in runs), strict=False)) if len(set(tokens)) > 1)
    rows.clear()  # a runner tries itself out when it is made
    first = advance(runs)
    assert all(outcome is run.rounds[0] for outcome, run in zip(first, runs, strict=True))
    assert common >= 8 and rows[:2] == [[common], [len(run.prompt_ids) - 1 - common for run in runs]]
    assert all(0 < run.seconds_prefill <= run.seconds for run in runs)
    finish(runs)
    assert [tuple(run.output_ids) for run in runs] == [plain(pair, prompt, settings).output_ids for prompt in CHAT]


def test_a_long_prompt_is_read_in_pieces_and_others_have_their_rounds_meanwhile(tiny_pair, rows, monkeypatch):
    pair = tiny_pair("llama", layers=3)
    monkeypatch.setattr(llama.LlamaRunner, "piece", 16)
    settings = Settings(raw=True, drafter="early-exit", draft_length=2, max_new_tokens=12)
    long, short = stream(pair, "abcdefgh" * 5, settings), stream(pair, "xyz", settings)  # 39 tokens have to be read: 16, 16 and 7
    rows.clear()
    turns = [advance([long, short]) for _ in range(3)]
    assert [outcome is READING for outcome, _ in turns] == [True, True, False]
    assert [outcome for _, outcome in turns] == short.rounds[:3] and len(long.rounds) == 1
    assert rows[0] == [16, 2]
    assert long.seconds > long.seconds_prefill + sum(short.rounds[0].seconds.draft)
    finish([long, short])
    for run in (long, short):
        monkeypatch.setattr(llama.LlamaRunner, "piece", 256)
        assert tuple(run.output_ids) == generate(pair, run.prompt, settings).output_ids


def test_a_run_can_be_stopped_between_two_pieces(tiny_pair, monkeypatch):
    monkeypatch.setattr(llama.LlamaRunner, "piece", 8)
    asked: list[bool] = []
    run = stream(tiny_pair("llama", layers=3), "a" * 40, Settings(raw=True), stop=lambda: bool(asked))
    assert advance([run]) == [READING]
    asked.append(True)
    assert advance([run]) == [None] and run.finish_reason == "stopped" and run.output_ids == []


def test_states_that_a_head_reads_are_those_of_the_whole_prompt(embedded_pair, monkeypatch):
    """The attached head starts from the target's states of every prompt token, those that were taken over included."""
    import torch

    monkeypatch.setattr(llama.LlamaRunner, "piece", 30)
    settings = Settings(drafter="head", draft_length=4, max_new_tokens=8)
    runs = [stream(embedded_pair, prompt, settings) for prompt in CHAT]
    alone = [stream(embedded_pair, prompt, settings) for prompt in CHAT]
    monkeypatch.setattr(type(runs[0].drafter), "settle", lambda self, kept: None)
    while not all(run.reader.done for run in runs):
        advance(runs)
    for run, one in zip(runs, alone, strict=True):
        monkeypatch.setattr(llama.LlamaRunner, "piece", 256 if one is not alone[0] else 30)  # one is read in pieces, too, by itself
        one.reader.read()
        read = one.drafter.sequence.length
        keys, expected = run.drafter.sequence._keys[:, 1:read], one.drafter.sequence._keys[:, 1:read]
        assert read == len(one.prompt_ids) - 2 and torch.allclose(keys, expected, atol=1e-3 * expected.abs().max())
        assert run.rounds[0].drafts[0].id == next(one).drafts[0].id


def test_the_beginning_of_every_chat_is_read_once_and_changes_nothing(tiny_pair, rows, monkeypatch):
    """Runs after the first read only what is their own; texts, verdicts and draws are those of runs that read it all."""
    from specdec import prompt_reader
    from specdec.beginning import kept

    monkeypatch.setattr("specdec.beginning.WORTH", 2)
    pair = dataclasses.replace(tiny_pair("llama", layers=3))  # another pair: what was kept before does not count
    for drafter in ("draft", "early-exit", "lookup"):
        settings = Settings(drafter=drafter, draft_length=2, max_new_tokens=9, temperature=0.8, seed=4)
        rows.clear()
        runs = [stream(pair, prompt, settings) for prompt in CHAT]
        for run in runs:
            for _ in run:
                pass
        begun = kept(pair, runs[0].prompt_ids, ())
        assert 2 <= begun.length < len(runs[0].prompt_ids) and begun.ids == runs[1].prompt_ids[: begun.length]
        reads = [counts for counts in rows if len(counts) == 1 and counts[0] > 3]
        beginning = [[begun.length]] if drafter == "draft" else []
        assert reads == beginning + [[len(run.prompt_ids) - 1 - begun.length] for run in runs]
        with monkeypatch.context() as without:
            without.setattr(prompt_reader, "kept", lambda *_: None)
            for run in runs:
                whole = generate(pair, run.prompt, settings)
                assert whole.output_ids == tuple(run.output_ids)
                assert [round_.accepted for round_ in whole.rounds] == [round_.accepted for round_ in run.rounds]
    assert kept(pair, pair.encode("Count to ten.", raw=True), ()) is None


def test_a_class_that_asks_the_same_question_reads_it_once(embedded_pair, rows):
    """Nothing of a prompt is left to read for its own run; the head finds the states of all of it nevertheless."""
    settings = Settings(drafter="head", draft_length=4, max_new_tokens=6)
    runs = [stream(embedded_pair, CHAT[0], settings) for _ in range(3)]
    finish(runs)
    alone = generate(embedded_pair, CHAT[0], settings)
    assert [tuple(run.output_ids) for run in runs] == [alone.output_ids] * 3
    assert [[d.id for d in run.rounds[0].drafts] for run in runs] == [[d.id for d in alone.rounds[0].drafts]] * 3
