"""The loop: where it stops, what it counts, what its caches hold."""

from __future__ import annotations

import gc
import weakref

import hypothesis
import pytest
import torch
from exact_law import pair_of, scrambled
from hypothesis import strategies as st
from trace_checks import check, statuses, without_times

from specdec.decoding import generate, plain, stream, stream_plain
from specdec.drafters import DraftModel, Proposal
from specdec.errors import SettingsError
from specdec.table import TableModel, TablePair
from specdec.trace import Settings

GREEDY = Settings(drafter="draft", temperature=0.0)
SAMPLED = Settings(drafter="draft", temperature=1.0)


def saying(text: str) -> TableModel:
    """A model that is sure of the whole text, whatever it was fed: position decides."""

    def next_distribution(context):
        row = [0.0] * 8
        row["abcdefgh".index(text[len(context)]) if len(context) < len(text) else 0] = 1.0
        return row

    return TableModel(next_distribution, vocabulary=8)


def says(target: str, draft: str, **options) -> TablePair:
    """A pair whose target writes `target` behind the prompt "h", and whose draft expects `draft`. End of text: e or f, e first."""
    return pair_of(saying("h" + target), saying("h" + draft), **{"eos_ids": frozenset({4, 5})} | options)


# Where it stops


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    ("target", "draft", "output", "rounds"),
    [
        ("ebcd", "ebcd", "e", ["addd-"]),  # first draft
        ("aecd", "aecd", "ae", ["aadd-"]),  # in the middle
        ("abce", "abce", "abce", ["aaaa-"]),  # last draft
        ("abcde", "abcde", "abcde", ["aaaaB"]),  # bonus
        ("abe", "abc", "abe", ["aardR"]),  # replacement
        ("afec", "afec", "af", ["aadd-"]),  # the earlier of two, though the other id is smaller
        ("aefc", "aefc", "ae", ["aadd-"]),
        ("abcd", "abee", "abcd", ["aardR", "rdddR"]),  # drafted ends that the target does not want
    ],
)
def test_the_text_ends_at_the_earliest_end_token(settings, target, draft, output, rounds):
    run_settings = settings.replace(draft_length=4, max_new_tokens=9)
    trace = generate(says(target + "aaaae", draft + "aaaae"), "h", run_settings)
    found = "".join("abcdefgh"[i] for i in trace.output_ids)
    assert found.startswith(output)
    assert [statuses(r) for r in trace.rounds][: len(rounds)] == rounds
    if output[-1] in "ef":
        assert trace.finish_reason == "eos" and found == output
        assert trace.output_text == output[:-1]
    check(trace)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("draft", ["abcabcabc", "ddddddddd", "abddddddd"], ids=["all right", "all wrong", "two right"])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 7])
def test_never_a_token_past_max_new_tokens(settings, draft, length):
    """γ = 4: lengths of 1, 2, γ, γ + 1, γ + 2 and more."""
    trace = generate(says("abcabcabc", draft), "h", settings.replace(draft_length=4, max_new_tokens=length))
    assert "".join("abcdefgh"[i] for i in trace.output_ids) == "abcabcabc"[:length]
    assert trace.finish_reason == "length" and trace.totals.new_tokens == length
    for round_ in trace.rounds:
        # Drafts that could not be committed are not made: the last place is the target's own.
        left = length - (round_.start - 1)
        assert len(round_.drafts) == min(4, left - 1)
    check(trace)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("context", [2, 3, 5, 6, 7])
def test_prompt_and_output_never_pass_the_context(settings, context):
    trace = generate(says("abcabcabc", "abcabcabc", context=context), "h", settings.replace(draft_length=4, max_new_tokens=50))
    assert trace.finish_reason == "context" and len(trace.prompt_ids) + len(trace.output_ids) == context
    check(trace)


def test_a_full_context_that_is_also_the_wanted_length_is_called_length():
    assert generate(says("abcabc", "abcabc", context=4), "h", GREEDY.replace(max_new_tokens=3)).finish_reason == "length"


