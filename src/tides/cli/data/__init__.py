"""`tides data`: datasets. A verb is one line in `VERBS` and one file beside this one, holding `app`."""

from tides.cli.lazy import lazy_app

VERBS: dict[str, str] = {
    "list": "tides.cli.data.list",
    "get": "tides.cli.data.get",
    "verify": "tides.cli.data.verify",
    "simulate": "tides.cli.data.simulate",
    "jgd": "tides.cli.data.jgd",
    "describe": "tides.cli.data.describe",
}

app = lazy_app(VERBS, help="List, fetch, check, describe and simulate datasets.")
