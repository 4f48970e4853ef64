"""Precision still matters: one greedy text in several number formats, by passes of one token and by passes that verify.

On paper both are the same function. In a computer the order of a sum depends on the shape of a pass, so logits differ in their last
digits; where the two best tokens lie closer than that, the choice flips and the texts part. `specdec.precision_runs` decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.experiments import Experiment, Finding

FORMATS = ("float32", "bfloat16", "int8")
STRIDE = 8  # tokens of one step


@dataclass(frozen=True, kw_only=True)
class Precision(Experiment):
    """block: drafts that a verifying pass reads, besides the newest token."""

    prompts: tuple[str, ...]
    formats: tuple[str, ...] = FORMATS
    new_tokens: int = 64
    block: int = 4

    module = "specdec.precision_runs"

    @property
    def total(self) -> int:
        """At most: a text may end earlier, a format may not be there."""
        return len(self.formats) * (1 + 2 * len(self.prompts) * -(-self.new_tokens // STRIDE))


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where two texts part. place: the token, from 0. first, second: what each of them chose.

    first_logits: of `first` and of `second`, as the first run computed them; second_logits likewise; None where it was not among
    the best few.
    """

    place: int
    first: str
    second: str
    first_logits: tuple[float | None, ...]
    second_logits: tuple[float | None, ...]

    @property
    def gap(self) -> float | None:
        """How far the two lay apart in the first run."""
        a, b = self.first_logits
        return None if a is None or b is None else a - b


@dataclass(frozen=True, kw_only=True)
class Text:
    """One prompt in one format. verified: the text of the verifying passes. usual_gap: between the two best logits, median.

    passes: where the one-token text and the verified one part. format: where the one-token text and that of the first format do.
    """

    format: str
    prompt: int
    tokens: int
    text: str
    verified: str
    usual_gap: float
    passes: Parting | None
    formats: Parting | None


@dataclass(frozen=True, kw_only=True)
class PrecisionFinding(Finding):
    """left_out: formats that this machine does not have, with the reason."""

    prompts: tuple[str, ...]
    block: int
    new_tokens: int
    texts: tuple[Text, ...]
    left_out: tuple[str, ...] = ()

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text.format for text in self.texts))

    def of(self, name: str) -> list[Text]:
        return [text for text in self.texts if text.format == name]

    def nearest(self) -> Text | None:
        """The text whose passes part at the closest call; None where none do."""
        parted = [t for t in self.texts if t.passes is not None and t.passes.gap is not None]
        return min(parted, key=lambda t: t.passes.gap, default=None)
