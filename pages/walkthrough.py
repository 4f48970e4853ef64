"""What happens in one round? The guide's example, card by card, run by the real loop over two small tables."""

from __future__ import annotations

from specdec.ui import lesson, looks, session, walkthrough_view

session.lease()
with lesson.page("walkthrough", intro=walkthrough_view.step() == 0):
    at = walkthrough_view.steps()
    if at == walkthrough_view.DICE:
        walkthrough_view.dice()
    elif at == walkthrough_view.REAL:
        walkthrough_view.real(poll=looks.pause(walkthrough_view.own_job()))
    else:
        walkthrough_view.card(at)
    lesson.formula("walkthrough")
    lesson.sources("walkthrough")
