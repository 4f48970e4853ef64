"""A person's own prompts: three formats and pasted text; a bad row is named and the others are used."""

from __future__ import annotations

import pytest

from specdec.errors import SettingsError
from specdec.prompt_sets import LONGEST, MOST, OWN, Prompt, parse, paste, read, shipped


def test_ours_are_eight_kinds_of_six():
    ours = shipped()
    assert len(ours.kinds) == 8 and len(ours.prompts) == 48 and not ours.problems
    some = ours.choose(["code", "story"], 2)
    assert [p.kind for p in some.prompts] == ["code", "code", "story", "story"]


def test_json_lines_with_bad_rows():
    text = '{"kind": "code", "prompt": "one"}\n\n{broken\n[1]\n{"prompt": 3}\n{"prompt": " "}\n'
    text += '{"prompt": "x", "kind": 1}\n{"prompt": "two"}'
    found = parse(text.encode(), name="my.jsonl")
    assert found.prompts == (Prompt("code", "one"), Prompt(OWN, "two"))
    assert [p.split(" was")[0] for p in found.problems] == [f"Line {n} of my.jsonl" for n in (3, 4, 5, 6, 7)]
    assert "it is no JSON" in found.problems[0] and "its prompt is empty" in found.problems[3]


def test_json_lines_end_at_a_line_feed_only_and_half_a_character_is_left_out():
    found = parse('{"prompt": "a\u2028b"}\r\n{"prompt": "bad \\ud83d half"}\n'.encode(), name="my.jsonl")
    assert found.prompts == (Prompt(OWN, "a\u2028b"),)
    assert found.problems == ("Line 2 of my.jsonl was left out: it holds half a surrogate pair, which is no character.",)


def test_a_table_with_a_line_break_in_it_and_a_comma_too_many():
    text = 'Kind,Prompt\ncode,"one,\ntwo"\nchat,a, b\n,three\nchat,\n'
    found = parse(("\ufeff" + text).encode(), name="my.csv")
    assert found.prompts == (Prompt("code", "one,\ntwo"), Prompt(OWN, "three"))
    assert found.problems[0].startswith("The row that ends in line 4 of my.csv was left out: it has 3 fields")
    assert found.problems[1].startswith("The row that ends in line 6")


def test_text_is_a_prompt_a_line_or_blocks_between_dashes():
    assert [p.text for p in parse(b"one\n\n two \n", name="a.txt").prompts] == ["one", "two"]
    assert [p.text for p in paste("one\nmore\n---\n\n---\ntwo\n").prompts] == ["one\nmore", "two"]


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"x", "a.pdf", "no prompt file"),
        (b"\xff", "a.txt", "not UTF-8"),
        (b"", "a.txt", "no prompt in a.txt"),
        (b"a,b\n1,2\n", "a.csv", 'one of them "prompt"; here they are: a, b'),
        (b"{}\n", "a.jsonl", 'Line 1 of a.jsonl was left out: it has no text under "prompt"'),
    ],
)
def test_what_cannot_be_used_is_one_sentence(data, name, words):
    with pytest.raises(SettingsError, match=words):
        parse(data, name=name)


def test_limits_are_said():
    with pytest.raises(SettingsError, match="cannot be read"):
        read("/nowhere/at.txt")
    long = parse(f"short\n{'x' * (LONGEST + 1)}\n".encode(), name="a.txt")
    assert len(long.prompts) == 1 and "20,001 characters" in long.problems[0]
    many = parse(("x\n" * (MOST + 5)).encode(), name="a.txt")
    assert len(many.prompts) == MOST and many.problems[0].startswith("Line 501")
    with pytest.raises(SettingsError, match="empty|no prompt"):
        paste(" \n")
