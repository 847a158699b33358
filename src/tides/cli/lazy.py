"""A command group whose verbs are modules, imported when they are needed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


class _LazyGroup(TyperGroup):
    modules: ClassVar[dict[str, str]]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.modules:
            return None
        command = get_command(import_module(self.modules[cmd_name]).app)
        command.name = cmd_name
        # Completion of a shell belongs to the whole command, not to a verb.
        command.params = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
        return command


def _nothing() -> None:
    """Typer builds a group only around a callback; the verbs do the work."""


def lazy_app(
    modules: dict[str, str], *, help: str, epilog: str | None = None, options: Callable[..., None] = _nothing
) -> typer.Typer:
    """A typer application over `{verb: module}`; each module holds a `typer.Typer` called `app`.

    A module with a single command becomes that command, one with several (or a lazy app of its own) a group. Verb
    modules import nothing heavy at the top, so that every `--help` answers at once. The arguments of `options` are the
    options before the verb.
    """
    group = type("LazyGroup", (_LazyGroup,), {"modules": modules})
    app = typer.Typer(
        cls=group,
        help=help,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    return app
