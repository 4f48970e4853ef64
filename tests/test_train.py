"""Training of the drafters: prompts that do not overlap, the loss and its gradient, texts and features that survive a stop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec.errors import SettingsError
from specdec.training import prompts
from specdec.training.corpus import Corpus, text_files
from specdec.training.features import (
    TAPS,
    FeatureStore,
    Library,
    choose_vocabulary,
    extract,
    take_over,
    taps_for,
    token_counts,
)
from specdec.training.muon import Muon, orthogonalise
from specdec.training.recipe import Plan, Trainer, judge, make_batch
from specdec.training.sampler import TextSampler
from tests.tiny import make_model, make_tokenizer


@pytest.fixture(autouse=True)
def one_thread():
    """Models of width 32 gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target():
    """A random Llama of 3 layers whose output rows are its embedding, as in the embedded target."""
    tokenizer = make_tokenizer()
    model = make_model(vocabulary=len(tokenizer), layers=3)
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    return model, tokenizer


@pytest.fixture
def library(target, tmp_path):
    """Twelve sampled texts with their features."""
    model, _ = target
    source = np.random.default_rng(0)
    texts = [([1, 5, 6, *source.integers(2, 200, 10).tolist()], 6, 1.0) for _ in range(12)]
    store = FeatureStore(tmp_path / "features-000", Corpus.of(texts), width=32, taps=(1, 3))
    extract(model, store, group=5, batch=2)
    return Library([store], held_out=2)


# Prompts


def test_training_and_held_out_prompts_share_no_topic_and_no_form():
    prompts.check_disjoint()
    assert not set(prompts.TRAINING_TOPICS) & set(prompts.HELD_OUT_TOPICS)
    held_out = [prompt for _, prompt in prompts.held_out_prompts(60)]
    assert len(set(held_out)) == 60
    import random

    training = {prompts.training_prompt(random.Random(seed)) for seed in range(3000)}
    assert len(training) > 1000 and not training & set(held_out)


def test_a_shared_topic_is_found(monkeypatch):
    monkeypatch.setattr(prompts, "HELD_OUT_TOPICS", (*prompts.HELD_OUT_TOPICS, "glaciers"))
    with pytest.raises(SettingsError, match="glaciers"):
        prompts.check_disjoint()


def test_a_shared_form_is_found(monkeypatch):
    monkeypatch.setitem(prompts.HELD_OUT_FORMS, "list", ("List six facts about {}.",))
    with pytest.raises(SettingsError, match="List six facts"):
        prompts.check_disjoint()


def test_all_ten_kinds_are_asked():
    assert set(prompts.TRAINING_FORMS) == set(prompts.HELD_OUT_FORMS) == set(prompts.KINDS) and len(prompts.KINDS) == 10
    assert {kind for kind, _ in prompts.held_out_prompts(10)} == set(prompts.KINDS)


# Optimiser and loss


def test_orthogonalise_brings_singular_values_near_one():
    torch.manual_seed(0)
    matrix = torch.randn(24, 60) @ torch.diag(torch.logspace(0, -1.5, 60))
    for each in (matrix, matrix.T):
        values = torch.linalg.svdvals(orthogonalise(each))
        assert values.min() > 0.4 and values.max() < 1.7
        u, _, vh = torch.linalg.svd(each, full_matrices=False)
        assert ((u.T @ orthogonalise(each) @ vh.T).diagonal() > 0.4).all()  # same directions, not just any rotation


def test_muon_moves_a_matrix_by_its_rate():
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    optimizer = Muon([weight], lr=0.1)
    weight.grad = torch.eye(8) * 1e-6  # the size of the gradient does not matter
    optimizer.step()
    assert torch.allclose(weight.diagonal(), torch.full((8,), -0.1), atol=0.06)


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0])
def test_the_gradient_written_by_hand_is_that_of_the_loss(variation):
    torch.manual_seed(1)
    rows, states = torch.randn(30, 8), torch.randn(5, 8, requires_grad=True)
    p, q = torch.randn(5, 30).softmax(-1), (states @ rows.T).softmax(-1)
    loss = (1 - variation) * -(p * q.log()).sum() - variation * torch.minimum(p, q).sum()
    loss.backward()
    found = judge(states.detach(), (rows, rows.T), p, variation=variation)
    assert torch.allclose(found.gradient, states.grad, atol=1e-4)


