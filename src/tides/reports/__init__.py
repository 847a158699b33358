"""Reports: tables and figures drawn from records alone, found by the experiment's name."""

REPORTS = {
    "fading-flash": "tides.reports.fading_flash",
    "speed": "tides.reports.speed",
}
