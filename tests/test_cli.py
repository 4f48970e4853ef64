"""The command line over two small tables in the place of models: what is printed where, exit codes, files, signals, pipes."""

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from sample_traces import SAMPLES

from specdec import cli, cli_io, cli_print, metrics
from specdec.errors import ModelError
from specdec.table import TableModel, TablePair
from specdec.trace import Trace

WORDS = ("Please", " send", " the", " report", " invoice", " today", ".", "\n", "\x1b[2J")
TARGET = {0: 1, 1: 2, 2: 3, 3: 5, 4: 5, 5: 6, 6: 7, 7: 0, 8: 0}  # Please send the report today . \n
DRAFT = TARGET | {2: 4}  # Please send the invoice today


def table(following):
    def next_distribution(tokens):
        return [0.92 if i == following[tokens[-1]] else 0.01 for i in range(len(WORDS))]

    return TableModel(next_distribution, vocabulary=len(WORDS))


def table_pair(**changes):
    return TablePair(words=WORDS, target=table(TARGET), draft=table(DRAFT), **changes)


@pytest.fixture
def specdec(monkeypatch, capsys):
    """Runs the command line in this process over tables; returns exit code, standard output, standard error."""
    asked = []

    def load_pair(name=None, **options):
        asked.append({"name": name} | options)
        print("a library has something to say")
        return made[0]

    def run(*arguments, pair=None):
        made[0] = pair or table_pair()
        monkeypatch.setattr("specdec.models.load_pair", load_pair)
        try:
            code = cli.main([str(a) for a in arguments])
        except SystemExit as leaving:  # argparse
            code = leaving.code
        out, err = capsys.readouterr()
        return code, out, err

    made = [None]
    run.asked = asked
    return run


# run


def test_rounds_are_shown_by_sign_and_the_text_and_figures_follow(specdec):
    code, out, err = specdec("run", "Please", "--max-new-tokens", 9, "--drafter", "draft")
    assert (code, err) == (0, "loading libraries …\na library has something to say\n")
    lines = out.splitlines()
    assert lines[0] == "table on cpu, float64, drafter draft; 1 prompt tokens"
    assert lines[1] == "+ accepted   - rejected   > replacement   ~ discarded   * bonus"
    assert lines[3] == '   1    2/4  +" send" +" the" -" invoice" >" report" ~" today"'
    assert lines[4] == '   2    4/4  +" today" +"." +"\\n" +"Please" *" send"'
    assert lines[5] == '   3    0/0  *" the"'
    assert out.split("\n\n")[2] == " send the report today.\nPlease send the"
    assert "New tokens                9 in 3 target passes, ended by: length" in lines
    assert "Acceptance rate α         0.86 (6 of 7 judged drafts accepted)" in lines
    assert "Draft utilisation         75 % (6 of 8 drafted tokens accepted)" in lines
    assert "Mean acceptance length τ  3.00 tokens per target pass" in lines
    parts = ("drafting", "verifying", "judging", "other")
    assert any(line.startswith("Decoding ") and all(part in line for part in parts) for line in lines)
    assert any(line.startswith("Time to first token ") for line in lines)
    assert "\x1b" not in out
    assert "plain decoding" not in out  # no plain step was measured


def test_speed_is_compared_only_with_a_measured_plain_step(specdec):
    code, out, _ = specdec("run", "Please", pair=table_pair(plain_step_seconds=1.0))
    assert code == 0
    assert "Faster than plain decoding:" in out and "in plain steps of 1.00 s" in out
    code, out, _ = specdec("run", "Please", pair=table_pair(plain_step_seconds=1e-9))
    assert "Slower than plain decoding:" in out and "The cause:" in out


def test_a_sampled_run_says_which_alpha_was_to_be_expected(specdec):
    _, out, _ = specdec("run", "Please", "--temperature", 1, "--seed", 3)
    assert "Expected α" in out and "from the overlap of p and q" in out
    _, out, _ = specdec("run", "Please")
    assert "Expected α" not in out


