"""Build backend: setuptools' backend with an option for a wheel without the C extension.

``pip wheel .`` builds the wheel of this platform, cp310-abi3, with the C extension. If there is no
C compiler, the build warns and omits the extension. ``pip wheel . -C pure=true`` builds the wheel
py3-none-any, for every Python that cannot install the wheel with the C extension.

The links of README.md are relative, so they work in a checkout but not on a package index. If the
environment variable TMA_DLPACK_URL is the address of the repository, the metadata links to the
release's files at this address. Otherwise the metadata has only the text of each link.
"""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Distribution, build_meta
from setuptools.build_meta import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)
from setuptools.command.sdist import sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


def absolute_links(text, url, version):
    """Return a text in which relative links become links to the release's files below `url`."""

    def link(found):
        is_image, shown, path = found.groups()
        if not url:
            return "" if is_image else shown
        kind = "raw" if is_image else "blob"
        return f"{is_image}[{shown}]({url}/{kind}/v{version}/{path})"

    return LINK.sub(link, text)


def _parse(self, *arguments, parse=Distribution.parse_config_files, **keywords):
    parse(self, *arguments, **keywords)
    metadata, url = self.metadata, os.environ.get("TMA_DLPACK_URL", "").rstrip("/")
    if metadata.long_description:
        metadata.long_description = absolute_links(metadata.long_description, url, metadata.version)
    if url:
        files = f"{url}/blob/v{metadata.version}"
        metadata.project_urls = {
            "Source": url,
            "Issues": f"{url}/issues",
            "Documentation": f"{files}/notebooks/guide/index.md",
            "Changelog": f"{files}/notebooks/guide/changes.md",
            "Security": f"{url}/security/policy",
        }


Distribution.parse_config_files = _parse


def build_sdist(sdist_directory, config_settings=None):
    """Build an sdist with all tests and notebooks (a hook of PEP 517)."""
    sdist.add_defaults = _add_all
    return build_meta.build_sdist(sdist_directory, config_settings)


def _add_all(self, add_defaults=sdist.add_defaults):
    add_defaults(self)
    folders = (".ci", ".packaging", "notebooks", "tests")
    unwanted = {"__pycache__", "artefacts", ".ipynb_checkpoints"}
    paths = (path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    self.filelist.extend(str(path) for path in paths if unwanted.isdisjoint(path.parts))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel (a hook of PEP 517)."""
    _choose(config_settings)
    return build_meta.build_wheel(wheel_directory, None, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the wheel's metadata (a hook of PEP 517)."""
    _choose(config_settings)
    return build_meta.prepare_metadata_for_build_wheel(metadata_directory, None)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build an editable wheel (a hook of PEP 660).

    The wheel contains the path of the sources, because type checkers can follow a path.
    """
    settings = {"editable_mode": "compat", **(config_settings or {})}
    return build_meta.build_editable(wheel_directory, settings, metadata_directory)


def _choose(config_settings):
    # free-threaded builds of CPython have no stable ABI, so they use the pure wheel
    if "pure" in (config_settings or {}) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        Distribution.parse_config_files = _parse_without_extensions


def _parse_without_extensions(self, *arguments, parse=Distribution.parse_config_files, **keywords):
    parse(self, *arguments, **keywords)
    self.ext_modules = None
    # The option py-limited-api of bdist_wheel selects the stable ABI, so remove this option.
    self.command_options.pop("bdist_wheel", None)
