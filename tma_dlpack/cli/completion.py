"""The scripts by which shells complete commands, flags and their values."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tma_dlpack.cli.table import HIDDEN, Option, commands

PROGRAM = "tma-dlpack"


def script(shell: str) -> str:
    """Return what a shell reads to complete ``tma-dlpack``: "bash", "zsh" or "fish"."""
    return "\n".join({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()) + "\n"


def _bash() -> Iterator[str]:
    yield "_tma_dlpack() {"
    yield "  local word=${COMP_WORDS[COMP_CWORD]} words="
    yield "  if [ $COMP_CWORD -eq 1 ]; then"
    yield f'    words="{" ".join(commands())} --help --version"'
    yield "  else"
    yield '    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in'
    for command in commands().values():
        for entry in command.options():
            if entry.values and entry.is_flag:
                patterns = " | ".join(f'"{command.name} {name}"' for name in entry.names)
                yield f'      {patterns}) words="{" ".join(entry.values)}" ;;'
    yield '      *) case "${COMP_WORDS[1]}" in'
    for command in commands().values():
        shown = [o for o in command.options() if o.about != HIDDEN]
        words = [word for o in shown for word in (o.names if o.is_flag else o.values)]
        yield f'        {command.name}) words="{" ".join(words)}" ;;'
    yield "      esac ;;"
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield f"complete -o default -F _tma_dlpack {PROGRAM}"


def _zsh() -> Iterator[str]:
    yield f"#compdef {PROGRAM}"
    yield "_tma_dlpack() {"
    yield "  if (( CURRENT == 2 )); then"
    listed = " ".join(shlex.quote(f"{c.name}:{c.about}") for c in commands().values())
    yield f"    local -a commands=({listed})"
    yield "    _describe command commands"
    yield "    return"
    yield "  fi"
    yield "  local command=$words[2]"
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $command in"
    for command in commands().values():
        shown = [entry for entry in command.options() if entry.about != HIDDEN]
        specs = [_zsh_spec(name, entry) for entry in shown for name in entry.names]
        specs += ["*:file:_files"] * all(entry.is_flag for entry in shown)
        yield f"    {command.name}) _arguments {shlex.join(specs)} ;;"
    yield "  esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = _tma_dlpack ]; then _tma_dlpack "$@"'
    yield f"else compdef _tma_dlpack {PROGRAM}; fi"


def _zsh_spec(name: str, entry: Option) -> str:
    about = entry.about.replace("[", "(").replace("]", ")").replace(":", ",")
    values = f"({' '.join(entry.values)})" if entry.values else "_files"
    if not entry.is_flag:
        return f"*:{name}:{values}"
    return f"{name}[{about}]" + (f":{name.lstrip('-')}:{values}" if entry.takes_value else "")


def _fish() -> Iterator[str]:
    first = "__fish_use_subcommand"
    for command in commands().values():
        about = shlex.quote(command.about)
        yield f"complete -c {PROGRAM} -n {first} -f -a {command.name} -d {about}"
    for command in commands().values():
        after = shlex.quote(f"__fish_seen_subcommand_from {command.name}")
        for entry in command.options():
            names = " ".join(
                f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}"
                for name in entry.names
                if entry.is_flag
            )
            values = f"-a {shlex.quote(' '.join(entry.values))}" if entry.values else ""
            takes = ("-x" if entry.values else "-r") if entry.takes_value and entry.is_flag else ""
            words = " ".join(filter(None, (names, takes, values)))
            if words:
                yield f"complete -c {PROGRAM} -n {after} {words} -d {shlex.quote(entry.about)}"
