"""How the shipped drafters were made, repeatable: `python -m specdec.train --drafter head --minutes 120`.

Four steps share one folder, and each goes on where an earlier call stopped (Ctrl+C is a fine way to stop):
1. sample texts from the target, until there are enough tokens or a third of the time is over;
2. one pass of the target over those whose features were not kept as they were sampled (files from elsewhere), until all is done
   or almost half of the time is over; the draft vocabulary is chosen;
3. train on what is there, for the rest of the time;
4. decode the held-out prompts with the real loop, and write the weights.
On a CPU this takes hours; the code is written for CUDA as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec.errors import SettingsError, SpecdecError
from specdec.training.networks import go_on_from, layers_wanted, make_network, read_start, write_weights

SHARE_TEXT, SHARE_FEATURES = 0.33, 0.45  # of the minutes, each counted from the beginning
EXPECTED_EVALUATION_SECONDS = 120.0


def main(argv: list[str] | None = None) -> int:
    """Parse, train, write; returns the exit code of a process."""
    chosen = _parser().parse_args(argv)
    try:
        return train(chosen)
    except SpecdecError as error:
        print(f"specdec train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped. What is made is kept; the same command goes on.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec train", description="Train a drafter for the embedded target.")
    parser.add_argument(
        "--drafter", choices=("head", "draft"), required=True, help="the attached head, or the independent draft model"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="for all steps together (default 60)")
    parser.add_argument(
        "--folder", type=Path, help="texts, features and checkpoints (default: training in the cache folder of specdec)"
    )
    parser.add_argument("--out", type=Path, help="where the weights go (default assets/drafters)")
    parser.add_argument("--target", type=Path, help="folder of a converted target (default: the embedded one)")
    parser.add_argument(
        "--text", type=Path, action="append", default=[], help="a file of sampled texts to take in first (.npz); may be repeated"
    )
    parser.add_argument(
        "--tokens", type=int, default=500_000, help="sample until there are so many answer tokens (default 500,000)"
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=10_000,
        help="tokens that the drafter can propose (default 10,000); fixed by the first call",
    )
    parser.add_argument(
        "--start", type=Path, help="a weight file to go on from, for instance the shipped one; its vocabulary is taken too"
    )
    parser.add_argument(
        "--layers", type=int, choices=(2, 3, 4), help="of the draft model (default: as many as --start has, else 3)"
    )
    parser.add_argument("--steps", type=int, default=3, help="roll-out steps in the training of the head (default 3)")
    parser.add_argument(
        "--rate", type=float, help="largest step of the matrices (default 0.03)"
    )
    parser.add_argument("--slots", type=int, default=128, help="texts sampled at once (default 128)")
    parser.add_argument("--prompts", type=int, default=40, help="held-out prompts for the final figures, 0 for none (default 40)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: what torch takes)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    return parser


def say(text: str) -> None:
    """One line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


class Every:
    """Says a line at most every so many seconds."""

    def __init__(self, seconds: float = 20.0):
        self.seconds, self._last = seconds, 0.0

    def __call__(self, text: Callable[[], str]) -> None:
        if time.monotonic() - self._last >= self.seconds:
            self._last = time.monotonic()
            say(text())


def train(chosen: argparse.Namespace) -> int:
    """All steps; see the head of this module."""
    if chosen.rate is not None and not 0 < chosen.rate <= 0.2:
        raise SettingsError(
            f"--rate {chosen.rate:g} is not between 0 and 0.2: 0.03 is usual, half of it to go on from good weights."
        )
    if not 0 < chosen.minutes < 10_000:
        raise SettingsError(f"--minutes {chosen.minutes:g} is not between 0 and 10,000: give the time that training may take.")
    import torch

    from specdec.devices import choose_device
    from specdec.fetch import fetch_embedded
    from specdec.loading import load_model, load_tokenizer
    from specdec.store import home
    from specdec.training.prompts import check_disjoint

    check_disjoint()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    begun = time.monotonic()
    folder = chosen.folder or home() / "training"
    folder.mkdir(parents=True, exist_ok=True)
    place = chosen.target or fetch_embedded()
    model = load_model(place, name="the target", device=choose_device(chosen.device), dtype="float32")
    tokenizer = load_tokenizer(place)

    if chosen.start:
        read_start(chosen, model)  # what is wrong with it is said before the hours of sampling

    def over(share: float) -> bool:
        return time.monotonic() - begun > 60 * chosen.minutes * share

    _take_in(folder, chosen.text)
    _sample(folder, model, tokenizer, chosen, over)
    stores, vocabulary = _features(folder, model, chosen, over)
    left = chosen.minutes - (time.monotonic() - begun) / 60 - (EXPECTED_EVALUATION_SECONDS / 60 if chosen.prompts else 0)
    trainer = _train(folder, model, stores, vocabulary, chosen, minutes=max(0.2, left))
    out = chosen.out or Path(__file__).resolve().parent.parent / "assets" / "drafters"
    path = write_weights(trainer.network, vocabulary, model, out / f"{chosen.drafter}.safetensors", kind=chosen.drafter)
    say(f"{path} has {path.stat().st_size / 1e6:.1f} MB")
    if chosen.prompts:
        _evaluate(model, tokenizer, out, chosen)
    return 0


