"""What happens in one round? The guide's example, card by card, run by the real loop over two small tables."""

from __future__ import annotations

from specdec.ui import lesson, session, walkthrough_view

POLL = {"queued": 1.0, "running": 0.5}  # seconds between two looks at the engine

session.lease()
with lesson.page("walkthrough", intro=walkthrough_view.step() == 0):
    at = walkthrough_view.steps()
    if at == walkthrough_view.DICE:
        walkthrough_view.dice()
    elif at == walkthrough_view.REAL:
        walkthrough_view.real(poll=POLL.get(walkthrough_view.state_of_run()))
    else:
        walkthrough_view.card(at)
    lesson.formula("walkthrough")
    lesson.sources("walkthrough")
