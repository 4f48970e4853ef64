"""The attached head and the trained draft model: drafting computes what training computes, the result stays that of the target,
and a weight file that is damaged or foreign is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec import kernels
from specdec.attached import DRAFT_FILE, FOLDER, HEAD_FILE, with_trained_drafters
from specdec.decoding import generate, plain, stream
from specdec.draft_runner import SmallDraftRunner, load_draft
from specdec.drafters import Request, find_continuation
from specdec.errors import ModelError, PairError
from specdec.head import AttachedHead, HeadShape
from specdec.head_drafter import AttachedHeadRunner, HeadSequence, load_head
from specdec.head_lookup import HeadOrLookup
from specdec.models import make_pair
from specdec.reduced import ReducedVocabulary, TargetTables, save_drafter
from specdec.runner import Runner
from specdec.sampling import Draws, SamplingRule
from specdec.small_draft import DraftShape, SmallDraft
from specdec.trace import Settings
from tests.tiny import make_model, make_tokenizer

HEAD = HeadShape(width=32, heads=4, groups=2, inner=48, taps=(1, 3), theta=10_000.0)
DRAFT = DraftShape(layers=2, width=32, heads=4, groups=2, inner=48, theta=10_000.0)


@pytest.fixture(autouse=True)
def one_thread():
    """Models of width 32 gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def scrambled(network, seed=0):
    """Every weight random, gains included, so that none of them can be forgotten unnoticed."""
    torch.manual_seed(seed)
    for weight in network.parameters():
        weight.data = torch.rand_like(weight) + 0.5 if weight.ndim == 1 else torch.randn_like(weight) * weight.shape[1] ** -0.5
    return network.eval()