def test_the_verdict_is_overlap_and_same_argmax():
    rows, p = torch.eye(4), torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    found = judge(torch.tensor([[0.25, 0.25, 0.4, 0.1]]).log(), (rows, rows.T), p, train=False)
    assert found.overlap == pytest.approx(0.25 + 0.25 + 0.15 + 0.05) and found.greedy == 0.0
    perfect = judge(p.log(), (rows, rows.T), p, train=False)
    assert perfect.overlap == pytest.approx(1.0, abs=1e-5) and perfect.greedy == 1.0
    assert perfect.cross_entropy == pytest.approx(-float((p * p.log()).sum()))


def test_the_plan_rises_deepens_and_falls_to_nothing():
    plan = Plan(minutes=10, steps=3)
    assert [plan.steps_at(f) for f in (0.0, 0.4, 0.5)] == [1, 1, 3]
    assert [plan.variation_at(f) for f in (0.5, 0.7)] == [0.0, 0.5]
    assert plan.rate_at(0) == pytest.approx(0.1) and plan.rate_at(0.2) == 1.0 and plan.rate_at(1.0) == 0.0
    assert plan.rate_at(0.8) == pytest.approx(0.2 / 0.65)


# Texts and features


def test_every_other_update_may_be_deep_until_the_rates_fall():
    plan = Plan(minutes=10, steps=2, deep_from=0.2, deep_every=2, decay_from=0.5)
    assert [plan.steps_at(0.4, update) for update in range(4)] == [2, 1, 2, 1] and plan.steps_at(0.1, 0) == 1
    assert [plan.steps_at(0.5, update) for update in range(3)] == [2, 2, 2]


def test_texts_come_back_as_they_were_saved(tmp_path):
    texts = [([1, 2, 3, 4, 5], 3, 0.0), ([1, 2, 9, 9, 0], 4, 1.0)]
    Corpus.of(texts).save(tmp_path / "text-000.npz")
    (tmp_path / "text-001.partial.npz").write_bytes(b"half")
    assert [path.name for path in text_files(tmp_path)] == ["text-000.npz"]
    corpus = Corpus.load(tmp_path / "text-000.npz")
    assert [corpus.text(i).tolist() for i in range(2)] == [[1, 2, 3, 4, 5], [1, 2, 9, 9, 0]]
    assert corpus.answer_tokens == 3 and corpus.common_beginning() == 2


def test_greedy_samples_are_what_the_model_generates(target):
    model, tokenizer = target
    sampler = TextSampler(model, tokenizer, slots=8, new_tokens=3, prompt_tokens=400, seed=2)
    saved = []
    sampler.run(enough=lambda count: count >= 60, save=saved.extend, every=4)
    assert sum(len(text.tokens) - text.prompt for text in saved) >= 50
    greedy = [text for text in saved if text.temperature == 0.0]
    assert greedy
    for text in greedy:
        for place in range(text.prompt, len(text.tokens)):
            assert text.tokens[place] == int(model(torch.tensor([text.tokens[:place]])).logits[0, -1].argmax())


def test_what_is_kept_while_sampling_is_what_a_pass_over_the_texts_would_give(target, tmp_path):
    model, tokenizer = target
    sampler = TextSampler(
        model, tokenizer, slots=4, new_tokens=6, prompt_tokens=300, seed=3, taps=(1, 3), shares={"form": 1.0}
    )
    saved = []
    sampler.run(enough=lambda count: count >= 40, save=saved.extend, every=4)
    corpus = Corpus.of([(text.tokens, text.prompt, text.temperature) for text in saved])
    stores = [FeatureStore(tmp_path / name, corpus, width=32, taps=(1, 3)) for name in ("kept", "made")]
    take_over(stores[0], [text.kept for text in saved], sampler.run_of_target.beginning_features[0])
    extract(model, stores[1])
    assert stores[0].done == stores[1].done == len(saved)
    assert torch.allclose(stores[0].meta["beginning"].float(), stores[1].meta["beginning"].float(), atol=1e-3)
    every = np.setdiff1d(np.arange(stores[0].offset[-1]), stores[0].offset[1:] - 1)  # but the last token of each
    assert np.allclose(stores[0].features[every].astype(float), stores[1].features[every].astype(float), atol=4e-3)


