"""The pages in front of other machines: the same ones, and a notice while nobody answers there."""

from __future__ import annotations

import threading

import pytest
from machines import Machines
from streamlit.testing.v1 import AppTest
from test_page_rounds import ROOT, SHELL, open_page, settle, stage_of
from waiting import until

from specdec import engine as engine_module
from specdec import remote
from specdec.measure import Design
from specdec.measure_campaign import Campaign
from specdec.prompt_sets import shipped
from specdec.remote import RemoteEngine
from specdec.texts import text

AWAY = text("frame.away")


@pytest.fixture
def there(tiny_pair, monkeypatch):
    """Two machines, and this process's engine in front of them."""
    machines = Machines(tiny_pair(), tiny_pair())
    monkeypatch.setattr(remote, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(remote, "ASK", 0.05)
    engine = RemoteEngine(machines.address)
    monkeypatch.setattr(engine_module, "_shared", engine)
    engine.preload("")
    until(lambda: engine.state == "ready")
    yield machines
    engine.close()
    machines.close()


def test_a_run_appears_round_by_round_and_goes_on_when_its_machine_dies(there):
    first, second = there.each
    first.permits, second.permits = threading.Semaphore(2), threading.Semaphore(0)
    at = open_page(max_new_tokens="16", temperature="1")
    assert len(at.selectbox(key="drafter").options) == 3  # those of the pair over there: draft, look-up, early exit
    at.button(key="run").click().run()
    settle(at, "running")
    until(lambda: len(stage_of(at.run())["rounds"]) == 2)
    first.dead.set()
    until(lambda: second.requests)
    assert len(stage_of(at.run())["rounds"]) == 2  # what was on the stage stays there
    second.permits.release(100)
    settle(at, "done")
    assert first.requests == second.requests and len(stage_of(at)["rounds"]) > 2


def test_while_nobody_answers_the_page_says_so_and_recordings_play(there):
    at = open_page()
    assert AWAY not in [w.value for w in at.warning]
    there.shut()
    until(lambda: engine_module.shared().away)
    at.run()
    assert AWAY in [w.value for w in at.warning] and stage_of(at)["kind"] == "recording"
    at.button(key="run").click().run()
    assert any("do not answer" in e.value for e in at.error) and stage_of(at)["kind"] == "recording" and not at.exception
    there.open()
    until(lambda: not engine_module.shared().away)
    at.run()
    assert AWAY not in [w.value for w in at.warning]
    at.button(key="run").click().run()
    settle(at, "done")


def test_a_text_is_cut_by_the_tokenizer_over_there(there):
    at = AppTest.from_file(SHELL, default_timeout=30)
    at.query_params["step"] = "8"
    at.query_params["own_text"] = "the cat"
    at.switch_page(str(ROOT / "pages" / "walkthrough.py"))
    at.run()
    assert not at.exception
    ids = engine_module.shared().pair.encode("the cat")
    said = text("walkthrough.split.live", count=len(ids), name=engine_module.shared().pair.title)
    assert any(said in caption.value for caption in at.caption), [c.value for c in at.caption]


def test_a_measurement_is_for_one_machine_and_says_so(there):
    design = Design(prompts=shipped().choose(per_kind=1).prompts, drafters=("lookup",), draft_lengths=(2,))
    campaign = Campaign(engine_module.Lease(engine_module.shared()), design)
    campaign.wait(10)
    assert (campaign.state, campaign.message) == ("failed", remote.ALONE)
