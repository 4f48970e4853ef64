"""The two loops: plain decoding and speculative decoding with exact verification.

One round, with L tokens committed, the newest of which is in no cache yet [Leviathan 2023, algorithm 1]:

1. draft    the drafter proposes x_1..x_γ and hands back the q of each;
2. verify   the target runs once over [newest, x_1..x_γ] and yields p_1..p_{γ+1};
3. judge    left to right: greedy keeps x_i while it is the argmax of p_i, sampling keeps it while u_i < p_i(x_i)/q_i(x_i). The first
            rejected position takes a replacement, the rest is discarded; if none is rejected, a bonus token comes from p_{γ+1};
4. settle   both caches go back to the committed tokens.

Plain decoding is the same loop with a drafter that proposes nothing, so that a comparison compares nothing but the drafts.
"""

from __future__ import annotations

import datetime
import platform
import time
from dataclasses import dataclass
from typing import Any, Callable, Generator, Iterator

import torch
from torch import Tensor

from specdec.adaptive import AdaptiveLength, Experience
from specdec.ahead import AheadDraws
from specdec.drafters import Drafter, Request, make_drafter
from specdec.errors import SettingsError
from specdec.judging import judge
from specdec.passes import Pass, drive
from specdec.prompt_reader import PromptReader
from specdec.recorder import Recorder
from specdec.sampling import Draws, SamplingRule
from specdec.trace import FinishReason, Method, Round, Seconds, Settings, Totals, Trace, counts


class Stopped(Exception):
    """Somebody asked the run to stop."""


class StopSign:
    """Whether a run is to stop. It knows nothing of the run: who holds it does not keep caches in memory."""

    def __init__(self, asked: Callable[[], bool] | None) -> None:
        self._asked = asked
        self.up = False

    def check(self) -> None:
        """Called before every model pass; raises Stopped."""
        if self.up or (self._asked is not None and self._asked()):
            raise Stopped


