"""Reports: tables and figures drawn from records alone, found by the experiment's name."""

REPORTS = {
    "fading-flash": "tides.reports.fading_flash",
    "uea": "tides.reports.uea",
    "physiome": "tides.reports.physiome",
    "random-drop": "tides.reports.random_drop",
    "ablations": "tides.reports.ablations",
    "anytime": "tides.reports.anytime",
    "efficiency": "tides.reports.efficiency",
    "sweep": "tides.reports.sweep",
    "speed": "tides.reports.speed",
    "scale": "tides.reports.scale",
    "zoo": "tides.reports.zoo",
}
