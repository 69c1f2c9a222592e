"""Generate the reference of tma_dlpack.h from its comments: python .packaging/header_reference.py.

A verb is a function of the header. Two lines follow the comment of each verb::

    //   PTX | who calls it | targets | since | cost
    //   e.g. an example

The reference has an entry for each verb. The entry contains these two lines, the comment, and the
declarations that follow. If the next declaration has no such two lines, and declares the same
name, this declaration belongs to the same entry. (An example is an overload with a policy for L2.)
A line such as ``// ---- loads ----`` begins a chapter. The pages of the reference are checked in. A
test compares the pages with the output of this generator.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADERS = ("tma_dlpack/include/tma_dlpack.h", "tma_dlpack/include/tma_dlpack_mma.h")
PAGE = "notebooks/reference/headers.md"
TITLE = "C and C++ headers"

#: Page in the folder of `PAGE` -> the title of the page, and the chapters that the page documents.
PARTS = {
    "headers_host.md": (
        "Headers: maps and numbers on the host",
        (
            "host: a map made in Python becomes a CUtensorMap",
            "numbers that the compiler can check, on the host too",
        ),
    ),
    "headers_barriers.md": (
        "Headers: barriers, fences, clusters",
        ("device", "mbarriers and fences", "clusters", "a ring of stages", "registers"),
    ),
    "headers_copies.md": (
        "Headers: loads, stores, reductions",
        (
            "what L2 keeps",
            "loads",
            "loads of sm_100 and later: compiled for their targets, documented, not run",
            "stores and reductions",
            "bytes in a row, without a map",
            "groups of stores",
        ),
    ),
    "headers_changed_maps.md": (
        "Headers: maps that a kernel changes",
        ("maps that a kernel changes",),
    ),
    "headers_tensor_cores.md": (
        "Headers: tensor cores",
        ("the tensor core of sm_90a: wgmma", "the tensor core of sm_100a: tcgen05"),
    ),
}

#: The line of the page between the hand-written text above and the generated text below.
MARKER = "<!-- from here on: .packaging/header_reference.py, from the comments of tma_dlpack.h -->"

ROW = re.compile(r"//   (.+) \| (.+) \| (.+) \| (\d\.\d) \| (.+)")
EXAMPLE = re.compile(r"//   e\.g\. (.+)")
CHAPTER = re.compile(r"// -{4} (.+?) -{4,}")
#: Longest line of code that the site shows without cutting it, in columns.
WIDTH = 80
#: Macro of the header -> its declaration, in which {0}, {1}, ... are the macro's arguments.
MACROS = {
    "TMA_DLPACK_POLICY": "CachePolicy {0}()",
    "TMA_DLPACK_REPLACE_IN_DIMENSION": (
        "template <unsigned dimension> void replace_{0}(Map* map, {2} value)"
    ),
    "TMA_DLPACK_REPLACE_CONSTANT": "template <{1} value> void replace_{0}(Map* map)",
}
#: The beginning of a line that declares a function or a struct.
DECLARES = re.compile(
    r"template|__device__|TMA_DLPACK_(?:EITHER|REPLACES)|inline CUtensorMap|struct \w+$"
)
#: The parts of a declaration that a caller need not read.
NOISE = re.compile(
    r"__device__|__host__|__forceinline__|TMA_DLPACK_EITHER|TMA_DLPACK_REPLACES|\binline\b"
    r"|\bconstexpr\b|\bstatic\b"
)


@dataclass
class Verb:
    """An entry of the reference: the parts of a verb's comment, and all its declarations."""

    chapter: str
    text: str
    ptx: str
    by: str
    targets: str
    since: str
    cost: str
    example: str
    signatures: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the verb."""
        return name_of(self.signatures[0])


def name_of(signature: str) -> str:
    """Return the name that a signature declares, or an empty string."""
    called = re.search(r"(\w+)\((?:[^()]|\([^()]*\))*\)$", signature)
    found = called or re.search(r"struct (\w+)$", signature)
    return found[1] if found else ""


def declaration(lines: list[str], at: int) -> str | None:
    """Return the signature that begins at a line, or None."""
    macro = re.match(r"(TMA_DLPACK_[A-Z_]+)\((.*?)\)?$", lines[at])
    if macro and macro[1] in MACROS:
        return MACROS[macro[1]].format(*macro[2].split(", "))
    if not DECLARES.match(lines[at]) or lines[at - 1].endswith(">"):  # the end of a template head
        return None
    words: list[str] = []
    for line in lines[at:]:
        if line == "{" or line.startswith("  static_assert"):
            break
        words.append(line.strip())
        if line.endswith((";", "}")) or "TMA_DLPACK_HAS_REPLACE" in line:
            break
    text = " ".join(words).split(" TMA_DLPACK_HAS")[0].split(" {")[0]
    return None if "= delete" in text else " ".join(NOISE.sub("", text).split())


def methods(lines: list[str], at: int) -> Iterator[str]:
    """Yield the member functions of the struct that begins at a line."""
    for line in lines[at : lines.index("};", at)]:
        found = re.match(r"  __host__ __device__ (.*?\))(?: const)?(?: \{|$)", line)
        if found:
            yield " ".join(NOISE.sub("", found[1]).split())


def verbs(text: str) -> list[Verb]:
    """Return the entries of a header's verbs, in the order of the header."""
    lines = text.splitlines()
    found: list[Verb] = []
    chapter, comment, depth = "", [], 0
    row: re.Match[str] | None = None
    for at, line in enumerate(lines):
        depth += {"namespace detail": 1, "}  // namespace detail": -1}.get(line, 0)
        if heading := CHAPTER.match(line):
            chapter, comment = heading[1], []
        elif new := ROW.match(line):
            row = new
        elif row and (example := EXAMPLE.match(line)):
            found.append(Verb(chapter, " ".join(comment), *row.groups(), example[1]))
            row, comment = None, []
        elif line.startswith("//"):
            comment.append(line[3:])
        elif not depth and (signature := declaration(lines, at)):
            last = found[-1] if found else None
            if last and (not last.signatures or last.name == name_of(signature)):
                if signature not in last.signatures:
                    last.signatures.append(signature)
                if "struct" in signature:
                    last.signatures += methods(lines, at)
            comment = []
        elif line == "" or not line.startswith(("#", " ", "template", "[[")):
            comment = []
    return found


