"""What the figures of a run are called, their units, and what each means in one sentence, to stand beside it on every screen.

The figures themselves are in `specdec.metrics`; the names here are its field names. The words are in assets/texts (metric.*).
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.texts import localised, text


@dataclass(frozen=True)
class Metric:
    """unit: "" for a text or a bare number, "%" for a share of 1."""

    name: str
    unit: str

    @property
    def title(self) -> str:
        """On screen."""
        return text(f"metric.{self.name}")

    @property
    def definition(self) -> str:
        """One sentence, for hovering."""
        return text(f"metric.{self.name}.means")


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
        return localised(f"{1000 * value:.3g} ms" if value < 0.9995 else f"{value:.2f} s")
    number = localised(str(value) if isinstance(value, int) else f"{value:.1f}" if unit == "tokens/s" else f"{value:.2f}")
    return f"{number}×" if unit == "×" else f"{number} {text(f'unit.{unit}')}" if unit else number


_UNITS = {
    "method": "",
    "finish_reason": "",
    "prompt_tokens": "tokens",
    "new_tokens": "tokens",
    "target_passes": "",
    "drafted": "tokens",
    "judged": "tokens",
    "accepted": "tokens",
    "acceptance_rate": "",
    "draft_utilisation": "%",
    "mean_acceptance_length": "tokens",
    "mean_draft_length": "tokens",
    "mean_overlap": "",
    "expected_acceptance_rate": "",
    "expected_acceptance_error": "",
    "tokens_per_second": "tokens/s",
    "seconds_to_first_token": "s",
    "seconds_prefill": "s",
    "seconds_decode": "s",
    "seconds_total": "s",
    "seconds_record": "s",
    "share_draft": "%",
    "share_verify": "%",
    "share_judge": "%",
    "share_other": "%",
    "plain_step_seconds": "s",
    "cost_coefficient": "",
    "verify_ratio": "",
    "round_cost": "plain steps",
    "speedup": "×",
    "predicted_speedup": "×",
}
METRICS: dict[str, Metric] = {name: Metric(name, unit) for name, unit in _UNITS.items()}
