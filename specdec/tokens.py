"""Tokens as text, exact to the byte, and prompts as tokens.

A token is a run of bytes, not of characters: an emoji may be spread over several tokens. `TokenTexts` knows the bytes of each
token for the two families of tokenizers that language models use (byte-level BPE as in GPT-2, Llama 3, Qwen; SentencePiece with
byte fall-back as in Llama 2, Gemma) and falls back to the tokenizer's own text for any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from specdec.errors import SettingsError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable bytes stand for themselves, the others for U+0100 and up (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(0x100 + number): byte for number, byte in enumerate(others)}


class TokenTexts:
    """What each token of `tokenizer` (of transformers) looks like. Ids that the tokenizer does not know (padding of the
    embedding) have no bytes and show as their number.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._family = _family(tokenizer)
        self._known: dict[int, bytes] = {}
        self._shown: dict[int, str] = {}  # a round shows a hundred tokens, most of them again and again

    def bytes(self, token: int) -> bytes:
        """The bytes that the token adds to a text."""
        token = int(token)
        if token not in self._known:
            self._known[token] = self._find_bytes(token)
        return self._known[token]

    def text(self, token: int) -> str:
        """What to show for the token on its own: "⟨F0 9F⟩" for the part of a character, "⟨49200⟩" for an id without a text."""
        token = int(token)
        if (shown := self._shown.get(token)) is None:
            raw = self.bytes(token)
            shown = self._shown[token] = _show(raw) if raw else f"⟨{token}⟩"
        return shown

    def fragment(self, token: int) -> str | None:
        """All bytes of the token in hexadecimal if they are not valid UTF-8 by themselves, else None."""
        raw = self.bytes(token)
        return None if _valid(raw) else raw.hex()

    def decode(self, ids: Iterable[int]) -> str:
        """The whole text, special tokens by their names. A character whose last bytes are still to come is left out, so the
        text of a longer run always starts with that of a shorter one.
        """
        ids = [int(i) for i in ids]
        missing = 0  # bytes of an incomplete character at the end
        tail = b"".join(self.bytes(i) for i in ids[-8:])
        if self._family:
            missing = _incomplete(tail)
        if self._family == "sentencepiece" and missing:
            ids = ids[:-missing]  # one byte a token there, and one broken run of them spoils the characters before it
            missing = 0
        text = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) if ids else ""
        if self._family is None:
            return text.rstrip("\ufffd")
        return text[:-1] if missing else text  # an incomplete character decodes to one U+FFFD

    def _find_bytes(self, token: int) -> bytes:
        piece = self.tokenizer.convert_ids_to_tokens(token) if 0 <= token < len(self.tokenizer) else None
        if piece is None:
            return b""
        if self._family == "byte-level":
            alphabet = byte_alphabet()
            try:
                return bytes([alphabet[character] for character in piece])
            except KeyError:
                return piece.encode("utf-8")  # an added token keeps its own characters
        if self._family == "sentencepiece":
            if match := _BYTE_TOKEN.fullmatch(piece):
                return bytes([int(match[1], 16)])
            return piece.replace("▁", " ").encode("utf-8")
        return self.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False).encode("utf-8")


