"""The table of commands. A row has the help, options, examples and function of a command."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse

EXIT_OK, EXIT_REFUSED, EXIT_NOTHING = 0, 1, 2
# Descriptions of the exit statuses in the help. `JUDGED` is for commands that check their input,
# and `PRINTED` for commands that only print.
JUDGED = "0 accepted; 1 refused; 2 nothing could be read, or wrong use"
PRINTED = "0 printed; 2 wrong use"

#: The `about` of an option that the help does not list. The string equals argparse.SUPPRESS.
HIDDEN = "==SUPPRESS=="

#: The headings of the groups of commands in ``--help``.
HEADINGS = MAPS, FAILURES, MACHINE = (
    "Make and see a map",
    "Find out why it failed",
    "This installation and its GPU",
)


class UsageError(Exception):
    """Error of a command line that cannot be read."""


class Option(NamedTuple):
    """A flag or a positional word of a command."""

    #: The names of a flag, such as ("-o", "--out"), or the name of a positional word, which does
    #: not begin with a minus.
    names: tuple[str, ...]
    #: Keyword arguments of `argparse.ArgumentParser.add_argument`.
    settings: dict[str, Any]
    #: Possible values, for completion in shells; () if they cannot be listed.
    values: tuple[str, ...]

    @property
    def is_flag(self) -> bool:
        """Whether this is a flag, whose name begins with a minus."""
        return self.names[0][0] == "-"

    @property
    def takes_value(self) -> bool:
        """Whether the option has a value on the command line."""
        return self.settings.get("action") != "store_true"

    @property
    def about(self) -> str:
        """The option's text in ``--help``."""
        return str(self.settings["help"]).replace("%%", "%")


# An option, or a function that returns options. The function's imports run only when it is called.
Options = Option | Callable[[], Iterable[Option]]
Run = Callable[["argparse.Namespace"], int]


class Command(NamedTuple):
    """A row of the table: one command."""

    name: str
    about: str
    run: Run
    declared: tuple[Options, ...]
    examples: tuple[str, ...]
    status: str
    more: str
    runs_program: bool
    #: The name of the words after ``--`` in the usage line; "" if no words may follow ``--``.
    after_dashes: str
    #: The entry of `HEADINGS` under which the command is listed.
    heading: str

    def options(self) -> Iterator[Option]:
        """Yield the command's options, including those that functions return."""
        for entry in self.declared:
            if isinstance(entry, Option):
                yield entry
            else:
                yield from entry()

    def shown(self) -> list[Option]:
        """Return the options that the command's help lists."""
        return [entry for entry in self.options() if entry.about != HIDDEN]


_COMMANDS: dict[str, Command] = {}


def option(
    name: str,
    about: str,
    *,
    short: str = "",
    values: Iterable[str] = (),
    closed: bool = False,
    **settings: Any,
) -> Option:
    """Return a flag, or a positional word if `name` does not begin with a minus.

    Shells complete the entries of `values`. If `closed` is True, the help lists the values, and any
    other value is refused. `settings` are passed to `argparse.ArgumentParser.add_argument`.
    """
    values = tuple(values)
    if closed:
        settings["type"] = _one_of(values)
        about = f"{about}: {', '.join(values)}"
    # argparse formats the help with the operator %, so percent signs are doubled.
    settings["help"] = about.replace("%", "%%")
    return Option((short, name) if short else (name,), settings, values)


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def read(word: str) -> str:
        if word in values:
            return word
        near = did_you_mean(word, values)
        raise wrong_word(f"{word!r} is not one of {', '.join(values)}{near}")

    return read


def wrong_word(message: str) -> Exception:
    """Return the error for a value that an option does not accept."""
    import argparse

    return argparse.ArgumentTypeError(message)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known word.

    Return "" if no known word is similar.

    >>> did_you_mean("chek", ["check", "draw"])
    '; did you mean check?'
    """
    import difflib

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def command(
    about: str,
    *options: Options,
    heading: str,
    examples: Iterable[str],
    status: str = JUDGED,
    more: str = "",
    runs_program: bool = False,
    after_dashes: str = "",
) -> Callable[[Run], Run]:
    """Return a decorator that adds a function to the table of commands.

    The command's name is the function's name without underscores at its ends.

    Parameters
    ----------
    about : str
        One line of help, in lower case.
    *options : Option or function
        Options, or functions that return options. A function is called only for this command's
        help and arguments, so that other commands do not import the modules of the function.
    heading : str
        The entry of `HEADINGS` under which the command is listed.
    examples : iterable of str
        At least one whole command line, without the program's name. tests/cli/test_examples.py runs
        each example in a folder that contains the files of tests/cli/examples.
    status : str
        The description of the exit statuses in ``--help``.
    more : str
        Further text of ``--help``.
    runs_program : bool
        Whether the words after ``--`` are a program that the command runs. The words become
        `options.program`. The command writes its own output to standard error, so that standard
        output has only the program's output.
    after_dashes : str
        The name of the words after ``--`` in the usage line, such as "NVCC FLAGS...". The words
        become `options.program`.
    """

    def added(run: Run) -> Run:
        name = run.__name__.strip("_")
        _COMMANDS[name] = Command(
            name, about, run, options, tuple(examples), status, more, runs_program,
            after_dashes or "PROGRAM ARGS..." * runs_program, heading,
        )  # fmt: skip
        return run

    return added


def commands() -> dict[str, Command]:
    """Return all commands by name, in the order of ``--help``.

    The commands of every file ``commands.py`` in a folder of the package are included.
    """
    # Importing a module runs its `@command` decorators, which fill `_COMMANDS`.
    rooms = sorted(path.parent.name for path in Path(__file__).parents[1].glob("*/commands.py"))
    for module in ("cli.maps", *(f"{room}.commands" for room in rooms), "cli.machine"):
        importlib.import_module(f"tma_dlpack.{module}")
    listed = sorted(_COMMANDS.values(), key=lambda command: HEADINGS.index(command.heading))
    return {command.name: command for command in listed}
