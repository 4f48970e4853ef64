"""The address of a page: every setting by name, checked; hide and lock make an exercise of a link."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from specdec.ui import links

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))


@pytest.fixture
def open_page(monkeypatch):
    def open_(name: str, **query) -> AppTest:
        at = AppTest.from_file(str(ROOT / "specdec" / "ui" / "shell.py"), default_timeout=60)
        for key, value in query.items():
            at.query_params[key] = value
        at.switch_page(str(ROOT / "pages" / f"{name}.py"))
        at.run()
        assert not at.exception, [e.value for e in at.exception]
        return at

    return open_


def warnings(at: AppTest) -> list[str]:
    return [w.value.replace("\\", "") for w in at.warning if w.icon == ":material/link_off:"]


def param(at: AppTest, name: str) -> str:
    """What a test gave stands there as a list, what the page wrote as a text."""
    value = at.query_params[name]
    return value if isinstance(value, str) else value[-1]


def calls(name: str) -> list[dict]:
    return [
        {word.arg: word.value for word in node.keywords}
        for path in (ROOT / "specdec" / "ui").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and name in {word.arg for word in node.keywords}
    ]


def test_every_control_in_an_address_is_checked_and_can_be_locked():
    bound = [call for call in calls("bind") if "key" in call]
    for call in bound:
        assert "disabled" in call and "locked" in ast.unparse(call["disabled"]), ast.unparse(call["key"])
        if isinstance(call["key"], ast.Constant):
            assert call["key"].value in links.SETTINGS
    assert len(bound) > 35


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("seed", ["0", "7", "2147483647"], ["1e999", "-1", "nan", "x", "", "1.5", "2147483648"]),
        ("draft_length", ["1", "12"], ["0", "13", "99", "inf"]),
        ("temperature", ["0", "0.7", "2"], ["-0.1", "2.1"]),
        ("top_p", ["0.05", "1"], ["0", "1.01"]),
        ("raw", ["true", "false"], ["yes", ""]),
        ("drafter", ["lookup", "early-exit"], ["foo", ""]),
        ("context", ["1,024"], ["1024", "7"]),
        ("prompt", ["", "x" * 8000], ["x" * 8001]),
        ("show", ["map", "law"], ["nothing"]),
    ],
)
def test_what_fits_a_setting(name, good, bad):
    setting = links.SETTINGS[name]
    assert all(setting.fits(value) for value in good) and not any(setting.fits(value) for value in bad)


def test_bad_parameters_fall_back_with_one_notice_that_names_them(open_page):
    at = open_page("rounds", seed="1e999", draft_length="99", drafter="foo", mood="good", temperature="0.7")
    assert len(said := warnings(at)) == 1
    assert all(part in said[0] for part in ("seed=1e999", "draft_length=99", "drafter=foo", "mood=good"))
    assert "temperature" not in said[0]
    assert at.number_input(key="seed").value == 0 and at.slider(key="draft_length").value == 4
    assert at.slider(key="temperature").value == 0.7
    assert set(at.query_params) == {"temperature"}
    at.slider(key="draft_length").set_value(5).run()
    assert len(warnings(at)) == 1  # it stays while the page is open


@pytest.mark.parametrize("name", PAGES)
def test_a_good_address_brings_no_notice_and_the_usual_values_are_good_ones(open_page, name):
    usual = links.usual(name)
    at = open_page(name, **usual)
    assert warnings(at) == []
    assert all(links.SETTINGS[key].fits(value) for key, value in usual.items() if key != "lang")
    assert set(links.usual("rounds")) >= {
        "seed",
        "prompt",
        "drafter",
        "draft_length",
        "temperature",
        "top_k",
        "top_p",
        "raw",
        "lang",
    }


def test_the_usual_values_of_a_copied_link_are_those_of_the_controls(open_page):
    at = open_page("rounds")
    usual = links.usual("rounds")
    controls = {**{s.key: s.value for s in at.slider}, **{n.key: n.value for n in at.number_input}}
    for name in ("draft_length", "temperature", "max_new_tokens", "seed", "top_k", "top_p"):
        assert float(usual[name]) == controls[name], name
    assert usual["drafter"] == at.selectbox(key="drafter").value and usual["prompt"] == at.text_area(key="prompt").value
    speedup = open_page("speedup")
    assert all(float(links.usual("speedup")[s.key]) == s.value for s in speedup.slider)


def test_locked_controls_keep_the_value_of_the_link_and_are_disabled(open_page):
    at = open_page("rounds", lock="draft_length,seed,drafter,prompt", draft_length="7", seed="3", drafter="lookup", prompt="Hello")
    assert at.slider(key="draft_length").value == 7 and at.slider(key="draft_length").disabled
    assert at.number_input(key="seed").value == 3 and at.number_input(key="seed").disabled
    assert at.selectbox(key="drafter").value == "lookup" and at.selectbox(key="drafter").disabled
    assert at.text_area(key="prompt").value == "Hello" and at.text_area(key="prompt").disabled
    assert not at.slider(key="temperature").disabled and not at.button(key="run").disabled
    at.switch_page(str(ROOT / "pages" / "race.py")).run()
    assert at.slider(key="draft_length").disabled and param(at, "lock") == "draft_length,seed,drafter,prompt"


def test_hidden_controls_are_taken_away_and_what_is_unknown_is_named(open_page):
    at = open_page("rounds", hide="seed,top_p,no_such,</style><script>", draft_length="6")
    style = [h.value for h in at.get("html") if h.value.endswith("{ display: none !important; }</style>")]
    assert style == ["<style>.st-key-seed, .st-key-top_p { display: none !important; }</style>"]
    assert len(warnings(at)) == 1 and "hide=no_such" in warnings(at)[0]
    assert param(at, "hide") == "seed,top_p"


def test_the_language_comes_from_the_link_and_goes_along(open_page):
    at = open_page("speedup", lang="de", alpha="0.5")
    assert param(at, "lang") == "de" and at.session_state["_language"] == "de"
    at.switch_page(str(ROOT / "pages" / "residual.py")).run()
    assert param(at, "lang") == "de"
    at = open_page("speedup", lang="xx")
    assert at.session_state["_language"] == "en" and "lang=xx" in warnings(at)[0]


def test_no_page_chooses_a_model_or_a_folder():
    """What is loaded is the server's business: pages name pairs that it offers and nothing else."""
    pairs = {ast.unparse(call["pair"]) for call in calls("pair")}
    assert pairs <= {"session.offered_pairs()[0]", "offered_pairs()[0]", "session.pair()", "request.pair", "origin.pair"}, pairs  # the last one is only said in a sentence
    code = "".join(path.read_text() for folder in ("specdec/ui", "pages") for path in (ROOT / folder).glob("*.py"))
    assert not any(word in code for word in ("load_pair", "from_pretrained", "specdec.hub", "pickle", "eval(", "exec("))


