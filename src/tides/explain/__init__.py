"""Why a model said what it said: its own clock, attributions, counterfactuals; and when to look next."""

from tides.explain.attribution import Attribution, attribute
from tides.explain.clock import Clock, LayerClock, clock, layer_clock, response_rate
from tides.explain.counterfactuals import LaterAnswers, Removal, remove_each, sampled_later
from tides.explain.next_time import Suggestion, suggest_next_time, with_observation
from tides.explain.plots import plot_attribution, plot_clock, plot_later, plot_removal, plot_suggestion

__all__ = [
    "Attribution",
    "Clock",
    "LaterAnswers",
    "LayerClock",
    "Removal",
    "Suggestion",
    "attribute",
    "clock",
    "layer_clock",
    "plot_attribution",
    "plot_clock",
    "plot_later",
    "plot_removal",
    "plot_suggestion",
    "remove_each",
    "response_rate",
    "sampled_later",
    "suggest_next_time",
    "with_observation",
]