def _family(tokenizer: Any) -> str | None:
    """ "byte-level", "sentencepiece" or None, from how the tokenizer decodes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return "sentencepiece" if hasattr(tokenizer, "sp_model") else None
    decoder = json.loads(backend.to_str()).get("decoder") or {}
    parts = [part["type"] for part in decoder.get("decoders", [decoder]) if part]
    if "ByteLevel" in parts:
        return "byte-level"
    return "sentencepiece" if {"ByteFallback", "Metaspace"} & set(parts) else None


def _valid(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _show(raw: bytes) -> str:
    """Characters as they are, bytes that are none in hexadecimal between brackets."""
    parts: list[str] = []
    while raw:
        try:
            parts.append(raw.decode("utf-8"))
            break
        except UnicodeDecodeError as error:
            end = error.start + 1
            while end < len(raw) and raw[end] & 0xC0 == 0x80:
                end += 1
            parts.append(raw[: error.start].decode("utf-8"))
            parts.append(f"⟨{raw[error.start : end].hex(' ').upper()}⟩")
            raw = raw[end:]
    return "".join(parts)


def _incomplete(tail: bytes) -> int:
    """How many bytes at the end of `tail` begin a character without ending it."""
    for back in range(1, min(3, len(tail)) + 1):
        if tail[-back] & 0xC0 != 0x80:
            try:
                tail[-back:].decode("utf-8")
            except UnicodeDecodeError as error:
                return back if error.reason == "unexpected end of data" else 0
            return 0
    return 0


def surrogate(text: str) -> bool:
    """Whether half a surrogate pair is in it: Python holds it, no file and no page does."""
    return not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text)


def encode_prompt(tokenizer: Any, prompt: str, *, raw: bool) -> list[int]:
    """The prompt as token ids: the chat template with one message of the user, or, `raw` or without a template, the text as it
    stands behind the token that begins every text of this tokenizer, if it has one.

    A control token that a person types ("<|im_end|>") is text like any other and never ends the message.
    Raises SettingsError for an empty prompt and for what is no text.
    """
    if not isinstance(prompt, str):
        raise SettingsError(f"The prompt is {type(prompt).__name__}: give a text.")
    if surrogate(prompt):
        raise SettingsError("The prompt holds half a surrogate pair, which is no character: type that place again.")
    if raw or not tokenizer.chat_template:
        return _encode_raw(tokenizer, prompt)
    if not prompt.strip():
        raise SettingsError("The prompt is empty: write a question or a request.")
    return _encode_chat(tokenizer, prompt)


def _encode_raw(tokenizer: Any, prompt: str) -> list[int]:
    ids = list(tokenizer.encode(prompt, add_special_tokens=True, split_special_tokens=True)) if prompt else []
    bare = list(tokenizer.encode(prompt, add_special_tokens=False, split_special_tokens=True)) if prompt else []
    if len(ids) > len(bare) and ids[-1:] != bare[-1:]:
        ids.pop()  # some tokenizers end every text; a prompt is to be continued
    if not ids and tokenizer.bos_token_id is not None:
        ids = [tokenizer.bos_token_id]
    if not ids:
        raise SettingsError("The prompt is empty and this model has no token that begins a text: write a few words.")
    return ids


def _encode_chat(tokenizer: Any, prompt: str) -> list[int]:
    message = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special} | set(
        tokenizer.all_special_tokens
    )
    special = sorted(filter(None, special), key=len, reverse=True)
    typed = [token for token in special if token in prompt]
    if not typed:
        return list(tokenizer.encode(text, add_special_tokens=False))
    ids = _encode_around(tokenizer, message, text, special)
    if ids is None:
        raise SettingsError(f"The prompt holds {typed[0]!r}, which this model's chat template cannot take as text: leave it out.")
    return ids


def _encode_around(tokenizer: Any, message: list[dict[str, str]], text: str, special: Sequence[str]) -> list[int] | None:
    """Encode `text`, in which only the special tokens of the template count, not those of the user's message.

    A tokenizer cuts a text at its special tokens and encodes each piece by itself; here the cuts are made by hand, outside of
    the message only. None when that cannot be trusted: where the message lies is unclear, or harmless text comes out
    differently.
    """
    mark = "\ue000message\ue000"
    around = tokenizer.apply_chat_template([message[0] | {"content": mark}], tokenize=False, add_generation_prompt=True).split(
        mark
    )
    if len(around) != 2:
        return None
    before, after = around

    def by_hand(content: str) -> list[int]:
        cuts = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        heads, tails = cuts.split(before), cuts.split(after)
        # Pieces alternate: text, special, text, ...; the message belongs to the text piece that it stands in.
        pieces = [*heads[:-1], heads[-1] + content + tails[0], *tails[1:]]
        ids: list[int] = []
        for number, piece in enumerate(pieces):
            if number % 2:
                ids.append(tokenizer.convert_tokens_to_ids(piece))
            elif piece:
                ids.extend(tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=True))
        return ids

    harmless = "Hello, 2 worlds\n"
    expected = tokenizer.encode(before + harmless + after, add_special_tokens=False)
    content = next((c for c in (message[0]["content"], message[0]["content"].strip()) if before + c + after == text), None)
    return by_hand(content) if content is not None and by_hand(harmless) == list(expected) else None