class Run(Iterator[Round]):
    """One run, round by round. Iterate over it; `trace()` is what has happened so far.

    Raises SettingsError before the first round when prompt or settings cannot be used.
    """

    def __init__(
        self,
        pair: Any,
        prompt: str,
        settings: Settings,
        *,
        method: Method,
        drafter: Drafter | None = None,
        stop: Callable[[], bool] | None = None,
        record: bool = True,
        time_plain: bool = False,
    ) -> None:
        name = "none" if method == "plain" else drafter.name if drafter else settings.drafter or pair.drafters[0]
        if method == "plain":
            settings = settings.replace(draft_length=0, adaptive=False)
        self.pair, self.prompt, self.method = pair, prompt, method
        self.settings = settings.replace(drafter=name)
        self.drafter = drafter or make_drafter(name, pair, self.settings)
        self.info = pair.info(name)
        self.prompt_ids = list(pair.encode(prompt, raw=settings.raw))
        self._room = _room(self.prompt_ids, pair.context)
        self.committed = list(self.prompt_ids)
        self.rounds: list[Round] = []
        self.finish_reason: FinishReason | None = None
        self.seconds = self.seconds_to_first_token = 0.0
        self.shared = 1
        self._limit = min(self.settings.max_new_tokens, self._room)
        self._rule = SamplingRule.of(self.settings)
        self.ahead = goes_ahead(pair, self.drafter)
        self._draws = AheadDraws(self.settings.seed, pair.target.device) if self.ahead else Draws(self.settings.seed)
        self._recorder = Recorder(pair.texts, full=record, greedy=self._rule.greedy)
        self._sign = StopSign(stop)
        self._lengths: dict[str, AdaptiveLength] = {}  # by the drafter's way, where γ is chosen round by round
        self.way = ""  # in which the drafter drafts this round, see `Drafter.way`
        self._plain_step, self._time_plain = pair.plain_step_seconds, time_plain
        self._verify = Verify(pair.target, wait=not self.ahead)
        feeds = 1 + self.settings.draft_length
        self.reader = PromptReader(pair, self.prompt_ids, self.drafter, verify=self._verify, feeds=feeds, check=self._sign.check)
        self._created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

    # What a caller does with a run

    @property
    def record(self) -> bool:
        """Whether the rounds to come are recorded in full. It may be changed between two rounds."""
        return self._recorder.full

    @record.setter
    def record(self, full: bool) -> None:
        self._recorder.full = full

    def stop(self) -> None:
        """End before the next model pass; what is made stays."""
        self._sign.up = True

    def __iter__(self) -> "Run":
        return self

    def __next__(self) -> Round:
        if self.finish_reason is not None:
            raise StopIteration
        begun = time.perf_counter()
        try:
            if not self.reader.done:
                self.reader.read()
            with torch.inference_mode():
                round_ = drive(self.steps())
        except Stopped:
            self.end_stopped()
            raise StopIteration from None
        self.count_time(time.perf_counter() - begun)
        self.remember()
        return round_

    def verifies(self, wanted: Pass) -> bool:
        """Whether `wanted` is the target's pass over the drafts, behind which a round ends."""
        return wanted.together == self._verify

    def count_time(self, seconds: float) -> None:
        """The round that has just ended, and all that belongs to it, took so long."""
        self.seconds += seconds
        if len(self.rounds) == 1:
            self.seconds_to_first_token = self.seconds - self.rounds[0].seconds.record

    def note_shared(self, runs: int) -> None:
        """The round that has just ended was one of so many whose passes were done together."""
        self.shared = max(self.shared, runs)

    def remember(self) -> None:
        """The round that has just ended had the device to itself: its times and verdicts help later runs to choose γ.

        With `time_plain` a plain step is timed behind the last one, for what the run is compared with must have met the same machine.
        """
        last = self.rounds[-1]
        self._experience.learn(len(last.drafts), last.accepted, last.judged, last.seconds.draft, last.seconds.verify)
        again = getattr(self.pair, "time_plain_step", None)
        if again and self._time_plain and self.finish_reason and self.shared == 1:
            self._plain_step = again()

    def end_stopped(self) -> None:
        """Somebody has stopped the run: the round that was begun is not in the trace, nor is its time."""
        self._finish("stopped")
        self.seconds = max(self.seconds, self.seconds_prefill)

    @property
    def _experience(self) -> Experience:
        """What the pair knows of this drafter, and of the way in which it drafts this round."""
        kind = (self.settings.drafter, self.settings.exit_layers, self.settings.ngram, self._rule.greedy, self.way)
        return self.pair.experience.setdefault(kind, Experience())

    def _chooser(self) -> AdaptiveLength | None:
        """What chooses γ of this round, made when it is asked for the first time; None where γ is fixed."""
        if self.settings.adaptive and self.way not in self._lengths:
            self._lengths[self.way] = AdaptiveLength(
                self.settings.draft_length, plain_seconds=self.pair.plain_step_seconds, experience=self._experience
            )
        return self._lengths.get(self.way)

    @property
    def seconds_prefill(self) -> float:
        """Of reading the prompt."""
        return self.reader.seconds

    @property
    def output_ids(self) -> list[int]:
        return self.committed[len(self.prompt_ids) :]

    # What happens inside

    def wait(self, seconds: float) -> None:
        """So much of its time has gone by without a round, as happens while a long prompt is read."""
        self.seconds += seconds

    def steps(self) -> Generator[Pass, Tensor, Round]:
        """One round: yields the passes that it needs, is sent their logits, returns the round. The prompt is in the caches."""
        start = len(self.committed)
        # One place is for the token that the target adds itself.
        room = self._limit - len(self.output_ids) - 1
        self.way = self.drafter.way(self.committed)
        chooser = self._chooser()
        count = chooser.choose(room) if chooser else min(self.settings.draft_length, room)
        if self.ahead:
            self._draws.begin(count)
        proposal = yield from self.drafter.steps(
            Request(self.committed, count, self._rule, self._draws, self.record, self._sign.check)
        )
        self._sign.check()
        if self.ahead:
            self._draws.proposed()
        fed = [self.committed[-1], *proposal.ids]
        verify = Pass(self._verify, self.reader.target, fed, keep=len(fed))
        logits = yield verify
        verified = time.perf_counter()
        if self.ahead:
            verdicts = self._draws.judge(proposal, logits=logits, rule=self._rule, eos_ids=self.pair.eos_ids)
            proposal, p, verify.seconds = verdicts.proposal, verdicts.p, verdicts.verify
            verified = time.perf_counter() - verdicts.judge
        else:
            p = None if self._rule.greedy else self._rule.probabilities(logits)
            verdicts = judge(proposal, logits=logits, p=p, draws=self._draws, eos_ids=self.pair.eos_ids)
        new = proposal.ids[: verdicts.accepted] + ([] if verdicts.token is None else [verdicts.token])
        self.committed.extend(new)
        kept = start + verdicts.accepted  # positions in the target's cache that stay: all that is committed but the newest
        if verdicts.token is None:
            kept = len(self.committed) - 1
        self.reader.target.crop(kept)
        self.drafter.settle(kept)
        judged = time.perf_counter()
        drafts, outcome = self._recorder.describe(proposal, verdicts, logits=logits, p=p)
        seconds = Seconds(
            draft=tuple(round(s, 7) for s in proposal.seconds),
            verify=round(verify.seconds, 7),
            judge=round(judged - verified, 7),
            record=round(time.perf_counter() - judged, 7),
        )
        round_ = Round(index=len(self.rounds), start=start, drafts=drafts, outcome=outcome, seconds=seconds)
        self.rounds.append(round_)
        if chooser:
            chooser.learn(len(drafts), round_.accepted, round_.judged, seconds.draft, seconds.verify)
        if new[-1] in self.pair.eos_ids:
            self._finish("eos")
        elif len(self.output_ids) >= self._limit:
            self._finish("length" if self._limit == self.settings.max_new_tokens else "context")
        return round_

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self.reader.let_go()
        self.drafter = Drafter()

    def trace(self) -> Trace:
        """All of the run so far as one record; a run that has not ended counts as stopped."""
        return Trace(
            method=self.method,
            settings=self.settings,
            pair=self.info,
            device=self.pair.device_name,
            versions=versions(),
            created=self._created,
            prompt=self.prompt,
            prompt_ids=tuple(self.prompt_ids),
            output_ids=tuple(self.output_ids),
            output_text=self.pair.texts.decode([i for i in self.output_ids if i not in self.pair.eos_ids]),
            finish_reason=self.finish_reason or "stopped",
            seconds_to_first_token=round(self.seconds_to_first_token, 7),
            rounds=tuple(self.rounds),
            totals=self._totals(),
            # Beside the passes that many runs shared, the plain step of a run alone is no measure.
            plain_step_seconds=self._plain_step if self.shared == 1 else None,
            read_bandwidth=getattr(self.pair, "read_bandwidth", None),
            shared=self.shared if self.shared > 1 else None,
        )

    def _totals(self) -> Totals:
        rounds = self.rounds
        draft = sum(sum(r.seconds.draft) for r in rounds)
        verify = sum(r.seconds.verify for r in rounds)
        judging = sum(r.seconds.judge for r in rounds)
        record = sum(r.seconds.record for r in rounds)
        named = self.seconds_prefill + draft + verify + judging + record
        return Totals(
            prompt_tokens=len(self.prompt_ids),
            new_tokens=len(self.output_ids),
            seconds=round(self.seconds, 7),
            seconds_prefill=round(self.seconds_prefill, 7),
            seconds_draft=round(draft, 7),
            seconds_verify=round(verify, 7),
            seconds_judge=round(judging, 7),
            seconds_record=round(record, 7),
            seconds_other=round(max(0.0, self.seconds - named), 7),
            **counts(rounds),
        )


