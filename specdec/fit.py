"""Do a target and a draft speak of the same tokens? Asked of the tokenizers, answered by name of the first difference."""

from __future__ import annotations

from typing import Any

from specdec.errors import PairError

# Texts on which tokenizers of the same vocabulary still differ when they cut or normalise differently.
PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "Don't we'll they've I'm",
    "  two spaces,\ttab,\n\nblank line\r\n  indented",
    "def f(x_1: int) -> float:\n    return 3.14 * x_1**2  # π\n",
    "List:\n\n1. one   22  333\n 4",
    '{"key": [1, 22, 333, 4444], "url": "a://b.c/d?e=f&g"}',
    "Grüße, naïve café, Ελλάδα, Привет, שלום, مرحبا",
    "你好，世界。日本語のテスト 한국어",
    "emoji 🙂👩‍👩‍👧‍👦🇩🇪 and e\u0301 composed \ufb01",
    "MixedCASE ÉCOLE ſ ™ ½ ０１２",
    "\u200bzero width\u00a0no-break …—“quotes”",
)


def common_vocabulary(target: Any, draft: Any, *, target_size: int, draft_size: int, names: tuple[str, str]) -> int:
    """The number of ids that both models know, when their tokenizers map the same strings to the same ids.

    target, draft: tokenizers. target_size, draft_size: rows of the models' embeddings, which may be padded differently. names:
    of the two models, for the message. Raises PairError that names the first difference.
    """
    common = min(target_size, draft_size)
    try:
        _compare_vocabularies(target, draft, common)
        _compare_encodings(target, draft)
    except _Difference as difference:
        raise PairError(
            f"{names[0]} and {names[1]} do not fit together, because {difference}: choose a draft with the target's own "
            "tokenizer, usually a smaller model of the same family."
        ) from None
    return common


class _Difference(Exception):
    pass


def _compare_vocabularies(target: Any, draft: Any, common: int) -> None:
    mine, theirs = target.get_vocab(), draft.get_vocab()
    here, there = {id: text for text, id in mine.items()}, {id: text for text, id in theirs.items()}
    for id in sorted(here.keys() | there.keys()):
        ours, other = here.get(id), there.get(id)
        if id >= common:
            # Beyond the smaller embedding nothing can be compared or drawn: only tokens that no text produces may live there.
            holder, text = (target, ours) if ours is not None else (draft, other)
            if id not in holder.added_tokens_decoder:
                raise _Difference(f"{text!r} has token id {id}, and one of the two models ends at id {common - 1}")
        elif ours is not None and other is not None and ours != other:
            raise _Difference(f"token id {id} is {ours!r} for the target and {other!r} for the draft")
        else:
            # One of them may leave an id empty that the other uses, but not know the same string by another id.
            text, elsewhere = (ours, theirs) if other is None else (other, mine)
            if elsewhere.get(text, id) != id:
                raise _Difference(f"{text!r} has different token ids: {mine[text]} for the target and {theirs[text]} for the draft")


def _compare_encodings(target: Any, draft: Any) -> None:
    control = sorted({str(t) for t in target.all_special_tokens} & {str(t) for t in draft.all_special_tokens})
    for text in (*PROBES, *(f"a{token}b" for token in control)):
        ours, other = (list(t.encode(text, add_special_tokens=False)) for t in (target, draft))
        if ours != other:
            place = next((i for i, (a, b) in enumerate(zip(ours, other, strict=False)) if a != b), min(len(ours), len(other)))
            shown = [repr("".join(t.convert_ids_to_tokens(ids[place : place + 1]))) for t, ids in ((target, ours), (draft, other))]
            raise _Difference(
                f"{text!r} is cut differently: token {place + 1} is {shown[0]} for the target and {shown[1]} for the draft"
            )