def test_the_target_asks_itself_and_no_held_out_question_is_kept(target, monkeypatch):
    model, tokenizer = target
    sampler = TextSampler(model, tokenizer, slots=6, new_tokens=4, prompt_tokens=80, seed=1, shares={"own": 1.0})
    turns = [tokenizer(text)["input_ids"] + [sampler.eos] for text in ("Why is it cold?", "Where do foxes sleep?", "Hm")]
    heard = []

    def draw(logits, hot):
        heard.append(hot.tolist())
        found = []
        for slot, text in enumerate(sampler.texts):
            written = text.tokens[len(sampler.beginning) :]
            turn = turns[slot % len(turns)]
            found.append(9 if text.prompt or len(written) >= len(turn) else turn[len(written)])
        return torch.tensor(found)

    monkeypatch.setattr(sampler, "_draw", draw)
    saved = []
    sampler.run(enough=lambda count: count >= 16, save=saved.extend, every=4)
    asked = {tokenizer.decode(text.tokens[len(sampler.beginning) : text.prompt - len(sampler.behind)]) for text in saved}
    assert asked == {"Why is it cold?"} and all(text.tokens[text.prompt :] == [9] * 4 for text in saved)
    assert all(text.tokens[text.prompt - len(sampler.behind) : text.prompt] == sampler.behind for text in saved)
    assert heard[0] == pytest.approx([0.9] * 6)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How tall can a sundial be?", True),
        ("Tell me about an ALLERGY to nuts", True),
        ("Tell me about allergies", True),
        ("Begin a mystery novel with my cat on the first page.", True),
        ("What is a knight?", False),
    ],
)
def test_questions_on_held_out_topics_or_in_held_out_forms_are_known(question, expected):
    assert prompts.held_out(question) is expected


@torch.no_grad()
def test_features_are_the_hidden_states_of_the_model(library, target):
    model, _ = target
    store, index = library.find(int(library.available()[0]))
    text, at = store.corpus.text(index), store.offset[index]
    out = model(torch.from_numpy(text)[None], output_hidden_states=True)
    first = out.hidden_states[1][0, store.common :]
    expected = first * torch.rsqrt(first.pow(2).mean(-1, keepdim=True))
    found = torch.from_numpy(store.features[at : at + len(expected), 0].astype(np.float32))
    assert torch.allclose(found, expected, atol=5e-3)
    last = torch.from_numpy(store.features[at : at + len(expected), 1].astype(np.float32)) * model.model.norm.weight
    assert torch.allclose(last, out.hidden_states[3][0, store.common :], atol=2e-2)


@torch.no_grad()
def test_what_a_drafter_is_compared_with_is_the_target_over_the_draft_vocabulary(library, target, tmp_path):
    model, _ = target
    trainer = linear_trainer(library, target, tmp_path / "run")  # its draft vocabulary is the even tokens
    number = library.available()[:1]
    store, index = library.find(int(number[0]))
    text, first = torch.from_numpy(store.corpus.text(index)), int(store.corpus.prompt[index]) - 1
    expected = model(text[None]).logits[0, first:-1, ::2].softmax(-1)
    assert torch.allclose(trainer.target(make_batch(library, number)), expected, atol=1e-4)


def test_features_of_texts_that_were_never_written_are_made_anew(target, tmp_path):
    """A process that dies between the two files leaves features for texts that the next one writes otherwise."""
    model, _ = target
    lost = Corpus.of([([1, 5, 6, 7 + i, 8, 9], 4, 0.0) for i in range(6)])
    extract(model, FeatureStore(tmp_path / "f", lost, width=32, taps=(1, 3)), group=2)
    corpus = Corpus.of([([1, 5, 6, 7 + i, 8], 4, 0.0) for i in range(4)])
    store = FeatureStore(tmp_path / "f", corpus, width=32, taps=(1, 3))
    assert store.done == 0 and sorted(store.order) == [0, 1, 2, 3]


