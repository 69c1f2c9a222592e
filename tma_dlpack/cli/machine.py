"""Commands about this installation and its GPU, and the completion scripts for shells."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from tma_dlpack.cli.output import JSON, hex_lines, show
from tma_dlpack.cli.table import (
    EXIT_OK,
    FAILURES,
    MACHINE,
    PRINTED,
    Option,
    UsageError,
    command,
    commands,
    did_you_mean,
    option,
)


def _ids() -> Iterator[Option]:
    import tma_dlpack as tma

    about, ids = "only these rules, such as BOX_IN_SHAPE", [rule.id for rule in tma.rules()]
    yield option("ids", about, nargs="*", metavar="RULE", values=ids)


@command(
    "list every rule: what it requires, why, and who refuses",
    _ids,
    JSON,
    heading=FAILURES,
    examples=("rules", "rules BOX_RANGE stride_aligned"),
    status=PRINTED,
)
def _rules(options: argparse.Namespace) -> int:
    import tma_dlpack as tma

    # Each word is the id of a rule or the name of a group of rules, in upper or lower case.
    known = {rule.id: rule for rule in tma.rules()}
    groups = {rule.group for rule in known.values()}
    found: list[object] = []
    for word in options.ids:
        if word.upper() not in known and word.lower() not in groups:
            near = did_you_mean(word, [*known, *groups])
            raise UsageError(f"there is no rule {word}{near or '; `rules` alone lists all'}")
        found += tma.rules(word.upper() if word.upper() in known else word.lower())
    found = found or [*known.values()]
    show(options, found, "\n\n".join(map(str, found)))
    return EXIT_OK


@command(
    "make a map, copy a tile, see a refusal; needs no GPU",
    heading=MACHINE,
    examples=("demo",),
    status=PRINTED,
)
def _demo(options: argparse.Namespace) -> int:
    import numpy as np

    import tma_dlpack as tma

    x = np.arange(128 * 64, dtype=np.float16).reshape(128, 64)
    _say('tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")')
    print("   # x: NumPy float16 (128, 64)")
    tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    print(tm)
    print(f"\nits 128 bytes (encoder: {tm.encoder}):")
    print("\n".join(hex_lines(bytes(tm))))

    _say("tma.load_tile(tm, (120, 0)).array   # rows 120..135 of 128: half is out of bounds")
    tile = tma.load_tile(tm, (120, 0))
    filled = int(tile.filled.sum())
    same = np.array_equal(tile.array[:8], x[120:])
    print(f"{tile.array.shape}: {tile.array.size - filled} elements copied, {filled} filled")
    print(f"its first 8 rows equal x[120:]: {same}")

    y = np.zeros((4, 1733), dtype=np.float16)
    _say('tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")')
    print("   # y: NumPy float16 (4, 1733)")
    try:
        tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")
    except tma.TmaPreconditionError as error:
        print(f"TmaPreconditionError: {len(error.violations)} violations\n{error}")
    return EXIT_OK


def _say(code: str) -> None:
    print(f"\n>>> {code}")


@command(
    "list what is installed, and whether the driver or the model encodes",
    JSON,
    heading=MACHINE,
    examples=("doctor",),
    status=PRINTED,
)
def _doctor(options: argparse.Namespace) -> int:
    # The text is made from the dict that --json prints, so text and JSON cannot differ.
    known = _installed()
    show(options, known, "\n".join(_lines(known)))
    return EXIT_OK


def _installed() -> dict[str, Any]:
    """Return the installed packages, the GPUs and the encoder, without importing a framework."""
    import platform

    import numpy as np

    import tma_dlpack as tma
    from tma_dlpack import driver
    from tma_dlpack.dlpack.frameworks import FRAMEWORKS

    found = driver.status()
    # Package -> the DLPack version of its tensors; None for a package that exports no tensors.
    exported: dict[str, str | None] = {
        **{name: row.dlpack for row in FRAMEWORKS for name in row.distributions},
        **dict.fromkeys(("ml_dtypes", "cuda-bindings", "cuda-core", "triton", "ipywidgets")),
    }
    versions = {name: _version(name) for name in exported}
    return {
        "tma_dlpack": tma.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "numpy": np.__version__,
        "extension": _extension(),
        "packages": {
            name: {"version": version, "dlpack": exported[name]}
            for name, version in versions.items()
            if version is not None
        },
        "no_driver": found.reason,
        "gpus": [
            {
                "index": device.index,
                "name": str(device),
                "max_smem_bytes": device.target.max_smem_bytes,
                "has_model": device.target.has_model,
            }
            for device in found.devices
        ],
        "encoder": "driver" if found.reason is None else "model",
    }


def _version(distribution: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extension() -> str:
    """Return "built" if the C extension is used; otherwise return why it is not used."""
    from tma_dlpack.make import extension

    if extension.COMPILED:
        return "built"
    try:
        importlib.import_module("tma_dlpack.native._core")
    except ImportError as error:
        return (
            f"none, because it cannot be imported ({error}); install a C compiler and run pip "
            "install again"
        )
    return "none"


def _lines(known: dict[str, Any]) -> Iterator[str]:
    from tma_dlpack.tables.targets import PROVENANCE

    yield f"tma_dlpack {known['tma_dlpack']}, Python {known['python']}, {known['system']}"
    yield f"NumPy {known['numpy']}, DLPack 1.0 from 2.1 on, legacy before"
    yield f"C extension: {known['extension']}"
    for name, package in known["packages"].items():
        dlpack = f", DLPack {package['dlpack']}" if package["dlpack"] else ""
        yield f"{name} {package['version']}{dlpack}"
    if known["no_driver"] is not None:
        yield known["no_driver"]
        yield f"maps would be encoded by the model of sm_90, {PROVENANCE}"
        return
    for gpu in known["gpus"]:
        model = "has a model" if gpu["has_model"] else "no model: the driver encodes"
        size = f"{gpu['max_smem_bytes']} bytes of shared memory a block"
        yield f"GPU {gpu['index']}: {gpu['name']}, {size}, {model}"
    yield "maps of CUDA tensors would be encoded by the driver"


@command(
    "print the folder of the C and C++ headers",
    heading=MACHINE,
    examples=("include",),
    status=PRINTED,
)
def _include(options: argparse.Namespace) -> int:
    import tma_dlpack as tma

    print(tma.get_include())
    return EXIT_OK


@command(
    "print the script by which a shell completes commands, flags and values",
    option("shell", "whose script", values=("bash", "zsh", "fish"), closed=True),
    heading=MACHINE,
    examples=("completion bash", "completion zsh", "completion fish"),
    status=PRINTED,
    more='bash: add eval "$(tma-dlpack completion bash)" to ~/.bashrc. zsh: the same, with zsh, to '
    "~/.zshrc, after compinit. fish: write it to ~/.config/fish/completions/tma-dlpack.fish.",
)
def _completion(options: argparse.Namespace) -> int:
    sys.stdout.write(script(options.shell))
    return EXIT_OK


# The function `_bash` replaces the first %s by the names of all commands. It replaces the second
# %s by one case "COMMAND --flag" per flag, with the flag's values. It replaces the third %s by one
# case COMMAND per command, with the command's flags.
_BASH = """\
_tma_dlpack() {
  local word=${COMP_WORDS[COMP_CWORD]} words=
  if [ $COMP_CWORD -eq 1 ]; then
    words="%s --help --version"
  else
    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in
%s
      *) case "${COMP_WORDS[1]}" in
