"""How often tabs look at the engine, and that few of their scripts run at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from specdec.engine import Job, RunRequest
from specdec.ui import looks


@pytest.fixture
def many(monkeypatch):
    """many(served, waiting, tabs): an engine with so many runs and open tabs."""
    engine = SimpleNamespace(serving=0, queue_length=0, tabs=0)
    monkeypatch.setattr(looks, "shared", lambda: engine)
    monkeypatch.setattr(looks, "JITTER", 0.0)
    return lambda served, waiting=0, tabs=0: engine.__dict__.update(serving=served, queue_length=waiting, tabs=tabs)


def test_all_tabs_together_look_ten_times_a_second_however_many_there_are(many):
    job = Job(request=RunRequest(prompt="x"))
    for served, waiting, seconds in ((1, 0, 0.5), (5, 0, 0.5), (8, 2, 1.0), (40, 0, 4.0), (40, 20, 6.0)):
        many(served, waiting)
        assert looks.pause(job) == pytest.approx(seconds)
    many(1, tabs=40)  # before all of a class have pressed Run
    assert looks.pause(job) == pytest.approx(2.0)
    job.state = "done"
    assert looks.pause(job) is None and looks.pause(None) is None


def test_the_page_runs_again_when_its_clock_is_far_off_or_the_run_has_ended(many):
    job = Job(request=RunRequest(prompt="x"))
    many(20)
    assert not looks.outgrown(2.0, job) and not looks.outgrown(0.7, job) and not looks.outgrown(5.9, job)
    assert looks.outgrown(0.6, job) and looks.outgrown(6.1, job)
    job.state = "stopped"
    assert looks.outgrown(2.0, job) and not looks.outgrown(None, job) and not looks.outgrown(None, None)


def test_few_scripts_run_at_once_and_one_that_is_inside_does_not_wait_for_itself():
    running, most, lock = 0, 0, threading.Lock()

    def script() -> None:
        nonlocal running, most
        with looks.turn(), looks.turn():  # a fragment inside its page
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.005)
            with lock:
                running -= 1

    threads = [threading.Thread(target=script) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
    assert 0 < most <= looks.SCRIPTS and running == 0


def test_a_script_that_hangs_does_not_hold_the_others_up_for_ever(monkeypatch):
    monkeypatch.setattr(looks, "PATIENCE", 0.02)
    free, done = threading.Event(), []
    hanging = [threading.Thread(target=lambda: hang(free)) for _ in range(looks.SCRIPTS)]
    for one in hanging:
        one.start()
    while looks._places.acquire(blocking=False):
        looks._places.release()
    with looks.turn():
        done.append(True)
    free.set()
    for one in hanging:
        one.join(10)
    assert done and all(looks._places.acquire(blocking=False) for _ in range(looks.SCRIPTS))  # every place was given back, once
    for _ in range(looks.SCRIPTS):
        looks._places.release()


def hang(free: threading.Event) -> None:
    with looks.turn():
        free.wait(10)