def test_extraction_goes_on_where_it_stopped(target, tmp_path):
    model, _ = target
    corpus = Corpus.of([([1, 5, 6, 7 + i, 8, 9], 4, 0.0) for i in range(6)])
    store = FeatureStore(tmp_path / "f", corpus, width=32, taps=(1, 3))
    extract(model, store, group=2, enough=lambda: store.done >= 2)
    assert store.done == 2
    again = FeatureStore(tmp_path / "f", corpus, width=32, taps=(1, 3))
    before = again.features[again.offset[again.order[0]]].copy()
    assert again.done == 2 and before.any()
    extract(model, again, group=2)
    assert again.done == 6 and (again.features[again.offset[again.order[0]]] == before).all()
    assert again.features[:, 0].any(-1).all()


def test_the_vocabulary_holds_what_is_used_and_always_the_end(target):
    corpus = Corpus.of([([1, 5, 7, 7, 7, 9], 2, 0.0)])
    mean_p = np.zeros(20)
    mean_p[11] = 1.0
    assert choose_vocabulary(token_counts([corpus], 20), mean_p, size=4, always=[0]).tolist() == [0, 7, 9, 11]


def test_held_out_texts_are_not_trained_on(library):
    assert len(library.held_out()) == 2 and len(library.available()) == 10
    assert not set(library.held_out()) & set(library.available())


# Training


def linear_trainer(library, target, folder, minutes=1.0):
    """The smallest network there is: a matrix and a vector from the last tap to the state."""
    model, _ = target
    network = torch.nn.Linear(32, 32)
    torch.nn.init.zeros_(network.bias)
    with torch.no_grad():
        network.weight.copy_(torch.eye(32) * 0.1)
    rows = model.lm_head.weight.detach()[::2].contiguous()
    return Trainer(
        network,
        lambda batch, steps: [network(batch.taps[:, :, -1])],
        rows,
        model.model.norm.weight.detach(),
        folder,
        plan=Plan(minutes=minutes, rate=0.1, texts=4),
        with_taps=True,
    )


def test_training_brings_the_drafter_nearer_to_the_target(library, target, tmp_path):
    trainer = linear_trainer(library, target, tmp_path / "run")
    before = trainer.validate(library, steps=1)[0]["overlap"]
    trainer.spent = 10.0  # full rate
    for members, _ in zip(trainer.batches(library), range(30), strict=False):
        trainer.step(make_batch(library, members))
    assert trainer.validate(library, steps=1)[0]["overlap"] > before + 0.1


def test_a_stopped_training_goes_on_with_everything_it_had(library, target, tmp_path):
    first = linear_trainer(library, target, tmp_path / "run")
    for members, _ in zip(first.batches(library), range(3), strict=False):
        first.step(make_batch(library, members))
    first.spent = 12.5
    first.save()
    second = linear_trainer(library, target, tmp_path / "run")
    assert (second.spent, second.updates, second.seen) == (12.5, 3, first.seen)
    assert torch.equal(second.network.weight, first.network.weight)
    members = np.sort(library.available())[:4]
    for trainer in (first, second):
        trainer.step(make_batch(library, members))
    assert torch.allclose(first.network.weight, second.network.weight, atol=1e-7)


def test_a_run_ends_with_its_minutes_and_leaves_a_learning_curve(library, target, tmp_path):
    trainer = linear_trainer(library, target, tmp_path / "run", minutes=0.01)
    lines = []
    trainer.run(library, every=0.2, say=lines.append)
    assert trainer.fraction >= 1 and lines and "min left" in lines[0]
    assert trainer.log.read_text().count('"held_out"') == len(lines)