def _take_in(folder: Path, files: list[Path]) -> None:
    """Copy text files that were sampled elsewhere; the same file twice is taken once."""
    from specdec.training.corpus import text_files

    for file in files:
        if not file.is_file():
            raise SettingsError(f"--text {file} does not exist: give a file that a sampler wrote.")
        if not any(old.stat().st_size == file.stat().st_size for old in text_files(folder)):
            shutil.copyfile(file, folder / f"text-{len(text_files(folder)):03d}.npz")


def _sample(folder: Path, model: Any, tokenizer: Any, chosen: argparse.Namespace, over: Callable[[float], bool]) -> None:
    from specdec.training.corpus import Corpus, text_files
    from specdec.training.features import FeatureStore, take_over, taps_for
    from specdec.training.sampler import Sampled, TextSampler

    have = sum(Corpus.load(path).answer_tokens for path in text_files(folder))
    if have >= chosen.tokens:
        say(f"{have:,} tokens of text are there")
        return
    files, often, taps = len(text_files(folder)), Every(), taps_for(model.config.num_hidden_layers)
    sampler = TextSampler(model, tokenizer, slots=chosen.slots, seed=files, taps=taps)

    def save(texts: list[Sampled]) -> None:
        nonlocal files
        corpus = Corpus.of([(text.tokens, text.prompt, text.temperature) for text in texts])
        # Before the file of texts appears: it is never written twice.
        store = FeatureStore(folder / f"features-{files:03d}", corpus, width=model.config.hidden_size, taps=taps)
        take_over(store, [text.kept for text in texts], sampler.run_of_target.beginning_features[0])
        corpus.save(folder / f"text-{files:03d}.npz")
        files += 1

    def progress(count: int, rate: float) -> None:
        minutes = (chosen.tokens - have - count) / max(rate, 0.1) / 60  # no new token yet while the first prompts are read
        often(lambda: f"sampling: {have + count:,} of {chosen.tokens:,} tokens, {rate:.0f} a second, about {minutes:.0f} min left")

    sampler.run(
        enough=lambda count: have + count >= chosen.tokens or (over(SHARE_TEXT) and have + count > 2_000),
        save=save,
        every=256,
        progress=progress,
    )


def _known_vocabulary(folder: Path, model: Any, chosen: argparse.Namespace) -> Any:
    """The draft vocabulary that an earlier call or the file of `--start` has fixed, or None."""
    import numpy as np

    path = folder / "vocabulary.npy"
    if not path.exists() and chosen.start:
        np.save(path, read_start(chosen, model).vocabulary.numpy())
    return np.load(path) if path.exists() else None


def _features(folder: Path, model: Any, chosen: argparse.Namespace, over: Callable[[float], bool]) -> tuple[list[Any], Any]:
    import numpy as np

    from specdec.training.corpus import Corpus, text_files
    from specdec.training.features import FeatureStore, choose_vocabulary, extract, mean_distribution, taps_for, token_counts

    corpora = [Corpus.load(path) for path in text_files(folder)]
    if (vocabulary := _known_vocabulary(folder, model, chosen)) is None:
        say("choosing the draft vocabulary")
        rows = len(model.lm_head.weight)
        vocabulary = choose_vocabulary(
            token_counts(corpora, rows), mean_distribution(model, corpora[0]), size=min(chosen.vocabulary, rows), always=[0, 1, 2]
        )
        np.save(folder / "vocabulary.npy", vocabulary)
    stores: list[Any] = []
    for number, corpus in enumerate(corpora):
        taps = taps_for(model.config.num_hidden_layers)
        store = FeatureStore(folder / f"features-{number:03d}", corpus, width=model.config.hidden_size, taps=taps)

        def enough(store: FeatureStore = store) -> bool:
            return over(SHARE_FEATURES) and (bool(stores) or store.done >= 32)

        extract(model, store, enough=enough, progress=_feature_progress(number, len(corpora), store.done))
        if store.done:
            stores.append(store)
    return stores, vocabulary


