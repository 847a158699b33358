"""Every command that README and documentation show exists, with these options; the cheap ones are run."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks, name, pages
from tides.cli.main import app
from tides.experiments import EXPERIMENTS, config
from tides.reports import REPORTS

_SHELL = ("console", "bash", "")
_PROGRAMS = ("tides", "make", "pip", "python", "torchrun", ".venv/bin/")


def commands() -> list[tuple[str, list[str]]]:
    """(page and line, words) of every command line of a known program."""
    found = []
    for page in pages():
        for block in blocks(page):
            if block.language not in _SHELL or block.order == "skip":
                continue
            for offset, line in enumerate(block.text.splitlines()):
                text = re.sub(r" [<>]+ \S+", "", line.removeprefix("$ "))
                if text.startswith(_PROGRAMS) and not (block.language == "console" and not line.startswith("$ ")):
                    found.append((f"{name(page)}:{block.line + offset + 1}", shlex.split(text, comments=True)))
    return found


COMMANDS = commands()


def parse(command: Any, words: list[str], path: str) -> Any:
    """The command's own parser on these words; nothing is executed. Returns the context of the innermost command."""
    if hasattr(command, "resolve_command"):
        context = command.context_class(command, info_name=path)
        verb, inner, rest = command.resolve_command(context, words)
        return parse(inner, rest, f"{path} {verb}")
    try:
        return command.make_context(path, list(words))
    except Exception as error:
        # Asking for help ends parsing early; anything else is a mistake on the page.
        if type(error).__name__ == "Exit":
            return None
        raise


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 30
    programs = {words[0] for _, words in COMMANDS}
    assert {"tides", "make", "pip"} <= programs


@pytest.mark.parametrize(("where", "words"), [c for c in COMMANDS if c[1][0] == "tides"], ids=lambda x: str(x))
def test_tides_commands_parse(where: str, words: list[str]) -> None:
    context = parse(get_command(app), words[1:], "tides")
    if context is None or words[1] not in ("run", "report"):
        return
    chosen = context.params
    assert chosen["experiment"] in (EXPERIMENTS if words[1] == "run" else REPORTS), where
    if words[1] == "run":
        variant = chosen["variant"] or config.default_variant(chosen["experiment"])
        config.load(chosen["experiment"], variant, quick=chosen["quick"], settings=list(chosen["settings"] or []))


@pytest.mark.parametrize(("where", "words"), [c for c in COMMANDS if c[1][0] == "torchrun"], ids=lambda x: str(x))
def test_torchrun_commands_parse(where: str, words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    found = get_args_parser().parse_args(words[1:])
    assert found.module == (found.training_script == "tides"), where
    if found.module:
        parse(get_command(app), found.training_script_args, "tides")


@pytest.mark.parametrize(("where", "words"), [c for c in COMMANDS if c[1][0] == "make"], ids=lambda x: str(x))
def test_make_targets_exist(where: str, words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert words[1] in targets, where


@pytest.mark.parametrize(("where", "words"), [c for c in COMMANDS if c[1][0] == "pip"], ids=lambda x: str(x))
def test_extras_exist(where: str, words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirement = words[-1]
    assert requirement.startswith((".", project["name"])), where
    extras = re.search(r"\[(.*)\]", requirement)
    assert set(extras[1].split(",") if extras else []) <= set(project["optional-dependencies"]), where


@pytest.mark.parametrize(
    ("where", "words"),
    [c for c in COMMANDS if c[1][0].startswith((".venv", "python"))],
    ids=lambda x: str(x),
)
def test_paths_of_other_commands_exist(where: str, words: list[str]) -> None:
    for word in words[1:]:
        if "/" in word or word in ("src", "tests", "examples"):
            assert (ROOT / word).exists(), where


# These pages are about the options of other programs, too: ray, srun and torchrun.
OTHERS = ("docs/guide/cluster.md", "docs/guide/several-processes.md")


def options(command: Any) -> set[str]:
    """Every option of a command and of the commands below it."""
    found = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for verb in command.list_commands(context):
            found |= options(command.get_command(context, verb))
    return found


@pytest.mark.parametrize("page", [page for page in pages() if name(page) not in OTHERS], ids=name)
def test_options_in_the_text_exist(page: Path) -> None:
    known = options(get_command(app)) | {"--help", "--debug"}
    assert {"--seeds", "--late", "--cellml"} <= known
    shown = set(re.findall(r"`(--[a-z][a-z0-9-]*)", page.read_text(encoding="utf-8")))
    assert not shown - known


def test_wrong_commands_are_noticed() -> None:
    for words in (["run", "fading-flash", "--sedes", "3"], ["data", "lost"], ["run"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(get_command(app), words, "tides")


@pytest.mark.parametrize("words", [["doctor"], ["data", "list"]])
def test_cheap_commands_run(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