@pytest.mark.parametrize("drafter", ["head", pytest.param("draft", marks=pytest.mark.slow)])
def test_all_the_way_from_nothing_to_figures_and_on_from_there(target, tmp_path, capsys, drafter):
    from specdec.train import main

    model, tokenizer = target
    model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    command = [
        "--drafter",
        drafter,
        "--minutes",
        "0.05",
        "--target",
        str(tmp_path / "target"),
        "--folder",
        str(tmp_path / "work"),
        "--device",
        "cpu",
    ]
    command += [
        "--out",
        str(tmp_path / "out"),
        "--tokens",
        "500",
        "--slots",
        "8",
        "--vocabulary",
        "200",
        "--prompts",
        "1",
        "--threads",
        "1",
    ]
    assert main(command) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"{drafter}.results.json", f"{drafter}.safetensors"]
    said = capsys.readouterr().out
    assert "sampling" in said and "training on" in said and "| 0 |" in said and "| 1 |" in said
    texts = sorted((tmp_path / "work").glob("text-*.npz"))
    assert main(command) == 0
    assert sorted((tmp_path / "work").glob("text-*.npz")) == texts  # enough text was there
    assert "going on after" in capsys.readouterr().out


def test_a_draft_model_that_grows_says_at_first_what_it_said(target, tmp_path):
    from types import SimpleNamespace

    from specdec.training.networks import go_on_from, make_network, write_weights

    model, _ = target
    vocabulary, small = np.arange(40), make_network("draft", model, (1,), layers=2).eval()
    with torch.no_grad():
        for weight in small.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    path = write_weights(small, vocabulary, model, tmp_path / "draft.safetensors", kind="draft")
    large = make_network("draft", model, (1,), layers=4).eval()
    go_on_from(large, SimpleNamespace(start=path, drafter="draft", folder=tmp_path), model, vocabulary)
    tokens, common = torch.randn(2, 7, 32), torch.randn(3, 32)
    for one in (small, large):
        one.half().float()  # as stored
    assert torch.allclose(large(tokens, common), small(tokens, common), atol=1e-4)
    assert all(float(layer.gate_up.weight.detach().abs().sum()) > 0 for layer in large.layers)  # the new ones are no dead ends
    with pytest.raises(SettingsError, match="has another shape"):
        go_on_from(make_network("draft", model, (1,), layers=1), SimpleNamespace(start=path, drafter="draft", folder=tmp_path), model, vocabulary)


def test_values_are_left_out_in_training_only(target):
    from specdec.training.networks import make_network

    network = make_network("draft", target[0], (1,))
    tokens, common = torch.randn(1, 5, 32), torch.randn(2, 32)
    whole = network(tokens, common)
    network.drop = 0.5
    assert not torch.allclose(network(tokens, common), whole)
    network.eval()
    assert torch.equal(network(tokens, common), whole)


def test_a_checkpoint_of_another_network_is_told(library, target, tmp_path):
    linear_trainer(library, target, tmp_path / "run").save()
    with pytest.raises(SettingsError, match="checkpoint.pt"):
        Trainer(torch.nn.Linear(32, 31), None, torch.zeros(3, 32), torch.ones(32), tmp_path / "run", plan=Plan(minutes=1), with_taps=True)


def test_the_taps_of_the_embedded_target():
    assert taps_for(30) == TAPS == (3, 14, 24, 30)
    assert taps_for(3) == (1, 2, 3) and taps_for(1) == (1,)


def test_a_start_that_cannot_be_used_is_told_before_hours_of_sampling(target, tmp_path, capsys, monkeypatch):
    from specdec import train

    model, tokenizer = target
    model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    monkeypatch.setattr(train, "_sample", lambda *_: pytest.fail("sampled"))
    places = ["--target", str(tmp_path / "target"), "--folder", str(tmp_path / "work"), "--device", "cpu"]
    assert train.main(["--drafter", "head", "--start", str(tmp_path / "nowhere.safetensors"), *places]) == 2
    assert "nowhere.safetensors are missing" in capsys.readouterr().err


def test_the_command_says_what_is_wrong_in_one_line(capsys):
    from specdec.train import main

    assert main(["--drafter", "head", "--minutes", "-1"]) == 2
    assert "--minutes -1" in capsys.readouterr().err
