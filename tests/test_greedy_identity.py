"""Greedy speculative decoding writes what the target alone writes, token for token, for any drafter, draft length and seed.

The real pair: 20 prompts, γ from 1 to 8, every drafter that it offers. By default each prompt meets one drafter with one γ, so that
every drafter and every γ has its turn; the whole matrix is marked slow. Passes of different shapes round differently (about 1e-4 of a
logit here), so a text on which the two best tokens come closer than that could differ legitimately. No prompt below has such a
place, which is checked: a difference is a mistake.
"""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, a, build, related_pair
from tiny import make_tokenizer

from specdec import Settings
from specdec.decoding import generate, plain
from specdec.models import make_pair

NEW_TOKENS = 24
SMALLEST_GAP = 5e-3  # between the two best logits of any place in the texts
PROMPTS = (
    "Why is the sky blue?",
    "Write a haiku about autumn.",
    "What is 17 times 23? Think step by step.",
    "List the planets of the solar system.",
    "Translate to French: The cat sleeps on the sofa.",
    "Summarise this: The cat sat on the mat. The cat sat on the hat. The cat sat.",
    "Write a Python function that reverses a list.",
    "Explain photosynthesis to a child.",
    "Repeat this exactly: one two three one two three one two three.",
    "Who wrote Romeo and Juliet?",
    "Was ist die Hauptstadt von Frankreich?",
    "Say hello with five emoji.",
    "What should I cook tonight?",
)
RAW_PROMPTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 2, 3, 4, 5, 6,",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "<ul>\n<li>apple</li>\n<li>banana</li>\n<li>",
    "Dear Sir or Madam,\n",
    '{"name": "Ada", "age": 36}\n{"name": "',
    "x",
)
TEXTS = [(prompt, False) for prompt in PROMPTS] + [(prompt, True) for prompt in RAW_PROMPTS]
texts = pytest.mark.parametrize("number", range(len(TEXTS)), ids=[prompt[:24] for prompt, _ in TEXTS])


def settings_of(number: int, **changes) -> tuple[str, Settings]:
    prompt, raw = TEXTS[number]
    return prompt, Settings(temperature=0.0, raw=raw, max_new_tokens=NEW_TOKENS, **changes)


def gaps(pair, prompt_ids, output_ids) -> torch.Tensor:
    """By how much the best logit leads, at each place of the output; one pass over the whole text."""
    logits = pair.target.open().forward([*prompt_ids, *output_ids][:-1], keep=len(output_ids))
    best = logits.topk(2).values
    return best[:, 0] - best[:, 1]


def assert_identical(found, wanted, pair, *, what: str) -> None:
    """Fails with the place of the first difference and how close the two tokens were there."""
    found, right = list(found), list(wanted.output_ids)
    if found != right:
        place = next((i for i, (a, b) in enumerate(zip(found, right, strict=False)) if a != b), min(len(found), len(right)))
        here, there = found[place : place + 1], right[place : place + 1]
        gap = gaps(pair, wanted.prompt_ids, right)[place : place + 1].tolist()
        pytest.fail(f"{what}: token {place} is {here}, the target alone writes {there}; its best logit leads by {gap} there")


# Small random models of many families


@pytest.fixture(scope="module", params=FAMILIES)
def family_pair(request):
    tokenizer = make_tokenizer()
    size = len(tokenizer)
    target, draft = build(request.param, vocab_size=size), build("llama", vocab_size=size, seed=1)
    return make_pair(target, tokenizer, draft=draft, title=request.param, measure=False), target


@pytest.mark.parametrize("draft_length", [1, 4, 8])
def test_greedy_output_of_every_family_is_that_of_plain_decoding(family_pair, draft_length):
    pair, _ = family_pair
    assert {"draft", "lookup"} <= set(pair.drafters)
    settings = Settings(draft_length=draft_length, raw=True, max_new_tokens=24, seed=draft_length)
    wanted = plain(pair, "abcabcabc abc", settings)
    for drafter in pair.drafters:
        found = generate(pair, "abcabcabc abc", settings.replace(drafter=drafter))
        assert_identical(found.output_ids, wanted, pair, what=f"{pair.title}, {drafter}, γ = {draft_length}")
        assert found.finish_reason == wanted.finish_reason


def test_plain_output_of_every_family_is_that_of_transformers(family_pair):
    pair, model = family_pair
    trace = plain(pair, "The ", Settings(raw=True, max_new_tokens=40))
    assert_identical(from_transformers(model, pair, trace.prompt_ids, 40), trace, pair, what=pair.title)