def test_an_end_token_in_the_last_place_is_called_eos():
    assert generate(says("abe", "abe"), "h", GREEDY.replace(max_new_tokens=3)).finish_reason == "eos"
    assert generate(says("abe", "abe", context=4), "h", GREEDY).finish_reason == "eos"


def test_plain_decoding_is_rounds_of_one_token_without_drafts():
    trace = plain(says("abce", "abce"), "h", GREEDY)
    assert trace.method == "plain" and trace.settings.drafter == "none" and trace.settings.draft_length == 0
    assert [statuses(r) for r in trace.rounds] == ["B"] * 4 and trace.output_text == "abc"
    assert trace.pair.draft is None
    check(trace)


def test_a_draft_length_of_0_is_plain_decoding():
    pair = says("abce", "abce")
    assert generate(pair, "h", GREEDY.replace(draft_length=0)).output_ids == plain(pair, "h", GREEDY).output_ids


def test_what_the_target_rules_out_is_never_emitted():
    """Top-k 1 leaves the target one token in each place; a draft that is sure of others changes nothing."""
    target, draft = scrambled("target", vocabulary=5), scrambled("draft", vocabulary=5, zeros=False)
    pair = pair_of(target, draft)
    for seed in range(20):
        trace = generate(pair, "a", SAMPLED.replace(top_k=1, seed=seed, max_new_tokens=12))
        assert trace.output_ids == plain(pair, "a", GREEDY.replace(max_new_tokens=12)).output_ids
        check(trace)


# Prompts and settings


@pytest.mark.parametrize("start", [stream, stream_plain])
def test_an_empty_prompt_is_refused(tiny_pair, start):
    with pytest.raises(SettingsError, match="the prompt is empty: write at least one character"):
        start(says("abc", "abc"), "", GREEDY)
    with pytest.raises(SettingsError, match="prompt is empty"):
        start(tiny_pair(), "", Settings())


def test_an_empty_raw_prompt_begins_a_text_where_the_model_has_a_token_for_that(tiny_pair):
    trace = generate(tiny_pair(), "", Settings(raw=True, max_new_tokens=9))
    assert list(trace.prompt_ids) == [tiny_pair().tokenizer.bos_token_id] and trace.output_ids
    check(trace)


@pytest.mark.parametrize("extra", [0, 1, 500])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(tiny_pair, extra):
    pair = tiny_pair(context=64)
    with pytest.raises(SettingsError, match=f"the prompt has {64 + extra} tokens and the models read at most 64"):
        stream(pair, "!" * (64 + extra), Settings(raw=True))


def test_a_prompt_that_leaves_one_place_gets_one_token(tiny_pair):
    trace = generate(tiny_pair(context=64), "!" * 63, Settings(raw=True, max_new_tokens=20))
    assert len(trace.output_ids) == 1 and trace.finish_reason in ("context", "eos")
    check(trace)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_a_prompt_of_one_token_works(tiny_pair, drafter, temperature):
    settings = Settings(drafter=drafter, temperature=temperature, raw=True, max_new_tokens=12)
    trace = generate(tiny_pair(), "x", settings)
    assert len(trace.prompt_ids) == 1 and trace.output_ids
    check(trace)


def test_raw_leaves_out_the_chat_template(tiny_pair):
    pair = tiny_pair()
    raw, chat = (stream(pair, "Hi", Settings(raw=r)) for r in (True, False))
    assert raw.prompt_ids == pair.encode("Hi", raw=True) != chat.prompt_ids == pair.encode("Hi", raw=False)
    assert raw.settings.raw and not chat.settings.raw


def test_the_resolved_settings_name_the_drafter(tiny_pair):
    pair = tiny_pair()
    assert stream(pair, "Hi").settings.drafter == pair.drafters[0]
    assert stream(pair, "Hi", Settings(drafter="lookup")).settings.drafter == "lookup"


def test_an_unknown_drafter_is_refused_before_anything_runs(tiny_pair):
    with pytest.raises(SettingsError, match="drafter 'oracle' is not offered by"):
        stream(tiny_pair(), "Hi", Settings(drafter="oracle"))


