"""The base of every document that the API answers with and the command line prints."""

from __future__ import annotations

import msgspec


class Document(msgspec.Struct):
    """A JSON document whose type is its description: OpenAPI and the web app's types follow it.

    A field that may be missing has the type ``… | UnsetType`` and the default ``UNSET``; every
    other field is always there, null included.
    """
