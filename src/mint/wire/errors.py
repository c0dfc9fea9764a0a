"""What can be wrong with a body before it means anything.

These are the only mistakes a submit is refused for. Whatever is wrong with a body that can be
read reaches the caller as the failed result of its operation: a 4xx there can stall the client.
"""

from mint.core.errors import UserError


class BodyError(UserError):
    """The body cannot be read as what it claims to be."""


class BodyTooLargeError(BodyError):
    """The body, or what it unpacks to, is above this server's limit."""


class EncodingError(BodyError):
    """The body is in a content type or encoding we do not speak."""
