"""Upstream's names, for code that says `from mint import tinker`: the very objects of `mint`."""

from mint import *  # noqa: F403
