"""What the figures of a run are called, their units, and what each means in one sentence, to stand beside it on every screen.

The figures themselves are in `specdec.metrics`; the names here are its field names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """title: on screen. unit: "" for a text or a bare number, "%" for a share of 1. definition: one sentence, for hovering."""

    title: str
    unit: str
    definition: str


def show(name: str, value: str | float | None) -> str:
    """The figure `name` as text, with its unit: "0.72", "38 %", "12.3 tokens/s", "1.31×"; "–" for None."""
    unit = METRICS[name].unit
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if unit == "%":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{value:.2f} s"
    number = str(value) if isinstance(value, int) else f"{value:.1f}" if unit == "tokens/s" else f"{value:.2f}"
    return f"{number}×" if unit == "×" else f"{number} {unit}".strip()


METRICS: dict[str, Metric] = {
    "method": Metric("Method", "", "Speculative decoding, or plain decoding with one target pass for every token."),
    "finish_reason": Metric(
        "Ended by",
        "",
        "eos: the model closed the text; length: the number of new tokens; context: no room left; stopped: by somebody.",
    ),
    "prompt_tokens": Metric("Prompt", "tokens", "Tokens of the prompt, chat template included."),
    "new_tokens": Metric("New tokens", "tokens", "Tokens that the run committed after the prompt."),
    "target_passes": Metric("Target passes", "", "Passes of the target after the prompt, one a round."),
    "drafted": Metric("Drafted", "tokens", "Tokens that the drafter proposed, discarded ones included."),
    "judged": Metric(
        "Judged", "tokens", "Drafted tokens that were accepted or rejected; those behind a rejection are discarded, never judged."
    ),
    "accepted": Metric("Accepted", "tokens", "Drafted tokens that the target kept."),
    "acceptance_rate": Metric(
        "Acceptance rate α",
        "",
        "Accepted drafts / judged drafts (accepted and rejected ones), the α of the formulas; discarded drafts do not count.",
    ),
    "draft_utilisation": Metric(
        "Draft utilisation",
        "%",
        "Accepted drafts / all drafted tokens, discarded ones included, never above α; many dashboards call it acceptance rate.",
    ),
    "mean_acceptance_length": Metric(
        "Mean acceptance length τ",
        "tokens",
        "Tokens committed per target pass, replacement or bonus included; plain decoding has 1.",
    ),
    "mean_draft_length": Metric(
        "Mean draft length",
        "tokens",
        "Drafted tokens per round: γ, or less where a round was cut short or the drafter found less to propose.",
    ),
    "mean_overlap": Metric(
        "Mean overlap",
        "",
        "Mean over the judged drafts of Σ min(p, q), what target and draft distribution have in common at that position.",
    ),
    "expected_acceptance_rate": Metric(
        "Expected α",
        "",
        "Mean overlap of the judged drafts, the acceptance rate to expect before the draws; only for sampled runs.",
    ),
    "expected_acceptance_error": Metric(
        "Standard error of α",
        "",
        "How far chance alone moves α away from its expected value, as one standard error; only for sampled runs.",
    ),
    "tokens_per_second": Metric(
        "Speed", "tokens/s", "New tokens / seconds of decoding; neither the prefill nor the recording of the trace counts."
    ),
    "seconds_to_first_token": Metric(
        "Time to first token", "s", "From the start of the run to the first committed new token, prefill included."
    ),
    "seconds_prefill": Metric("Prefill", "s", "Time in which the prompt goes through the models, before the first round."),
    "seconds_decode": Metric("Decoding", "s", "Time of all rounds, after the prefill and without recording the trace."),
    "seconds_total": Metric("Complete answer", "s", "Prefill and decoding together, without recording the trace."),
    "seconds_record": Metric(
        "Recording", "s", "Time spent on writing this very record; it is no part of decoding and in no other figure."
    ),
    "share_draft": Metric("Drafting", "%", "Share of the decoding time that the drafter took."),
    "share_verify": Metric("Verifying", "%", "Share of the decoding time that the passes of the target took."),
    "share_judge": Metric("Judging", "%", "Share of the decoding time that verdicts, replacements and bonus tokens took."),
    "share_other": Metric("Other", "%", "Share of the decoding time between the named parts: the program around them."),
    "plain_step_seconds": Metric(
        "Plain step",
        "s",
        "Median time of one plain target step, measured on this device when the pair was loaded, not during this run.",
    ),
    "cost_coefficient": Metric(
        "Cost coefficient c", "", "Drafting time per drafted token / time of a plain target step; the drafter's price."
    ),
    "verify_ratio": Metric(
        "Verify ratio v", "", "Mean time of a target pass with drafts in it / time of a plain target step; the papers take 1."
    ),
    "round_cost": Metric(
        "Cost of a round", "plain steps", "Decoding time per round / time of a plain target step, judging and the rest included."
    ),
    "speedup": Metric(
        "Speed-up",
        "×",
        "Time of as many plain target steps / decoding time of this run: above 1 faster than plain decoding, below 1 slower.",
    ),
    "predicted_speedup": Metric(
        "Predicted speed-up",
        "×",
        "E / (γ·c + v) with this run's own α, c and v and the γ of each round; judging and other time do not count.",
    ),
}