def goes_ahead(pair: Any, drafter: Drafter) -> bool:
    """Whether the decisions of a run are made on the device: on a GPU, by a drafter that does with tokens no host has seen."""
    device = getattr(pair.target, "device", None)
    return getattr(device, "type", "cpu") == "cuda" and (drafter.goes_ahead or type(drafter) is Drafter)


@dataclass(frozen=True)
class Verify:
    """The target's passes, waited for. Those of all runs over one target are equal, so that they can share a pass."""

    target: Any
    wait: bool = True

    def __call__(self, passes: list[Pass]) -> list[Tensor]:
        logits = self.target.together(passes)
        if self.wait:
            self.target.synchronize()
        return logits


def _room(prompt_ids: list[int], context: int) -> int:
    """How many tokens the context leaves for the output."""
    if not prompt_ids:
        raise SettingsError("the prompt is empty: write at least one character.")
    if len(prompt_ids) >= context:
        raise SettingsError(
            f"the prompt has {len(prompt_ids)} tokens and the models read at most {context}, output included: shorten the prompt."
        )
    return context - len(prompt_ids)


def versions() -> dict[str, str]:
    """Of what made a run."""
    import transformers

    import specdec

    return {
        "specdec": specdec.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def stream(
    pair: Any,
    prompt: str,
    settings: Settings | None = None,
    *,
    drafter: Drafter | None = None,
    stop: Callable[[], bool] | None = None,
    record: bool = True,
    time_plain: bool = False,
) -> Run:
    """Decode speculatively; iterate over the result to get each round as it happens.

    drafter: one of your own in place of settings.drafter. stop: asked before every model pass. record: False leaves out what a trace
    keeps to look at (top tokens, overlap, probabilities of greedy runs), for timing. time_plain: time a plain step behind the run, about
    a quarter of a second that is not counted to it; else the trace has the figure that the pair has.
    """
    options = {"stop": stop, "record": record, "time_plain": time_plain}
    return Run(pair, prompt, settings or Settings(), method="speculative", drafter=drafter, **options)


def stream_plain(
    pair: Any, prompt: str, settings: Settings | None = None, *, stop: Callable[[], bool] | None = None, record: bool = True
) -> Run:
    """The baseline: the target alone, one token a pass, through the same runner."""
    return Run(pair, prompt, settings or Settings(), method="plain", stop=stop, record=record)


def generate(pair: Any, prompt: str, settings: Settings | None = None, **options: Any) -> Trace:
    """`stream` to its end."""
    return _to_the_end(stream(pair, prompt, settings, **options))


def plain(pair: Any, prompt: str, settings: Settings | None = None, **options: Any) -> Trace:
    """`stream_plain` to its end."""
    return _to_the_end(stream_plain(pair, prompt, settings, **options))


def _to_the_end(run: Run) -> Trace:
    for _ in run:
        pass
    return run.trace()
