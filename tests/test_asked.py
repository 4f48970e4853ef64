"""Asked again at every place, a drafter tells the very rounds of every other draft length."""

from __future__ import annotations

import dataclasses

import pytest

from specdec import asked, decoding, experiments, replay
from specdec.engine import RunRequest
from specdec.errors import SettingsError
from specdec.trace import Settings

PROMPT = "The cat sat on the mat and the cat sat on the mat"


def ask(pair, trace, **changes):
    experiment = asked.EveryPlace(prompt_ids=trace.prompt_ids, output_ids=trace.output_ids, **changes)
    going = experiments.begin(pair, RunRequest(prompt=trace.prompt, settings=trace.settings, experiment=experiment), lambda: False)
    assert len(list(going)) == experiment.total
    return going.trace()


def check(pair, prompt, drafter, *, tokens, recorded_with, lengths):
    settings = Settings(drafter=drafter, draft_length=recorded_with, max_new_tokens=tokens)
    trace = decoding.generate(pair, prompt, settings)
    found = ask(pair, trace)
    assert found.fits(trace) and experiments.from_json(asked.AskedFinding, experiments.to_json(found)) == found
    kinds = set()
    for length in lengths:
        real = decoding.generate(pair, prompt, settings.replace(draft_length=length))
        assert real.output_ids == trace.output_ids
        told = found.replay(length)
        assert (told.rounds, told.drafted, told.tokens) == (len(real.rounds), real.totals.drafted, real.totals.new_tokens)
        kinds.add((real.totals.accepted > 0, real.totals.rejected > 0))
    return kinds


@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_every_draft_length_exactly(tiny_pair, drafter):
    kinds = set()
    for seed in (0, 1):
        pair = tiny_pair(seed=seed)
        kinds |= check(pair, PROMPT, drafter, tokens=24, recorded_with=3, lengths=(1, 2, 5, 16))
    assert kinds - {(False, False)}  # there was something to accept or to reject


def test_an_attached_head_too(embedded_pair):
    kinds = check(embedded_pair, "Count from one to ten.", "head", tokens=20, recorded_with=4, lengths=(1, 3, 6))
    assert (True, True) in kinds


def test_rounds_by_hand():
    # Five tokens. From the first place two of three drafts stay, so that the next round begins at the fourth token.
    proposed, agreed = (3, 3, 3, 1, 0), (2, 1, 0, 0, 0)
    one, three = (replay.replay_asked(proposed, agreed, n, limit=9) for n in (1, 3))
    assert (one.rounds, one.drafted) == (4, 3)  # begins at the tokens 1, 3, 4, 5
    assert (three.rounds, three.drafted) == (3, 4)  # begins at the tokens 1, 4, 5
    assert replay.replay_asked(proposed, agreed, 3, limit=2).drafted == 1  # never past the limit


def test_a_sampled_run_and_another_pair_are_refused(tiny_pair):
    pair = tiny_pair()
    trace = decoding.generate(pair, PROMPT, Settings(drafter="draft", temperature=1.0, max_new_tokens=4))
    with pytest.raises(SettingsError, match="temperature 0"):
        ask(pair, trace)
    greedy = decoding.generate(pair, PROMPT, Settings(drafter="draft", max_new_tokens=4))
    found = ask(pair, greedy)
    assert not found.fits(trace) and not found.fits(decoding.generate(pair, PROMPT, Settings(drafter="lookup", max_new_tokens=4)))
    with pytest.raises(SettingsError, match="another pair"):
        ask(pair, dataclasses.replace(greedy, prompt="Something else"))


@pytest.mark.parametrize("ids", [(5, 2**31 - 1), tuple(range(5)) * 10])
def test_a_text_that_no_run_can_have_written_is_refused(tiny_pair, ids):
    """Ids come from files and over networks; one without an embedding would end a GPU for everybody."""
    pair = tiny_pair()
    trace = decoding.generate(pair, PROMPT, Settings(drafter="lookup", max_new_tokens=8))
    experiment = asked.EveryPlace(prompt_ids=trace.prompt_ids, output_ids=ids)
    with pytest.raises(SettingsError, match="cannot be read again"):
        experiments.begin(pair, RunRequest(prompt=PROMPT, settings=trace.settings, experiment=experiment), lambda: False)