@pytest.fixture(scope="module")
def model():
    """A random Llama of 3 layers whose output rows are its embedding."""
    model = make_model(vocabulary=len(make_tokenizer()), layers=3)
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    model.model.norm.weight.data = torch.rand(32) + 0.5
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Weight files of a random head and a random draft model; two tokens of three can be drafted."""
    folder = tmp_path_factory.mktemp("drafters")
    embedding = model.get_input_embeddings().weight
    ids = torch.tensor([i for i in range(len(embedding)) if i % 3])
    for kind, shape, network in (("head", HEAD, AttachedHead(HEAD)), ("draft", DRAFT, SmallDraft(DRAFT))):
        weights = scrambled(network).state_dict()
        save_drafter(
            folder / f"{kind}.safetensors",
            kind=kind,
            shape=dataclasses.asdict(shape),
            vocabulary=ids,
            weights=weights,
            embedding=embedding,
        )
    return folder


@pytest.fixture(scope="module")
def pair(model, folder):
    return with_trained_drafters(make_pair(model, make_tokenizer(), measure=False), folder)


def tables_of(width=32, size=90):
    torch.manual_seed(3)
    return TargetTables(torch.randn(size, width), torch.rand(width) + 0.5, 3, 64)


# Training and drafting compute the same


@pytest.fixture
def unrounded(monkeypatch):
    """Drafters over float32 weights, to be compared with the training."""
    for place in ("head_drafter", "draft_runner"):
        monkeypatch.setattr(f"specdec.{place}.drafting", lambda weight: lambda x: x @ weight.T)


@pytest.mark.parametrize("kind", ["half", "without half"])
@torch.no_grad()
def test_a_drafter_multiplies_with_its_weights_in_16_bits(monkeypatch, kind):
    torch.manual_seed(2)
    if kind == "without half":

        def missing(weight):
            raise RuntimeError("this build of torch has no such product")

        monkeypatch.setattr(kernels, "_float16", missing)
    weight, x = torch.randn(48, 64), torch.randn(5, 64)
    product = kernels.drafting(weight)
    assert torch.allclose(product(x), x @ weight.half().float().T, atol=1e-4)
    assert not torch.allclose(product(x), x @ weight.T, atol=1e-4)
    assert torch.allclose(torch.cat([product(row[None]) for row in x]), product(x), atol=1e-5)


@pytest.mark.parametrize("newest", [5, 6, 9])
@torch.no_grad()
def test_drafting_step_by_step_is_the_roll_out_of_the_training(unrounded, newest):
    tables, head = tables_of(), scrambled(AttachedHead(HEAD))
    ids, count, shared = torch.arange(0, 90, 2), 12, 4
    hidden, tokens = torch.randn(count, 2, 32), torch.randint(0, 90, (count,))
    taps = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
    hidden[:, 1] = taps[:, 1] * tables.final_gain  # what the target shows of its last layer
    outputs = head.roll_out(
        taps[None, shared:],
        tables.embedding[tokens[shared:]][None],
        common_taps=taps[:shared],
        common_tokens=tables.embedding[tokens[:shared]],
        steps=3,
    )
    expected = [head.state(output)[0] @ tables.embedding[ids].T for output in outputs]

    runner = AttachedHeadRunner(head, tables, ids)
    sequence = HeadSequence(runner, capacity=4)  # has to grow
    features = runner.features(hidden[:newest])
    sequence.forward(features[:2], tokens[1:3].tolist())
    feature = sequence.forward(features[2:], tokens[3 : newest + 1].tolist())
    assert torch.allclose(runner.logits(feature)[0], expected[0][newest - shared], atol=1e-4)
    for step in (1, 2):
        feature = sequence.forward(feature, [int(tokens[newest + step])])
        assert torch.allclose(runner.logits(feature)[0], expected[step][newest + step - shared], atol=1e-4)


@torch.no_grad()
def test_the_draft_model_answers_token_by_token_as_in_training_and_rolls_back(unrounded):
    tables, network = tables_of(), scrambled(SmallDraft(DRAFT))
    ids, tokens = torch.arange(1, 90, 2), torch.randint(0, 90, (11,))
    expected = network(tables.embedding[tokens[4:]][None], tables.embedding[tokens[:4]])[0] @ tables.embedding[ids].T
    sequence = SmallDraftRunner(network, tables, ids).open()
    first = sequence.forward(tokens[:7].tolist())
    sequence.forward([1, 2], keep=1)
    sequence.crop(7)
    found = torch.cat([first, *(sequence.forward([int(token)]) for token in tokens[7:])])
    assert sequence.length == 11
    assert torch.allclose(found[4:, ids], expected, atol=1e-4)
    assert (found[:, ::2] == float("-inf")).all()


@torch.no_grad()
def test_the_roll_out_never_looks_ahead():
    head, tables = scrambled(AttachedHead(HEAD)), tables_of()
    taps, tokens = torch.randn(1, 8, 2, 32), torch.randn(1, 8, 32)
    common = {"common_taps": torch.randn(3, 2, 32), "common_tokens": torch.randn(3, 32)}
    before = head.roll_out(taps, tokens, **common, steps=3)
    changed_taps, changed_tokens = taps.clone(), tokens.clone()
    changed_taps[:, 4:] += 1.0  # position 4: read by slot 5 in step 1, by slot 6 in step 2 …
    changed_tokens[:, 6:] += 1.0
    after = head.roll_out(changed_taps, changed_tokens, **common, steps=3)
    for step, first in ((0, 5), (1, 6), (2, 6)):  # the first slot that may change; the token of slot 6 changes every step
        assert torch.equal(before[step][:, :first], after[step][:, :first])
        assert not torch.allclose(before[step][:, first], after[step][:, first])
    assert len(tables.embedding) == 90


@torch.no_grad()
def test_values_are_left_out_in_training_and_nowhere_else():
    head = scrambled(AttachedHead(HEAD))
    given = {"taps": torch.randn(1, 8, 2, 32), "tokens": torch.randn(1, 8, 32), "steps": 1}
    given |= {"common_taps": torch.randn(3, 2, 32), "common_tokens": torch.randn(3, 32)}
    (right,) = head.roll_out(**given)
    head.drop = 0.5
    assert torch.equal(head.roll_out(**given)[0], right)
    (first,), (second,) = head.train().roll_out(**given), head.roll_out(**given)
    assert not torch.allclose(first, second)


# In the real loop


@pytest.mark.parametrize("drafter", ["head", "head-lookup", "draft"])
@pytest.mark.parametrize("draft_length", [1, 4])
def test_greedy_output_is_that_of_the_target_alone(pair, drafter, draft_length):
    settings = Settings(temperature=0.0, draft_length=draft_length, max_new_tokens=24)
    for prompt in ("the", "a thin theatre", "?"):
        alone = plain(pair, prompt, settings)
        assert generate(pair, prompt, settings.replace(drafter=drafter)).output_ids == alone.output_ids


@pytest.mark.parametrize("drafter", ["head", "draft"])
@pytest.mark.parametrize("warp", [{}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9}])
def test_q_is_what_was_drawn_from_and_nothing_outside_the_draft_vocabulary(pair, drafter, warp):
    run = stream(
        pair, "the theatre", Settings(draft_length=3, max_new_tokens=16, drafter=drafter, seed=4, **({"temperature": 1.0} | warp))
    )
    proposals = []
    original = run.drafter.steps

    def steps(request: Request):
        state = request.draws._random.getstate()
        proposal = yield from original(request)
        proposals.append((state, proposal))
        return proposal

    run.drafter.steps = steps
    list(run)
    for state, proposal in proposals:
        again = Draws(0)
        again._random.setstate(state)
        for token, u, q in zip(proposal.ids, proposal.draw_us, proposal.q if proposal.q is not None else [], strict=True):
            assert q.sum() == pytest.approx(1.0, abs=1e-5) and q.shape == (pair.vocabulary,)
            assert (q[::3] == 0).all() and q[token] > 0
            assert again.pick(q) == (token, u)  # the same u picks the same token from the full q
            if "top_k" in warp:
                assert int((q > 0).sum()) <= warp["top_k"]
    assert sum(len(proposal.ids) for _, proposal in proposals) >= 12


@pytest.mark.parametrize("drafter", ["head", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_record_of_a_reduced_q_is_that_of_the_whole_q(pair, drafter, temperature):
    settings = Settings(temperature=temperature, draft_length=3, max_new_tokens=16, drafter=drafter, seed=2)

    def rounds(*, whole: bool):
        run = stream(pair, "the theatre", settings)
        original = run.drafter.steps

        def steps(request: Request):
            proposal = yield from original(request)
            assert proposal.columns is not None or not proposal.ids
            return dataclasses.replace(proposal, columns=None) if whole else proposal

        run.drafter.steps = steps
        return list(run)

    drafts = 0
    for narrow, whole in zip(rounds(whole=False), rounds(whole=True), strict=True):
        assert narrow.outcome == whole.outcome
        for a, b in zip(narrow.drafts, whole.drafts, strict=True):
            assert a.overlap == pytest.approx(b.overlap, abs=2e-6)  # the sum has another order
            assert dataclasses.replace(a, overlap=0.0) == dataclasses.replace(b, overlap=0.0) and a.top_q
            drafts += 1
    assert drafts >= 6


def test_the_head_keeps_committed_slots_only(pair):
    settings = Settings(temperature=1.0, draft_length=3, max_new_tokens=20, drafter="head", seed=1)
    run = stream(pair, "the theatre", settings)
    drafter = run.drafter
    list(run)
    committed = run.committed
    target = pair.target.open(hidden_layers=drafter.hidden_layers)
    target.forward(committed, keep=1)
    fresh = HeadSequence(drafter.runner)
    with torch.inference_mode():
        fresh.forward(drafter.runner.features(target.hidden[:-1]), committed[1:])
    length = drafter.sequence.length
    assert 0 < length < len(committed) and any(round_.accepted < len(round_.drafts) for round_ in run.rounds)
    assert torch.allclose(drafter.sequence._keys[:, :length], fresh._keys[:, :length], atol=1e-4)
    assert torch.allclose(drafter.sequence._values[:, :length], fresh._values[:, :length], atol=1e-4)


REPEATING = "one two three one two three one two"


def test_what_repeats_is_copied_and_the_rest_is_written_by_the_head(pair):
    settings = Settings(temperature=1.0, draft_length=3, max_new_tokens=40, drafter="head-lookup", seed=2, raw=True)
    run = stream(pair, REPEATING, settings)
    committed = [list(run.committed)]
    for _ in run:
        committed.append(list(run.committed))
    kinds = set()
    for round_, before in zip(run.rounds, committed, strict=False):
        expected = find_continuation(before, ngram=3, count=len(round_.drafts), least=2)
        kinds.add(round_.copied)
        if round_.copied:
            assert [draft.id for draft in round_.drafts] == expected
            assert all(draft.q == 1 and draft.draw_u is None and draft.top_q[0].id == draft.id for draft in round_.drafts)
        elif round_.drafts:
            assert not expected and all(draft.draw_u is not None for draft in round_.drafts)
    assert kinds == {True, False}


def test_the_head_reads_what_was_committed_while_others_copied(pair):
    """Its keys behind some copied rounds are those of a head that has read the text at once."""
    settings = Settings(temperature=1.0, draft_length=3, max_new_tokens=40, drafter="head-lookup", seed=2, raw=True)
    run = stream(pair, REPEATING, settings)
    drafter = run.drafter
    list(run)
    target = pair.target.open(hidden_layers=drafter.hidden_layers)
    target.forward(run.committed, keep=1)
    fresh, length = HeadSequence(drafter.runner), drafter.sequence.length
    with torch.inference_mode():
        fresh.forward(drafter.runner.features(target.hidden[:-1]), run.committed[1:])
    assert 0 < length and any(round_.copied for round_ in run.rounds)
    assert torch.allclose(drafter.sequence._keys[:, :length], fresh._keys[:, :length], atol=1e-4)


def test_copied_and_written_drafts_are_learnt_apart(pair):
    pair = dataclasses.replace(pair, experience={})
    settings = Settings(temperature=1.0, draft_length="auto", max_new_tokens=60, drafter="head-lookup", seed=2, raw=True)
    run = stream(pair, REPEATING, settings)
    list(run)
    learnt = {key[-1]: experience for key, experience in pair.experience.items()}
    assert set(learnt) == {"copied", "written"}
    for way, copied in (("copied", True), ("written", False)):
        rounds = [round_ for round_ in run.rounds if round_.drafts and round_.copied == copied]
        assert rounds and learnt[way].tried[0] == pytest.approx(len(rounds), rel=0.05)  # the older ones count a little less
        assert learnt[way].kept.get(0, 0) == pytest.approx(sum(round_.accepted > 0 for round_ in rounds), rel=0.05)


def test_a_single_repeated_token_is_not_copied_by_the_two_in_turn():
    tokens = [5, 6, 7, 5]
    assert find_continuation(tokens, ngram=3, count=2) == [6, 7]
    assert find_continuation(tokens, ngram=3, count=2, least=2) == []
    assert find_continuation([5, 6, 7, 5, 6], ngram=3, count=2, least=2) == [7, 5]


def test_both_ways_to_use_the_head_share_its_weights(pair):
    makers = pair.attached["head"], pair.attached["head-lookup"]
    assert makers[0].runner is makers[1].runner and makers[1](Settings(ngram=1)).ngram == 2
    assert pair.info("head-lookup").draft == pair.info("head").draft == "trained head"


def test_a_prompt_of_one_token_begins_without_a_draft(pair):
    settings = Settings(temperature=0.0, draft_length=3, max_new_tokens=8, raw=True, drafter="head")
    trace = generate(pair, "a", settings)
    assert len(trace.prompt_ids) == 1 and len(trace.rounds[0].drafts) == 0 and len(trace.rounds[1].drafts) == 3
    assert trace.output_ids == plain(pair, "a", settings).output_ids


def test_the_stock_runner_shows_the_head_the_same_states(pair, model, folder):
    eager = dataclasses.replace(pair, target=Runner(model), attached={}, draft=None)
    eager = with_trained_drafters(eager, folder)
    settings = Settings(temperature=0.0, draft_length=3, max_new_tokens=16, drafter="head")
    ids = [
        [draft.id for round_ in generate(each, "the theatre", settings).rounds for draft in round_.drafts]
        for each in (pair, eager)
    ]
    assert ids[0] == ids[1]


def test_the_pair_offers_the_trained_drafters_first(pair):
    assert pair.drafters[:3] == ("head", "head-lookup", "draft")
    head = pair.attached["head"]
    rows = 32 * len(head.runner.vocabulary)
    assert head.parameters == sum(weight.numel() for weight in AttachedHead(HEAD).parameters())
    # A step reads neither the fusing matrix nor, once they are folded in, the gains; but the output rows.
    assert head.parameters_read == head.parameters - 2 * 32 * 32 - 5 * 32 + rows
    assert pair.info("draft").draft_parameters == pair.draft.parameters_read


def test_without_weight_files_the_pair_stays_as_it_was(model, tmp_path):
    bare = make_pair(model, make_tokenizer(), measure=False)
    assert with_trained_drafters(bare, tmp_path).drafters == bare.drafters


def test_greedy_pick_is_the_argmax_and_q_is_left_out_unless_somebody_looks():
    reduced = ReducedVocabulary(torch.tensor([3, 7, 8]), 10)
    request = Request([], 1, SamplingRule(temperature=0.0), Draws(0), False, lambda: None)
    assert reduced.pick(torch.tensor([[0.1, 2.0, 0.3]]), request) == (7, None, None)
    assert reduced.spread(torch.tensor([[0.2, 0.5, 0.3]])).tolist()[0][7] == 0.5


# Weight files


@pytest.mark.parametrize(("kind", "load"), [("head", load_head), ("draft", load_draft)])
def test_a_missing_damaged_or_wrong_file_is_refused(pair, folder, tmp_path, kind, load):
    with pytest.raises(ModelError, match="missing"):
        load(tmp_path / "none.safetensors", pair.target)
    whole = (folder / f"{kind}.safetensors").read_bytes()
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="damaged"):
        load(damaged, pair.target)
    damaged.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])  # one bit
    with pytest.raises(ModelError, match="wrong check sum"):
        load(damaged, pair.target)
    other = folder / ("draft.safetensors" if kind == "head" else "head.safetensors")
    with pytest.raises(ModelError, match="give the other file"):
        load(other, pair.target)
    save_file(load_file(folder / f"{kind}.safetensors"), damaged)  # without what it says about itself
    with pytest.raises(ModelError, match="no drafter of this program"):
        load(damaged, pair.target)


@pytest.mark.parametrize(("kind", "load"), [("head", load_head), ("draft", load_draft)])
def test_a_file_of_another_target_is_refused(folder, kind, load):
    stranger = make_model(vocabulary=len(make_tokenizer()), layers=3, seed=5)
    stranger.config.tie_word_embeddings = True
    with pytest.raises(PairError, match="another target"):
        load(folder / f"{kind}.safetensors", Runner(stranger))


def test_a_target_with_two_matrices_is_refused(folder):
    with pytest.raises(PairError, match="two matrices"):
        load_head(folder / "head.safetensors", Runner(make_model(vocabulary=len(make_tokenizer()), layers=3)))


def test_a_copy_in_16_bits_is_the_same_target(model, folder):
    embedding = model.get_input_embeddings().weight.detach().bfloat16()
    tables = TargetTables(embedding, torch.ones(32), 3, 64)
    from specdec.reduced import read_drafter

    assert read_drafter(folder / "head.safetensors", kind="head", embedding=tables.embedding).kind == "head"


def test_the_shipped_weights_stay_within_their_limits():
    paths = [FOLDER / HEAD_FILE, FOLDER / DRAFT_FILE]
    assert sum(path.stat().st_size for path in paths) <= 45e6 and (FOLDER / "CARD.md").is_file()
    for path, limit in zip(paths, (10e6, 20e6), strict=True):
        tensors = load_file(path)
        vocabulary, rows = tensors.pop("vocabulary"), tensors.pop("target_rows")
        assert 2 in vocabulary.tolist()  # the end of a text can be drafted
        matrices = sum(w.numel() for name, w in tensors.items() if w.ndim == 2 and name != "fuse.weight")
        assert matrices + len(vocabulary) * rows.shape[1] <= limit  # what one draft step reads


def test_the_head_in_turn_with_look_up_stops_when_it_is_not_sure(pair, monkeypatch):
    """Each draft but the last leaves the product of q at the limit or above; the last one may fall below, and ends the round."""
    monkeypatch.setattr(HeadOrLookup, "least_sure", 1e-4)
    settings = Settings(temperature=1.0, draft_length=6, max_new_tokens=60, drafter="head-lookup", seed=5)
    rounds = [r for r in generate(pair, "the theatre", settings).rounds if r.drafts and not r.copied]
    lengths = [len(r.drafts) for r in rounds[:-3]]  # the last ones may be cut by the end of the run
    for round_ in rounds[:-3]:
        products = list(itertools.accumulate((draft.q for draft in round_.drafts), operator.mul))
        assert all(product >= 1e-4 for product in products[:-1])
        assert products[-1] < 1e-4 or len(round_.drafts) == 6
    assert min(lengths) < 6 and len(set(lengths)) > 1