@torch.inference_mode()
def from_transformers(model, pair, prompt_ids, length: int) -> list[int]:
    """What `generate` writes on the same weights."""
    ids = torch.tensor([list(prompt_ids)])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=length,
        eos_token_id=sorted(pair.eos_ids),
        pad_token_id=0,
        repetition_penalty=1.0,
    )
    return out[0, len(prompt_ids) :].tolist()


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_a_rotary_embedding_that_changes_with_the_length_of_the_text_does_no_harm(kind):
    """Once a text is longer than 32 tokens, it turns by other angles. A pass that crosses the line turns all its tokens by the new
    ones, so what is in the cache would depend on how the text was cut into passes: the text ends there."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tokenizer = make_tokenizer()
        rotary = {"rope_type": kind, "rope_theta": 1e4}
        if kind == "longrope":
            rotary |= {"short_factor": [1.0] * 6, "long_factor": [4.0] * 6, "original_max_position_embeddings": 32}
            sizes = {"vocab_size": len(tokenizer), "original_max_position_embeddings": 32}
            model = a("Phi3", "head_dim", rope_parameters=rotary, **sizes).eval()
        else:
            rotary |= {"factor": 2.0}
            model = a("Llama", rope_parameters=rotary, vocab_size=len(tokenizer), max_position_embeddings=32).eval()
    pair = make_pair(model, tokenizer, measure=False)
    assert pair.context == 32
    prompt = "The cat sat on the mat"
    wanted = plain(pair, prompt, Settings(raw=True, max_new_tokens=30))
    assert wanted.finish_reason == "context" and len(wanted.prompt_ids) + len(wanted.output_ids) == 32
    assert_identical(from_transformers(model, pair, wanted.prompt_ids, len(wanted.output_ids)), wanted, pair, what=kind)
    for draft_length in (1, 4, 8):
        settings = Settings(drafter="lookup", draft_length=draft_length, raw=True, max_new_tokens=30)
        assert_identical(generate(pair, prompt, settings).output_ids, wanted, pair, what=f"{kind}, γ = {draft_length}")


@pytest.mark.parametrize("draft_length", range(1, 9))
def test_greedy_output_with_a_draft_that_is_often_right(draft_length):
    """Random drafts are hardly ever right; this one is a noisy copy of the target."""
    pair = related_pair()
    accepted = rejected = bonuses = 0
    for prompt in ("abcabcabc abc", "The ", "x"):
        settings = Settings(drafter="draft", draft_length=draft_length, raw=True, max_new_tokens=60)
        found, wanted = generate(pair, prompt, settings), plain(pair, prompt, settings)
        assert_identical(found.output_ids, wanted, pair, what=f"γ = {draft_length}")
        accepted, rejected = accepted + found.totals.accepted, rejected + found.totals.rejected
        bonuses += found.totals.bonuses
    assert min(accepted, rejected, bonuses) > 0


# The real pair


@pytest.fixture(scope="module")
def plain_texts(embedded_pair):
    """number of a text -> the target's own trace, made once."""
    made = {}

    def of(number: int):
        if number not in made:
            prompt, settings = settings_of(number)
            made[number] = plain(embedded_pair, prompt, settings, record=False)
        return made[number]

    return of


def assert_greedy_identity(pair, wanted, number: int, drafter: str, draft_length: int) -> None:
    prompt, settings = settings_of(number, drafter=drafter, draft_length=draft_length, seed=number)
    found = generate(pair, prompt, settings, record=False)
    assert_identical(found.output_ids, wanted, pair, what=f"{prompt!r}, {drafter}, γ = {draft_length}")
    assert (found.finish_reason, found.output_text) == (wanted.finish_reason, wanted.output_text)
    assert max(len(r.drafts) for r in found.rounds) <= draft_length


@texts
def test_no_place_in_the_texts_is_a_tie_and_the_eager_model_of_transformers_agrees(embedded_pair, stock_model, plain_texts, number):
    """Cached passes of one token, one pass over everything, and transformers' own model: the same best token everywhere."""
    trace = plain_texts(number)
    assert gaps(embedded_pair, trace.prompt_ids, trace.output_ids).min() > SMALLEST_GAP
    ids = torch.tensor([[*trace.prompt_ids, *trace.output_ids]])
    with torch.inference_mode():
        logits = stock_model(input_ids=ids[:, :-1], logits_to_keep=len(trace.output_ids)).logits[0]
    assert logits.argmax(-1).tolist() == list(trace.output_ids)
    assert trace.finish_reason == ("eos" if trace.output_ids[-1] in embedded_pair.eos_ids else "length")


@texts
def test_the_real_pair_writes_what_the_target_alone_writes(embedded_pair, plain_texts, number):
    """The drafters and γ from 1 to 8 in turn."""
    drafters = embedded_pair.drafters
    drafter, draft_length = drafters[number % len(drafters)], 1 + 3 * number % 8
    assert_greedy_identity(embedded_pair, plain_texts(number), number, drafter, draft_length)


@pytest.mark.slow
@pytest.mark.parametrize("draft_length", range(1, 9))
@pytest.mark.parametrize("drafter", ["head", "head-lookup", "draft", "early-exit", "lookup"])
def test_the_whole_matrix(embedded_pair, plain_texts, drafter, draft_length):
    if drafter not in embedded_pair.drafters:
        pytest.skip(f"the embedded pair does not offer {drafter!r}")
    for number in range(len(TEXTS)):
        assert_greedy_identity(embedded_pair, plain_texts(number), number, drafter, draft_length)


@pytest.fixture(scope="module")
def stock_model(embedded_folder):
    """transformers' own model of the embedded target, from the same file."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(embedded_folder, dtype=torch.float32, local_files_only=True).eval()


@pytest.mark.parametrize("number", [0, 5, 13])
def test_generate_of_transformers_writes_the_same_text(embedded_pair, stock_model, plain_texts, number):
    trace = plain_texts(number)
    found = from_transformers(stock_model, embedded_pair, trace.prompt_ids, NEW_TOKENS)
    assert_identical(found, trace, embedded_pair, what="transformers' generate")


@pytest.mark.slow
@texts
def test_generate_of_transformers_writes_all_the_same_texts(embedded_pair, stock_model, plain_texts, number):
    test_generate_of_transformers_writes_the_same_text(embedded_pair, stock_model, plain_texts, number)