def _feature_progress(number: int, files: int, first: int) -> Callable[[int, int], None]:
    """Progress of one file of texts, of which `first` were done before."""
    begun, often = time.monotonic(), Every()

    def progress(done: int, total: int) -> None:
        minutes = (time.monotonic() - begun) / max(1, done - first) * (total - done) / 60
        often(lambda: f"features: file {number + 1} of {files}, {done} of {total} texts, about {minutes:.0f} min left for it")

    return progress


def _train(folder: Path, model: Any, stores: list[Any], vocabulary: Any, chosen: argparse.Namespace, *, minutes: float) -> Any:
    import torch

    from specdec.training.features import Library
    from specdec.training.recipe import Batch, Plan, Trainer

    library = Library(stores)
    embedding = model.get_input_embeddings().weight.detach()
    network = make_network(chosen.drafter, model, stores[0].taps, layers_wanted(chosen, model))
    common_taps = stores[0].meta["beginning"].float().to(model.device)
    common = embedding[torch.from_numpy(stores[0].corpus.text(0)[: stores[0].common]).to(model.device)]

    def head_states(batch: Batch, steps: int) -> list[torch.Tensor]:
        features = network.roll_out(batch.taps, embedding[batch.ids], common_taps=common_taps, common_tokens=common, steps=steps)
        return [network.state(feature) for feature in features]

    def draft_states(batch: Batch, steps: int) -> list[torch.Tensor]:
        return [network(embedding[batch.ids], common)]

    is_head = chosen.drafter == "head"
    # Muon takes as long as the passes over eight texts; a draft model's many matrices are worth a larger share of passes.
    plan = Plan(minutes=minutes, steps=chosen.steps if is_head else 1, rate=chosen.rate or 0.03, texts=6 if is_head else 16)
    if chosen.start:  # what the first, cheaper half of a training is for has been learnt
        go_on_from(network, chosen, model, vocabulary, say=say)
        plan = dataclasses.replace(plan, deep_from=0.0, variation_from=0.3, deep_every=2, drop=0.1)
    rows = embedding[torch.from_numpy(vocabulary).to(model.device)].contiguous()
    trainer = Trainer(
        network,
        head_states if is_head else draft_states,
        rows,
        model.model.norm.weight.detach(),
        folder / chosen.drafter,
        plan=plan,
        with_taps=is_head,
    )
    if trainer.spent:  # an earlier call: its weights are the start of another, shorter schedule
        say(f"going on after {trainer.spent / 60:.0f} minutes and {trainer.seen:,} tokens of training")
        trainer.plan = dataclasses.replace(plan, minutes=minutes + trainer.spent / 60)
    say(f"training on {len(library.available())} texts, about {minutes:.0f} min")
    trainer.run(library, validate_steps=4 if is_head else 1, say=say)
    return trainer


def _evaluate(model: Any, tokenizer: Any, out: Path, chosen: argparse.Namespace) -> None:
    """The figures of the card, from the real loop on prompts of other topics and other forms."""
    from specdec.attached import with_trained_drafters
    from specdec.models import make_pair
    from specdec.training.evaluate import evaluate

    pair = with_trained_drafters(make_pair(model, tokenizer, measure=False, title="the target"), out)
    results = []
    for temperature in (0.0, 1.0):
        say(f"decoding {chosen.prompts} held-out prompts at temperature {temperature:g}")
        result = evaluate(pair, chosen.drafter, temperature=temperature, prompts=chosen.prompts)
        say(result.line())
        rates = {"acceptance_rate": result.acceptance_rate, "mean_acceptance_length": result.mean_acceptance_length}
        results.append(dataclasses.asdict(result) | rates)
    (out / f"{chosen.drafter}.results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