%s
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _tma_dlpack tma-dlpack
"""
# The function `_zsh` replaces the first %s by "name:help" of every command. It replaces the second
# %s by one case per command, with the command's options.
_ZSH = """\
#compdef tma-dlpack
_tma_dlpack() {
  if (( CURRENT == 2 )); then
    local -a commands=(%s)
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words; (( CURRENT-- ))
  case $command in
%s
  esac
}
if [ "$funcstack[1]" = _tma_dlpack ]; then _tma_dlpack "$@"
else compdef _tma_dlpack tma-dlpack; fi
"""


def script(shell: str) -> str:
    """Return the script with which a shell completes command lines of ``tma-dlpack``.

    `shell` is "bash", "zsh" or "fish".
    """
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _bash() -> str:
    values, words = [], []
    for row in commands().values():
        for entry in row.options():
            if entry.values and entry.is_flag:
                patterns = " | ".join(f'"{row.name} {name}"' for name in entry.names)
                values.append(f'      {patterns}) words="{" ".join(entry.values)}" ;;')
        known = [word for o in row.shown() for word in (o.names if o.is_flag else o.values)]
        words.append(f'        {row.name}) words="{" ".join(known)}" ;;')
    return _BASH % (" ".join(commands()), "\n".join(values), "\n".join(words))


def _zsh() -> str:
    listed = [f"{row.name}:{row.about}" for row in commands().values()]
    cases = []
    for row in commands().values():
        specs = [_zsh_spec(name, entry) for entry in row.shown() for name in entry.names]
        specs += ["*:file:_files"] * all(entry.is_flag for entry in row.shown())
        cases.append(f"    {row.name}) _arguments {shlex.join(specs)} ;;")
    return _ZSH % (" ".join(map(shlex.quote, listed)), "\n".join(cases))


def _zsh_spec(name: str, entry: Option) -> str:
    # The function `_arguments` of zsh expects "--flag[help]:value:(a b c)". The characters "[", "]"
    # and ":" separate the parts of this text.
    about = entry.about.replace("[", "(").replace("]", ")").replace(":", ",")
    values = f"({' '.join(entry.values)})" if entry.values else "_files"
    if not entry.is_flag:
        return f"*:{name}:{values}"
    return f"{name}[{about}]" + (f":{name.lstrip('-')}:{values}" if entry.takes_value else "")


def _fish() -> str:
    lines, complete = [], "complete -c tma-dlpack -n"
    for row in commands().values():
        about = shlex.quote(row.about)
        lines.append(f"{complete} __fish_use_subcommand -f -a {row.name} -d {about}")
    for row in commands().values():
        after = shlex.quote(f"__fish_seen_subcommand_from {row.name}")
        for entry in row.options():
            flags = entry.names if entry.is_flag else ()
            # Options of fish's `complete`: -l is followed by a long flag, and -s by a short flag.
            # -x means that the value is a word of the list after -a. -r means that the value is the
            # name of a file.
            words = [f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in flags]
            if entry.takes_value and entry.is_flag:
                words.append("-x" if entry.values else "-r")
            if entry.values:
                words.append(f"-a {shlex.quote(' '.join(entry.values))}")
            if words:
                about = shlex.quote(entry.about)
                lines.append(f"{complete} {after} {' '.join(words)} -d {about}")
    return "\n".join(lines) + "\n"
