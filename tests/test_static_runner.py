"""Passes of fixed shapes over fixed buffers: padding, buckets, growth and the end of the context do no harm.

That its passes compute the models is checked with those of the other runners in test_runner. Graphs need CUDA; a stand-in keeps
what is peculiar about them: a replay computes from what is in the buffers now and writes over the results of the one before.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch
from families import FAMILIES, build
from test_runner import TEXT, close, without_cache

from specdec import llama
from specdec import static_runner as module
from specdec.errors import ModelError
from specdec.runner import Runner
from specdec.static_runner import StaticRunner, static_runner


class StandIn:
    """A graph that runs the pass again."""

    def __init__(self, slot, key):
        self.slot, self.key, self.replays = slot, key, 0
        logits, states = slot._run(*key)
        self.logits, self.states = logits.clone(), None if states is None else tuple(s.clone() for s in states)

    def replay(self):
        self.replays += 1
        with torch.inference_mode():
            logits, states = self.slot._run(*self.key)
            self.logits.copy_(logits)
            for mine, new in zip(self.states or (), states or (), strict=True):
                mine.copy_(new)


@pytest.fixture
def graphs(monkeypatch):
    """Stand-ins for all graphs that are captured, by slot and key."""
    made = {}

    def capture(slot, key):
        graph = made[id(slot), key] = StandIn(slot, key)
        return graph, (graph.logits, graph.states)

    monkeypatch.setattr(module.Slot, "_capture", capture)
    return made


@pytest.fixture
def small(monkeypatch):
    """Buffers that a short text outgrows."""
    monkeypatch.setattr(module, "BUCKETS", (16, 32, 64, 256))
    monkeypatch.setattr(module, "FIRST_CAPACITY", 32)
    monkeypatch.setattr(module, "CHUNK", 12)
    monkeypatch.setattr(module, "SIZES", (1, 2, 3, 5, 9))


def rounds(sequence, wanted, start=0):
    """Feeds TEXT behind `start` in rounds, right tokens and wrong ones in turns, and checks all logits of the right ones."""
    length, turn = start, 0
    while length < len(TEXT):
        right = min(1 + turn % 4, len(TEXT) - length)
        wrong = [5] * (turn * 3 % 5)
        close(sequence.forward(TEXT[length : length + right] + wrong)[:right], wanted[length : length + right])
        length, turn = length + right, turn + 1
        sequence.crop(length)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("captures", [False, True], ids=["run", "replayed"])
def test_a_text_that_outgrows_the_first_buffers(family, captures, small, graphs):
    model = build(family)
    wanted = without_cache(model, TEXT)
    runner = StaticRunner(model, capture=captures)
    runner.capture_at_load()
    for start in (0, 30):  # the second text finds buffers that are larger than it needs
        sequence = runner.open()
        if start:
            close(sequence.forward(TEXT[:start], keep=15), wanted[15:30])  # in three chunks, of which the first has no wanted row
        rounds(sequence, wanted, start)
        del sequence
    assert len(runner._free) == 1 and runner._free[0].capacity == 64
    assert bool(graphs) == captures
    if captures:
        assert {key[2] for slot, key in graphs} == {16, 32, 64}
        assert max(g.replays for g in graphs.values()) > 3
        # None is destroyed while the runner lives: the others share its memory.
        kept = [*runner._retired, *(graph for graph, _ in runner._free[0].graphs.values())]
        assert len(kept) > len(runner._free[0].graphs) and all(any(graph is one for one in kept) for graph in graphs.values())


def test_hidden_states_and_early_exits_of_replayed_passes(small, graphs):
    model = build("llama")
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([TEXT]), output_hidden_states=True).hidden_states
        exits = model.lm_head(model.model.norm(states[2]))[0]
    sequence = StaticRunner(model, capture=True).open(hidden_layers=(0, 3))
    kept = []
    for start, end in ((0, 25), (25, 26), (26, 29), (29, 30)):
        close(sequence.forward_exit([TEXT[start]], layers=2), exits[start][None])
        close(sequence.forward_exit([TEXT[start + 1]], layers=2, offset=1), exits[start + 1][None])
        sequence.crop_exit(layers=2)
        sequence.forward(TEXT[start:end], keep=1)
        kept.append(sequence.hidden)
    found = torch.cat(kept)  # at the end: a later replay must not have written over an earlier result
    torch.testing.assert_close(found, torch.stack([states[0][0], states[3][0]], 1)[:30], atol=1e-4, rtol=1e-3)
    assert {key[0] for _, key in graphs} == {0, 2}


def test_logits_outlive_the_next_pass(small, graphs):
    model = build("qwen3")
    wanted = without_cache(model, TEXT[:6])
    sequence = StaticRunner(model, capture=True).open()
    rows = [sequence.forward([token]) for token in TEXT[:6]]
    close(torch.cat(rows), wanted)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_last_token_of_the_context(family):
    """A padded pass reaches behind it; learned positions end there."""
    model = build(family)
    runner = StaticRunner(model)
    text = (TEXT * 20)[: runner.context]
    wanted = without_cache(model, text)
    sequence = runner.open()
    sequence.forward(text[:-4], keep=1)
    close(sequence.forward(text[-4:]), wanted[-4:])
    sequence.crop(len(text) - 1)
    close(sequence.forward(text[-1:]), wanted[-1:])
    sequence.crop(0)
    with pytest.raises(ValueError, match=f"at most {runner.context}"):
        sequence.forward([1] * (runner.limit + 1), keep=1)


def test_ids_may_be_on_the_device_already():
    model = build("llama")
    wanted = without_cache(model, TEXT[:8])
    for runner in (Runner(model), StaticRunner(model)):
        sequence = runner.open()
        sequence.forward(TEXT[:3])
        close(sequence.forward([TEXT[3], torch.tensor(TEXT[4]), TEXT[5]]), wanted[3:6])
        close(sequence.forward(torch.tensor(TEXT[6:8])), wanted[6:8])


def test_a_run_that_overflowed_leaves_nothing_behind():
    model = build("llama")
    wanted = without_cache(model, TEXT[:5])
    runner = StaticRunner(model)
    sequence = runner.open()
    sequence.forward(TEXT)
    with torch.inference_mode():
        for layer in sequence.cache.layers:
            layer.values.fill_(float("inf"))
    slot = sequence.slot
    del sequence
    gc.collect()
    again = runner.open()
    assert again.slot is slot
    close(again.forward(TEXT[:5]), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_computed_or_left_to_the_eager_runner(family):
    model = build(family)
    runner = static_runner(model)
    assert isinstance(runner, StaticRunner), runner.note
    assert runner.note == "static cache"


def refusing(attribute, value):
    model = build("llama")
    setattr(model.config, attribute, value)
    return model


def test_what_has_no_static_cache_is_left_to_the_eager_runner_which_says_why(monkeypatch):
    runner = static_runner(refusing("use_bidirectional_attention", True))
    assert type(runner) is Runner
    assert runner.note.startswith("eager, no CUDA graphs: ") and "kinds that need other masks" in runner.note
    assert isinstance(static_runner(refusing("_attn_implementation", "eager")), StaticRunner)
    monkeypatch.setattr(StaticRunner, "masks", lambda self, slots, visible: torch.ones(1, 1, len(slots), visible).bool())
    runner = static_runner(build("llama"))  # a model that makes its masks in another way, and answers otherwise
    assert type(runner) is Runner and "answers otherwise" in runner.note


def test_a_pass_that_cannot_be_captured(monkeypatch, graphs):
    """At load the eager runner takes over; in the middle of a run the pass is run as it is."""
    model = build("llama")
    capture = module.Slot._capture

    def fail(slot, key):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(module.Slot, "_capture", fail)
    runner = static_runner(model, capture=True)
    assert type(runner) is Runner
    assert runner.note == "eager, no CUDA graphs: operation not permitted when stream is capturing"
    monkeypatch.setattr(module.Slot, "_capture", capture)
    runner = static_runner(model, capture=True)
    assert runner.note == "CUDA graphs"
    monkeypatch.setattr(module.Slot, "_capture", fail)
    close(runner.open().forward(TEXT[:12]), without_cache(model, TEXT[:12]))  # 17 tokens are not captured at load
    assert runner.note == "CUDA graphs, but not for all passes (operation not permitted when stream is capturing)"


def test_a_running_state_is_refused():
    from families import REFUSED

    with pytest.raises(ModelError, match="take back"):
        static_runner(REFUSED["mamba"]().eval())


def test_warming_up_captures_what_comes_next_and_leaves_no_trace(small, graphs):
    model = build("llama")
    wanted = without_cache(model, TEXT[:9])
    sequence = StaticRunner(model, capture=True).open()
    sequence.forward(TEXT[:4])
    before = {key for _, key in graphs}
    sequence.warm(3)
    sequence.warm(1, exit_layers=2)
    assert {key for _, key in graphs} - before == {(0, 3, 16), (2, 1, 16)}
    close(sequence.forward(TEXT[4:9]), wanted[4:])


def test_a_model_on_cuda_gets_the_static_runner(monkeypatch):
    """Nothing is computed here: the choice is what counts."""
    weight = SimpleNamespace(device=torch.device("cuda"))
    model = SimpleNamespace(parameters=lambda: iter([weight]))
    monkeypatch.setattr(llama, "static_runner", lambda model, vocabulary: ("static", vocabulary))
    assert llama.fastest_runner(model, vocabulary=7) == ("static", 7)
    assert isinstance(llama.fastest_runner(build("llama")), llama.LlamaRunner)