def test_choices_by_title_have_their_own_name_in_the_address(open_page):
    at = open_page("measure", m_source="paste", lang="de")
    assert warnings(at) == [] and at.session_state["m_source"] == "paste"
    for written, meant in (("4", 4), ("1e3", 1000)):
        at = open_page("residual", show="draws", rule="exact", draws="300", dice=written)
        assert warnings(at) == [] and at.session_state["dice"] == meant
    assert "dice=1e9" in warnings(open_page("residual", show="draws", dice="1e9"))[0]


def test_the_pair_is_one_that_the_server_offers(open_page, monkeypatch):
    at = open_page("rounds", pair="embedded-int8", drafter="head")
    assert warnings(at) == [] and at.selectbox(key="pair").value == "embedded-int8" and at.selectbox(key="drafter").value == "head"
    at = open_page("rounds", pair="qwen3-4b")
    assert "pair=qwen3-4b" in warnings(at)[0] and at.selectbox(key="pair").value == "embedded"
    monkeypatch.setenv("SPECDEC_PAIRS", "qwen3-4b")
    at = open_page("rounds")
    assert [box.key for box in at.selectbox if box.key == "pair"] == []
    assert at.selectbox(key="drafter").options == ["Draft model", "Prompt look-up", "Early exit"]


def test_a_page_that_chooses_no_pair_means_the_one_that_is_here(monkeypatch):
    """On a server that offers another pair than the embedded one, nobody's "measure it" takes that away from the class."""
    from types import SimpleNamespace

    from specdec.engine import RunRequest
    from specdec.ui import session

    monkeypatch.setenv("SPECDEC_PAIRS", "qwen3-4b,embedded-int8")
    monkeypatch.setattr(session, "lease", lambda: SimpleNamespace(run=lambda request: request.pair))
    assert session.submit(RunRequest(prompt="x")) == "qwen3-4b"
    assert session.submit(RunRequest(prompt="x", pair="embedded-int8")) == "embedded-int8"