def test_plain_shows_the_text_alone(specdec):
    code, out, _ = specdec("plain", "Please", "--max-new-tokens", 7)
    assert code == 0
    assert out.startswith("table on cpu, float64, plain decoding; 1 prompt tokens\n\n send the report today.\nPlease\n\n")
    assert "New tokens                7 in 7 target passes, ended by: length" in out
    assert "Acceptance" not in out


def test_a_text_that_turns_out_differently_is_shown_whole_at_the_end(specdec):
    pair = table_pair()
    pair.texts.decode = lambda ids: "rough" if len(ids) < 3 else "smooth"
    _, out, _ = specdec("plain", "Please", "--max-new-tokens", 3, pair=pair)
    assert "\n\nrough\n\nsmooth\n\nNew tokens" in out


def test_control_characters_of_a_model_never_reach_the_terminal(specdec):
    hostile = table(DRAFT | {0: 8, 8: 1})
    _, out, _ = specdec("run", "Please", "--max-new-tokens", 3, pair=TablePair(words=WORDS, target=hostile, draft=hostile))
    assert r'+"\x1b[2J"' in out and "\n\\x1b[2J send the" in out
    assert "\x1b" not in out
    for trace in (SAMPLES["hostile"](), SAMPLES["emoji"]()):
        for round_ in trace.rounds:
            line = cli_print.round_line(round_)
            assert line.isprintable()


@pytest.mark.parametrize("name", ["rejected", "bonus", "ends_in_drafts", "lookup"])
def test_every_token_of_a_round_has_exactly_one_sign(name):
    for round_ in SAMPLES[name]().rounds:
        line = cli_print.round_line(round_)
        coloured = cli_print.round_line(round_, colour=True)
        shown = [{"accepted": "+", "rejected": "-", "discarded": "~"}[d.status] + cli_print.quoted(d.text) for d in round_.drafts]
        if round_.outcome.kind == "replacement":  # stands where the rejected one stood
            shown.insert(round_.accepted + 1, ">" + cli_print.quoted(round_.outcome.text))
        if round_.outcome.kind == "bonus":
            shown.append("*" + cli_print.quoted(round_.outcome.text))
        assert line == f"{round_.index + 1:4}  {round_.accepted:>3}/{len(round_.drafts)}  " + " ".join(shown)
        assert coloured.count("\x1b[0m") == len(shown)
        assert "".join(part.partition("m")[2] if i else part for i, part in enumerate(coloured.split("\x1b["))) == line