def plain(text: str) -> str:
    """Return a comment as Markdown, with escaped special characters outside of backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_<>\[\]#])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def table(entries: list[Verb]) -> Iterator[str]:
    """Yield the lines of a table with one row for each verb."""
    yield "| verb | PTX | who calls it | targets | since | cost |"
    yield "|---|---|---|---|---|---|"
    for e in entries:
        ptx = e.ptx if e.ptx == "no instruction" else f"<code>{breakable(e.ptx)}</code>"
        link = f"[`{e.name}`](#{e.name.lower()})"
        yield f"| {link} | {ptx} | {e.by} | {e.targets} | {e.since} | {breakable(e.cost)} |"


def breakable(text: str) -> str:
    """Return HTML in which the browser may break a long instruction before its dots."""
    return re.sub(r"(?<=\w)\.(?=\w)", "<wbr>.", html.escape(text, quote=False))


def wrapped(signature: str) -> Iterator[str]:
    """Yield the lines of a declaration, wrapped to the width that the site shows."""
    parts = re.fullmatch(r"(template <.*?> (?=\w))?(.*)", signature).groups()
    for part in filter(None, parts):
        kept = re.sub(
            r"(?<!,) ", "\0", part.rstrip()
        )  # only blanks after commas may become line breaks
        for line in textwrap.wrap(kept, WIDTH, subsequent_indent="    "):
            yield line.replace("\0", " ")


def entry(e: Verb) -> Iterator[str]:
    """Yield the lines of a verb's entry: anchor, signatures, text and example."""
    yield f'<span id="header-{e.name}"></span>'
    yield ""
    yield f"### {e.name}"
    yield ""
    yield "```cpp"
    yield from (line for signature in e.signatures for line in wrapped(f"{signature};"))
    yield "```"
    yield ""
    yield plain(e.text)
    yield ""
    yield f"```cpp\n{e.example}\n```"
    yield ""


def text_of_headers() -> str:
    """Return the concatenated text of the device headers."""
    return "\n".join((ROOT / name).read_text("utf-8") for name in HEADERS)


def part_of(entry: Verb) -> str:
    """Return the name of the page with a verb's entry."""
    (page,) = (page for page, (_, chapters) in PARTS.items() if entry.chapter in chapters)
    return page


def links(header: str) -> dict[str, str]:
    """Return for each verb the address of its entry, relative to the folder of the pages."""
    return {e.name: f"{part_of(e)}#{e.name.lower()}" for e in verbs(header)}


def pages(hand_written: str, header: str) -> dict[str, str]:
    """Return the text of each page by its name.

    The first page is the hand-written text and a list of all verbs. The other pages have the
    entries. The list also has the anchors of the entries, because the first page once contained all
    entries, and links from other sites may still use these anchors.
    """
    entries = verbs(header)
    contents = [
        "```{toctree}",
        ":hidden:",
        *(name.removesuffix(".md") for name in PARTS),
        "```",
        "",
    ]
    parts: dict[str, str] = {}
    for name, (title, chapters) in PARTS.items():
        lines = [f"# {title}", "", f"[{TITLE}](headers.md) has the conventions and all verbs.", ""]
        contents += [f"## [{title.removeprefix('Headers: ').capitalize()}]({name})", ""]
        for chapter in chapters:
            here = [e for e in entries if e.chapter == chapter]
            lines += [f"## {chapter[0].upper()}{chapter[1:]}", "", *table(here), ""]
            for e in here:
                lines += entry(e)
        contents += [", ".join(listed(e) for e in entries if part_of(e) == name), ""]
        parts[name] = "\n".join(lines).rstrip("\n") + "\n"
    top = hand_written.split(MARKER)[0] + MARKER
    return {Path(PAGE).name: "\n".join([top, "", *contents]).rstrip("\n") + "\n"} | parts


def listed(e: Verb) -> str:
    """Return the item of a verb in the list of all verbs: the anchors of its entry, and a link."""
    anchors = "".join(
        f'<span id="{anchor}"></span>' for anchor in (f"header-{e.name}", e.name.lower())
    )
    return f"{anchors}[`{e.name}`]({part_of(e)}#{e.name.lower()})"


if __name__ == "__main__":
    folder = (ROOT / PAGE).parent
    for name, text in pages((ROOT / PAGE).read_text("utf-8"), text_of_headers()).items():
        (folder / name).write_text(text, "utf-8")
