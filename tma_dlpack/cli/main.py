"""The program ``tma-dlpack``, which finds a command, reads its arguments and prints its errors."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import tma_dlpack as tma
from tma_dlpack.cli import output
from tma_dlpack.cli.table import (
    EXIT_NOTHING,
    EXIT_OK,
    EXIT_REFUSED,
    HIDDEN,
    PRINTED,
    Command,
    UsageError,
    commands,
    did_you_mean,
)
from tma_dlpack.public import raise_as_usual
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError

if TYPE_CHECKING:
    import argparse

# The exit statuses are 128 + SIGINT and 128 + SIGPIPE. Shells report the status 128 + N for a
# process that signal N ended.
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    The status is 130 after Ctrl-C. The status is 141 if the program that reads the output through a
    pipe closed the pipe before all output was written.
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the shell closed this stream, as in `>&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    try:
        raise_as_usual()
        try:
            status = _run(words)
        except (TmaError, UsageError, OSError, ValueError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            status = _failed(words, error)
        sys.stdout.flush()  # raises an error for a closed pipe or a full disk
        return status
    except BrokenPipeError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        _drop_output()
        output.failure(sys.stderr, False, _message(error))
        return EXIT_NOTHING


def _drop_output() -> None:
    """Redirect standard output to the null device, so that Python's flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def program() -> str:
    """Return the words that start this program: ``tma-dlpack`` or ``python -m tma_dlpack``.

    >>> program()
    'python -m tma_dlpack'
    """
    called = Path(sys.argv[0]).stem
    return called if called == "tma-dlpack" else "python -m tma_dlpack"


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        output.write(output.STDOUT, f"tma_dlpack {tma.__version__}\n")
        return EXIT_OK
    if not words or words[0] in ("-h", "--help", "help"):
        if words[1:]:
            return _run([words[1], "--help"])
        output.write(output.STDOUT if words else sys.stderr, overview())
        return EXIT_OK if words else EXIT_NOTHING
    known = commands()
    if words[0] not in known:
        kind = "option" if words[0][:1] == "-" else "command"
        raise UsageError(f"there is no {kind} {words[0]}{did_you_mean(words[0], known)}")
    command = known[words[0]]
    if any(word in ("-h", "--help") for word in own(command, words)):
        output.write(output.STDOUT, help_of(command))
        return EXIT_OK
    return command.run(_read(command, words[1:]))


# -- help -----------------------------------------------------------------------------------------


def overview() -> str:
    """Return the help of the program."""
    lines = [textwrap.fill(str(tma.__doc__), 100), "", f"usage: {program()} COMMAND ...", ""]
    heading = None
    for command in commands().values():
        if command.heading != heading:
            lines += [""] * (heading is not None) + [f"{command.heading}:"]
            heading = command.heading
        lines.append(f"  {command.name:<12}{command.about}")
    lines += ["", f"{program()} COMMAND --help has the options and examples of a command"]
    lines += ["", "options:", "  --version   print the version", f"exit status: {PRINTED}"]
    return "\n".join(lines) + "\n"


def help_of(command: Command) -> str:
    """Return the help of a command."""
    return _parser(command).format_help()


#: argparse's `nargs` -> how the usage line shows a word that may be omitted or repeated.
_NUMBER = {"?": "[{}]", "*": "[{}...]", "+": "{}..."}


def _usage(command: Command) -> str:
    """Return the usage line of a command.

    The line has the command's words and required flags. ``[OPTIONS]`` represents all other flags.
    """
    words, optional = [], False
    for entry in command.shown():
        settings = entry.settings
        metavar = settings.get("metavar") or entry.names[-1].lstrip("-").upper()
        if not entry.is_flag:
            words.append(_NUMBER.get(settings.get("nargs", ""), "{}").format(metavar))
        elif settings.get("required"):
            words.append(f"{entry.names[-1]} {metavar}")
        else:
            optional = True
    if command.after_dashes:
        words.append(("[-- {}]" if words else "-- {}").format(command.after_dashes))
    return " ".join([program(), command.name, *["[OPTIONS]"] * optional, *words])