@pytest.mark.parametrize(
    "environment, terminal, colour",
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_only_on_a_terminal_that_wants_it(monkeypatch, environment, terminal, colour):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    out.isatty = lambda: terminal
    assert cli_print.uses_colour(out) is colour


# --json


def test_json_is_one_object_and_nothing_else(specdec):
    code, out, err = specdec("run", "Please", "--json", "--max-new-tokens", 9, pair=table_pair(plain_step_seconds=0.5))
    assert code == 0
    found = json.loads(out)
    assert found["output_text"] == " send the report today.\nPlease send the"
    assert (found["accepted"], found["judged"], found["drafted"]) == (6, 7, 8)
    assert found["acceptance_rate"] == pytest.approx(6 / 7)
    assert set(metrics.METRICS) <= set(found)
    assert found["settings"]["draft_length"] == 4 and found["pair"]["name"] == "table"
    assert [place["rate"] for place in found["acceptance_by_position"]] == [1, 1, 0.5, 1]
    assert found["speed"].startswith("Faster than plain decoding")


def test_json_for_a_reader_that_knows_no_unicode():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    cli_print.print_json(SAMPLES["emoji"](), out)
    text = out.buffer.getvalue().decode("ascii")
    assert json.loads(text)["output_text"] == SAMPLES["emoji"]().output_text


# What can be asked for


def test_settings_and_models_are_handed_on(specdec, tmp_path):
    code, out, _ = specdec(
        "run", "Please", "--target", "a/b", "--draft", "c", "--device", "cpu", "--dtype", "float32", "--drafter", "lookup",
        "--draft-length", 3, "--temperature", 0.5, "--top-k", 5, "--top-p", 0.9, "--max-new-tokens", 2, "--seed", 11, "--raw",
        "--ngram", 2, "--json",
    )  # fmt: skip
    assert code == 0
    asked = specdec.asked[-1]
    assert callable(asked.pop("progress"))
    assert asked == {"name": None, "target": "a/b", "draft": "c", "device": "cpu", "dtype": "float32"}
    assert json.loads(out)["settings"] == {
        "drafter": "lookup", "draft_length": 3, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "max_new_tokens": 2, "seed": 11,
        "raw": True, "exit_layers": 0, "ngram": 2, "adaptive": False,
    }  # fmt: skip
    specdec("plain", "Please", "--pair", "gpt2-xl")
    assert specdec.asked[-1]["name"] == "gpt2-xl"


def test_the_same_seed_gives_the_same_text(specdec):
    texts = [json.loads(specdec("run", "Please", "--json", "--temperature", 1, "--seed", s)[1])["output_text"] for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "content, prompt",
    [(b"Please send\n", "Please send"), (b"Please\r\n send\r\n", "Please\n send"), ("\ufeffPlease".encode(), "Please")],
)
def test_a_dash_reads_the_prompt_from_standard_input(specdec, monkeypatch, content, prompt):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    code, out, _ = specdec("run", "-", "--json")
    assert (code, json.loads(out)["prompt"]) == (0, prompt)


# What cannot be used


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "required: COMMAND"),
        (["jump"], "invalid choice: 'jump'"),
        (["run"], "required: PROMPT"),
        (["run", "x", "--draft-length", "99"], "draft length is 99: take a whole number from 0 to 32."),
        (["run", "x", "--draft-length", "many"], "invalid int value: 'many'"),
        (["run", "x", "--temperature", "-1"], "temperature is -1.0: take a number from 0 to 100."),
        (["run", "x", "--temperature", "nan"], "temperature is nan"),
        (["run", "x", "--top-p", "0"], "top-p is 0"),
        (["run", "x", "--max-new-tokens", "0"], "max new tokens is 0"),
        (["run", "x", "--drafter", "oracle"], "invalid choice: 'oracle'"),
        (["run", "x", "--seed", "-1"], "seed is -1"),
        (["run", "x", "--unknown"], "unrecognized arguments: --unknown"),
        (["run", "x", "--temp", "1"], "unrecognized arguments: --temp 1"),
        (["plain", "x", "--draft-length", "4"], "unrecognized arguments: --draft-length 4"),
        (["run", ""], "The prompt is empty"),
        (["run", "caf\udce9"], "no UTF-8 text"),
        (["run", "x", "--pair", "a", "--target", "b"], "--pair names both models"),
        (["run", "x", "--draft", "b"], "--draft b has no --target"),
        (["run", "x", "--trace", "no/such/folder/t.json"], "there is no folder no/such/folder"),
        (["run", "x", "--trace", "."], "--trace . is a folder"),
        (["race", "x", "--out", "."], "--out . is a folder"),
        (["race", "x", "--trace", "t.json"], "unrecognized arguments: --trace t.json"),
        (["fetch", "nothing"], "There is no pair called 'nothing'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(specdec, arguments, words):
    code, out, err = specdec(*arguments)
    assert (code, out) == (2, "")
    assert words in err and err.startswith("specdec: ") and err.count("\n") == 1 and err.endswith("\n")
    assert not specdec.asked  # refused before a model was loaded


def test_what_only_the_model_knows_is_one_line_and_exit_code_2(specdec, monkeypatch):
    for arguments, words in [
        (("run", "Bonjour"), "no word for 'Bonjour'"),
        (("run", "Please", "--drafter", "head"), "head"),
    ]:
        code, out, err = specdec(*arguments, "--json")
        assert (code, out) == (2, "")
        assert words in err and err.splitlines()[-1].startswith("specdec: ")

    def refuse(*arguments, **options):
        raise ModelError("The disk is\nfull: make room.")

    monkeypatch.setattr(cli_io.Progress, "__call__", lambda *arguments: None)
    monkeypatch.setattr("specdec.models.load_pair", refuse)
    assert cli.main(["run", "Please"]) == 2


def test_broken_standard_input_is_named(specdec, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9")))
    code, _, err = specdec("run", "-")
    assert code == 2 and "Standard input is no UTF-8 text (byte 3 is broken)" in err


# --trace


def test_the_trace_file_holds_the_run(specdec, tmp_path):
    place = tmp_path / "run.json"
    place.write_text("old")
    code, out, _ = specdec("run", "Please", "--trace", place, "--json")
    assert code == 0
    trace = Trace.from_json(place.read_bytes())
    assert trace.output_text == json.loads(out)["output_text"]
    assert os.listdir(tmp_path) == ["run.json"]  # nothing half written is left


def test_a_trace_that_cannot_be_written_loses_nothing(specdec, tmp_path, monkeypatch):
    place = tmp_path / "run.json"
    place.write_text("old")
    monkeypatch.setattr(cli_io.tempfile, "tempdir", str(tmp_path))

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli_io.os, "replace", full)
    code, out, err = specdec("run", "Please", "--trace", place)
    assert code == 1
    assert "New tokens" in out
    assert f"cannot be written to {place} (No space left on device); it is kept in" in err
    kept = [name for name in os.listdir(tmp_path) if name != "run.json"]
    assert len(kept) == 1 and kept[0] in err  # and no partial file beside it
    assert Trace.from_json((tmp_path / kept[0]).read_bytes()).output_text
    assert place.read_text() == "old"


def test_a_link_stays_a_link_and_rights_stay(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    cli_io.write_whole(link, "new")
    assert link.is_symlink() and real.read_text() == "new" and real.stat().st_mode & 0o777 == 0o640
    cli_io.write_whole(tmp_path / "fresh.json", "x")
    assert (tmp_path / "fresh.json").stat().st_mode & 0o777 == 0o666 & ~cli_io._umask()
    cli_io.write_whole(cli_io.check_place("/dev/null"), "x")


# race


def test_a_race_prints_both_runs_side_by_side_and_keeps_them(specdec, tmp_path):
    from specdec.race import Race

    place = tmp_path / "race.json"
    code, out, _ = specdec("race", "Please", "--max-new-tokens", 9, "--drafter", "draft", "--out", place, "--title", "Tables")
    assert code == 0
    assert "target passes                        9             3" in out and "tokens per pass                   1.00          3.00" in out
    assert "Identical text, checked: all 9 tokens are the same." in out and " send the report today.\nPlease send the" in out
    race = Race.from_json(place.read_bytes())
    assert (race.title, race.plain.method, race.speculative.settings.drafter) == ("Tables", "plain", "draft")
    assert race.plain.output_ids == race.speculative.output_ids
    code, out, _ = specdec("race", "Please", "--max-new-tokens", 9, "--json")
    found = json.loads(out)
    assert code == 0 and (found["tokens"], found["plain"]["passes"], found["speculative"]["passes"]) == (9, 9, 3)
    assert found["first_difference"] is None and found["speedup"] > 0


def test_ctrl_c_in_a_race_keeps_what_there_is(specdec, tmp_path):
    from specdec.race import Race

    place = tmp_path / "race.json"
    pair = Interrupting(words=WORDS, target=table(TARGET), draft=table(DRAFT))
    code, out, err = specdec("race", "Please", "--max-new-tokens", 9, "--out", place, pair=pair)
    assert code == 130 and "nothing to compare" in out and "interrupted" in err
    race = Race.from_json(place.read_bytes())
    assert race.plain.finish_reason == "stopped" and race.plain.output_ids and not race.speculative.output_ids


# Interrupted


class Interrupting(TablePair):
    """Ctrl+C arrives while the target runs for the third time."""

    def __post_init__(self):
        super().__post_init__()
        following, passes = self.target.next_distribution, []

        def interrupted(tokens):
            passes.append(tokens)
            if len(passes) == 8:  # the second round
                signal.raise_signal(signal.SIGINT)
            return following(tokens)

        self.target = TableModel(interrupted, vocabulary=len(WORDS))


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_prints_what_was_made(specdec, tmp_path, as_json):
    pair = Interrupting(words=WORDS, target=table(TARGET), draft=table(DRAFT))
    before = signal.getsignal(signal.SIGINT)
    arguments = ["run", "Please", "--max-new-tokens", 64, "--trace", tmp_path / "t.json"] + ["--json"] * as_json
    code, out, err = specdec(*arguments, pair=pair)
    assert code == 130
    assert "interrupted" in err
    trace = Trace.from_json((tmp_path / "t.json").read_text())
    assert trace.finish_reason == "stopped" and len(trace.rounds) == 2
    if as_json:
        assert json.loads(out)["new_tokens"] == 8
    else:
        assert "New tokens                8 in 2 target passes, ended by: stopped" in out
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_loading(specdec, monkeypatch, capsys):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    specdec("run", "Please")
    monkeypatch.setattr("specdec.models.load_pair", interrupt)
    assert cli.main(["run", "Please"]) == 130
    assert capsys.readouterr().err.endswith("specdec: interrupted.\n")


# models and fetch


def test_models_lists_the_catalogue_with_what_one_needs_to_know(specdec):
    from specdec.catalogue import CATALOGUE, DEFAULT_PAIR

    code, out, err = specdec("models")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["name", "target", "draft", "weights", "float32", "bfloat16", "gated", "here"]
    rows = {line.split()[0]: line for line in lines[1 : 1 + len(CATALOGUE)]}
    assert list(rows) == list(CATALOGUE)
    assert [name for name, row in rows.items() if " * " in row] == [DEFAULT_PAIR]
    for name, spec in CATALOGUE.items():
        assert spec.target in rows[name] and (spec.draft or " - ") in rows[name]
        assert f"{spec.memory('bfloat16') / 1e9:.1f} GB" in rows[name]
        assert rows[name].split()[-2] == ("yes" if spec.gated else "no")
    assert "9.3 B" in rows["llama-3.1-8b"] and "135 M" in rows["embedded"]


def test_models_says_what_is_here_already(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path))
    cli.main(["models"])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("embedded"))
    assert row.endswith("no")
    monkeypatch.setattr("specdec.fetch.converted_folder", lambda: tmp_path)
    cli.main(["models"])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("embedded"))
    assert row.endswith("yes")


def test_fetch_takes_a_pair_or_a_hub_id(specdec, monkeypatch):
    fetched = []

    def find_model(name, *, progress):
        progress("downloading", 2_000_000, 2_000_000)
        fetched.append(name)
        return Path("/models") / name

    monkeypatch.setattr("specdec.hub.find_model", find_model)
    monkeypatch.setattr("specdec.fetch.fetch_embedded", lambda *, progress: Path("/models/embedded"))
    assert specdec("fetch")[:2] == (0, "/models/embedded\n")
    code, out, err = specdec("fetch", "qwen3-4b")
    assert (code, fetched) == (0, ["Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B"])
    assert out == "/models/Qwen/Qwen3-4B\n/models/Qwen/Qwen3-0.6B\n"
    assert "downloading: 2 MB, done" in err
    assert specdec("fetch", "me/mine")[0] == 0 and fetched[-1] == "me/mine"


def test_training_has_a_command_line_of_its_own(specdec, monkeypatch):
    monkeypatch.setattr("specdec.train.main", lambda arguments: print(arguments) or 7)
    assert specdec("train", "--drafter", "head", "--minutes", "2")[:2] == (7, "['--drafter', 'head', '--minutes', '2']\n")
