"""Errors that are meant for the person in front of the screen.

Every message is one sentence that says what was wrong, with the value, and what to do about it.
"""

from __future__ import annotations


class SpecdecError(Exception):
    """Base of every error that the project raises on purpose; the command line prints it and exits with 2."""


class SettingsError(SpecdecError, ValueError):
    """A setting or a prompt that cannot be used."""


class ModelError(SpecdecError):
    """A model that cannot be found, fetched, verified, loaded or rolled back."""


class PairError(ModelError):
    """A target and a draft that do not fit together."""


class TraceError(SpecdecError, ValueError):
    """A trace file that cannot be read."""
