"""The command line: one short file per verb; see `tides.cli.main`."""
