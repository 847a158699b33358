"""Experiments: one module per table or figure, found by name; see `tides.experiments.runner`."""

EXPERIMENTS = {
    "fading-flash": "tides.experiments.fading_flash",
    "physiome": "tides.experiments.physiome",
    "uea": "tides.experiments.uea",
    "random-drop": "tides.experiments.random_drop",
    "ablations": "tides.experiments.ablations",
    "anytime": "tides.experiments.anytime",
    "efficiency": "tides.experiments.efficiency",
}