@pytest.mark.parametrize("layers", [3, 4, 1000])
def test_an_early_exit_behind_the_last_layer_is_refused_before_anything_runs(tiny_pair, layers):
    """It would be the whole target, that agrees with itself and saves nothing."""
    with pytest.raises(SettingsError, match=f"early exit after {layers} layers is impossible: this target has 3, take 1 to 2"):
        stream(tiny_pair(layers=3), "Hi", Settings(drafter="early-exit", exit_layers=layers))


def test_a_drafter_of_ones_own_takes_part():
    class Stubborn(DraftModel):
        name = "stubborn"

        def propose(self, request):
            q = torch.zeros(request.count, 8)
            q[:, 1] = 1.0
            return Proposal([1] * request.count, q, [None] * request.count, [0.0] * request.count)

    pair = says("abba", "cccc")
    trace = generate(pair, "h", GREEDY.replace(max_new_tokens=4), drafter=Stubborn(pair.draft))
    assert trace.settings.drafter == "stubborn" and trace.output_text == "abba"
    assert [statuses(r) for r in trace.rounds] == ["rddR", "aaB"]
    check(trace)


# Caches


@pytest.mark.parametrize("drafter", ["draft", "lookup"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_each_round_the_caches_hold_what_is_committed_but_the_newest(drafter, temperature):
    """With L committed before and n accepted, the target holds exactly L + n tokens, the right ones. So does the draft, less the
    last one if all were accepted: it has not read that yet."""
    pair = pair_of(scrambled("target", vocabulary=4, zeros=False), scrambled("draft", vocabulary=4, zeros=False))
    seen = set()
    for seed in range(8):
        settings = Settings(drafter=drafter, temperature=temperature, seed=seed, draft_length=3, max_new_tokens=17)
        run = stream(pair, "abcab", settings)
        for round_ in run:
            if run.finish_reason is not None:
                break
            held = round_.start + round_.accepted
            assert run.reader.target.tokens == run.committed[:held] == run.committed[:-1]
            if drafter == "draft":
                unread = len(round_.drafts) > 0 and round_.accepted == len(round_.drafts)
                assert run.drafter.sequence.tokens == run.committed[: held - unread]
            seen.add(round_.accepted)
    assert temperature == 0.0 or seen == {0, 1, 2, 3} or drafter == "lookup"


@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_after_each_round_the_cache_of_a_real_model_answers_as_a_fresh_one(tiny_pair, drafter):
    pair = tiny_pair(layers=3)
    run = stream(pair, "abcabcabc", Settings(drafter=drafter, temperature=1.0, draft_length=3, max_new_tokens=24, raw=True))
    for _ in run:
        if run.finish_reason is not None:
            break
        length = run.reader.target.length
        assert length == len(run.committed) - 1
        found = run.reader.target.forward(run.committed[-1:])
        run.reader.target.crop(length)
        wanted = pair.target.open().forward(run.committed, keep=1)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


# Stopping


@pytest.mark.parametrize("drafter", ["draft", "lookup"])
def test_a_run_stops_before_any_model_pass_and_what_it_made_stays(drafter):
    pair = pair_of(scrambled("target", vocabulary=4), scrambled("draft", vocabulary=4))
    settings = Settings(drafter=drafter, temperature=1.0, draft_length=3, max_new_tokens=12)
    whole = generate(pair, "abab", settings)
    passes = 0

    def count():
        nonlocal passes
        passes += 1
        return False

    generate(pair, "abab", settings, stop=count)
    assert passes >= len(whole.rounds) + 2
    lengths = set()
    for allowed in range(passes):
        asked = iter([False] * allowed + [True])
        run = stream(pair, "abab", settings, stop=lambda asked=asked: next(asked))
        rounds = list(run)
        trace = run.trace()
        assert run.finish_reason == trace.finish_reason == "stopped"
        assert without_times(trace).rounds == without_times(whole).rounds[: len(rounds)]
        assert trace.output_ids == whole.output_ids[: len(trace.output_ids)]
        assert next(asked, None) is None, "it went on after it was told to stop"
        assert next(run, None) is None
        check(trace)
        lengths.add(len(rounds))
    assert lengths == set(range(len(whole.rounds)))


@pytest.mark.parametrize("rounds", [1, 99])
def test_a_run_that_is_dropped_gives_back_its_caches_at_once(tiny_pair, rounds):
    """Nothing in it refers back to it: on a GPU its buffers are wanted by the next one before the garbage collector comes by."""
    run = stream(tiny_pair(), "abc abc", Settings(raw=True, drafter="draft", draft_length=2, max_new_tokens=12))
    for _ in zip(range(rounds), run, strict=False):
        pass
    kept = [weakref.ref(one) for one in (run, run.drafter, run.reader, *([run.reader.target] if run.reader.target else []))]
    gc.disable()
    try:
        del run
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_a_pair_that_is_dropped_gives_back_its_models():
    """Its runs name its passes, see `Verify`: nothing else may hold them."""
    pair = says("abcabcabc", "abdabdabd")
    assert generate(pair, "h", GREEDY).output_text
    target = weakref.ref(pair.target)
    del pair
    gc.collect()
    assert target() is None


def test_stop_called_between_rounds_ends_the_run_before_the_next():
    run = stream(says("abcabcabc", "abdabdabd"), "h", GREEDY)
    next(run)
    run.stop()
    assert next(run, None) is None and run.trace().finish_reason == "stopped" and run.trace().output_text == "abc"
    check(run.trace())


def test_a_run_that_was_stopped_before_it_began_has_an_empty_trace():
    run = stream(says("abc", "abc"), "h", GREEDY)
    run.stop()
    assert list(run) == []
    assert run.trace().output_ids == () and run.trace().output_text == ""
    check(run.trace())


def test_a_trace_can_be_had_at_any_time_and_a_finished_run_stays_finished():
    run = stream(says("abcabce", "abcabce"), "h", GREEDY)
    next(run)
    check(run.trace())
    assert run.trace().finish_reason == "stopped"
    for _ in run:
        pass
    run.stop()
    assert next(run, None) is None and run.trace().finish_reason == "eos"
    check(run.trace())


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_whatever_the_settings_a_run_ends_for_its_reason_with_a_trace_that_adds_up(data):
    """Any pair of tables, any settings: every limit and every sum holds in each run and after each round."""
    number = data.draw(st.integers(0, 10**6), label="tables")
    vocabulary = data.draw(st.integers(2, 8))
    eos = data.draw(st.frozensets(st.integers(0, vocabulary - 1), max_size=2))
    prompt = data.draw(st.text("abcdefgh"[:vocabulary], min_size=1, max_size=6))
    pair = pair_of(
        scrambled(f"target {number}", vocabulary=vocabulary),
        scrambled(f"draft {number}", vocabulary=vocabulary),
        eos_ids=eos,
        context=len(prompt) + data.draw(st.integers(1, 30)),
    )
    wanted = Settings(
        drafter=data.draw(st.sampled_from(["draft", "lookup"])),
        draft_length=data.draw(st.integers(0, 8)),
        temperature=data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])),
        top_k=data.draw(st.integers(0, vocabulary + 1)),
        top_p=data.draw(st.sampled_from([0.05, 0.5, 0.9, 1.0])),
        max_new_tokens=data.draw(st.integers(1, 20)),
        seed=number,
        ngram=data.draw(st.integers(1, 4)),
    )
    run = stream(pair, prompt, wanted)
    for round_ in run:
        assert len(round_.drafts) <= wanted.draft_length and round_.new_ids
        assert set(round_.new_ids[:-1]).isdisjoint(eos)
        for draft in round_.drafts:
            assert draft.status != "accepted" or draft.p > 0 or wanted.greedy
    trace = run.trace()
    check(trace)
    length, room = len(trace.output_ids), pair.context - len(trace.prompt_ids)
    if trace.output_ids[-1] in eos:
        assert trace.finish_reason == "eos" and length <= min(room, wanted.max_new_tokens)
    else:
        assert trace.finish_reason == ("length" if wanted.max_new_tokens <= room else "context")
        assert length == min(room, wanted.max_new_tokens)
    if wanted.greedy:
        assert trace.output_ids == plain(pair, prompt, wanted).output_ids