def _parser(command: Command) -> argparse.ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    examples = "\n".join(f"  {program()} {example}" for example in command.examples)
    status = textwrap.fill(f"exit status: {command.status}", 90)
    about = command.about + (f".\n\n{textwrap.fill(command.more, 90)}" if command.more else "")
    # `output.write` colours the help. argparse also colours the help from Python 3.14 on, so the
    # colours of argparse are switched off.
    more: dict[str, bool] = {"color": False} if sys.version_info >= (3, 14) else {}
    parser = Parser(
        prog=f"{program()} {command.name}",
        usage=_usage(command),
        description=about,
        epilog=f"examples:\n{examples}\n\n{status}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **more,  # type: ignore[arg-type]
    )
    for entry in command.options():
        # argparse hides an option only if the option's help is the object SUPPRESS itself.
        # `entry.about` is another string with the same text, so it is replaced by SUPPRESS.
        hidden = {"help": argparse.SUPPRESS} if entry.about == HIDDEN else {}
        parser.add_argument(*entry.names, **{**entry.settings, **hidden})
    return parser


# -- arguments ------------------------------------------------------------------------------------


def own(command: Command, words: list[str]) -> list[str]:
    """Return the words before ``--``, which are the command's own words.

    If the command allows no words after ``--``, return all words.
    """
    if command.after_dashes and "--" in words:
        return words[: words.index("--")]
    return words


def _read(command: Command, words: list[str]) -> argparse.Namespace:
    """Read the arguments of a command. `options.program` gets the words after ``--``."""
    ours = own(command, words)
    try:
        options, unknown = _parser(command).parse_known_args(_joined(ours))
    except UsageError as error:
        raise UsageError(_in_our_words(str(error))) from None
    if unknown:
        flags = [name for option in command.options() for name in option.names]
        word = unknown[0].partition("=")[0]
        kind = "option" if word[:1] == "-" else "argument"
        raise UsageError(f"{command.name} has no {kind} {word}{did_you_mean(word, flags)}")
    options.command = command.name
    if command.after_dashes:
        options.program = words[len(ours) + 1 :]
    # HTML and JSON cannot both be written to standard output.
    given = vars(options)
    report_to = given.get("out") or (None if given.get("program") else output.STDOUT)
    if given.get("html") == report_to == output.STDOUT and options.json:
        raise UsageError("--json and --html - both write to standard output; name a file for one")
    return options


def _joined(words: Sequence[str]) -> list[str]:
    """Join a flag and a negative number, because argparse would read the number as an option.

    For example, the words ``--coords -4,0`` become ``--coords=-4,0``.

    >>> _joined(["--coords", "-4,0", "-"])
    ['--coords=-4,0', '-']
    """
    found: list[str] = []
    for word in words:
        if found and found[-1][:2] == "--" and word[:1] == "-" and word[1:2].isdigit():
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _in_our_words(message: str) -> str:
    """Rewrite an error message of argparse in this program's style.

    >>> _in_our_words("the following arguments are required: --shape, --dtype")
    '--shape and --dtype are missing'
    """
    missing = message.removeprefix("the following arguments are required: ")
    if missing != message:
        names = missing.split(", ")
        listed = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
        return f"{listed} {'is' if len(names) == 1 else 'are'} missing"
    message = message.removeprefix("argument ")
    for kind, name in (("int", "an integer"), ("float", "a number")):
        message = re.sub(rf"invalid {kind} value: ('.*')", rf"\1 is not {name}", message)
    return message


# -- errors ---------------------------------------------------------------------------------------


def _failed(words: list[str], error: Exception) -> int:
    """Print an error, and return the exit status. With ``--json``, print the error as JSON."""
    message = _message(error)
    violations = error.violations if isinstance(error, TmaPreconditionError) else ()
    command = commands().get(words[0]) if words else None
    ours = own(command, words) if command else words
    # A message that ends in a question, such as "did you mean check?", needs no reference to
    # --help.
    if isinstance(error, UsageError) and message[-1:] != "?":
        called = f"{program()} {command.name}" if command else program()
        message += f"; see {called} --help"
    to_stderr = command is not None and command.runs_program
    output.failure(sys.stderr if to_stderr else sys.stdout, "--json" in ours, message, violations)
    if violations:
        return output.status_of(violations)
    return EXIT_REFUSED if isinstance(error, TmaError) else EXIT_NOTHING


def _message(error: Exception) -> str:
    """Return the text of an error, without class names, errno numbers and the rule id ARGUMENT."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return where + error.strerror[0].lower() + error.strerror[1:]
    return str(error).replace("\n  rule: ARGUMENT", "")
