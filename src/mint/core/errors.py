"""The error tree, and whose move is next after each.

MintError
├── UserError                  the request is wrong; repeating it changes nothing
│   ├── ConfigError            a setting contradicts itself or is missing
│   ├── LossInputError         a datum does not fit its loss
│   ├── UnknownModelError      no such base model here
│   ├── UnsupportedError       understood, but not offered
│   └── CapacityError          it can never fit on this machine (the message has the numbers)
├── NotFoundError              no such object, or it belongs to somebody else
├── AuthenticationError        no key, or an unknown or revoked one
├── OverloadedError            too much at once; the same request may succeed later
└── ServerFaultError           our side failed
    ├── StorageError           the database refuses (a full disk, mostly); it may work again later
    └── EngineLostError        the engine process died, and its live weights with it
"""

from enum import StrEnum


class Fault(StrEnum):
    """Whose move is next."""

    USER = "user"
    """The request has to change."""
    SERVER = "server"
    """We have to change; the request may be fine."""
    CANCELLED = "cancelled"
    """Nobody's: the caller withdrew it."""


class MintError(Exception):
    """Root of all errors of ours. `fault` says whose move is next."""

    fault: Fault = Fault.SERVER


class UserError(MintError):
    fault = Fault.USER


class ConfigError(UserError): ...


class LossInputError(UserError): ...


class UnknownModelError(UserError): ...


class UnsupportedError(UserError): ...


class CapacityError(UserError): ...


class NotFoundError(MintError):
    """Also said of another owner's objects, so that nothing tells they exist."""

    fault = Fault.USER


class AuthenticationError(MintError):
    fault = Fault.USER


class OverloadedError(MintError): ...


class ServerFaultError(MintError): ...


class StorageError(ServerFaultError): ...


class EngineLostError(ServerFaultError): ...
