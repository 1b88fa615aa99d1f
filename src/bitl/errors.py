"""One family of errors: each message is one sentence that says what is wrong, where, and what to do."""


class BitlError(Exception):
    """Base of every error that bitl raises on purpose; the command line turns it into exit code 2."""


class DataError(BitlError, ValueError):
    """The input cannot be used as it is: a wrong shape, an id out of range, a value that is not a number."""


class InfeasibleError(BitlError):
    """No model satisfies the constraints; the message names state, actions and amount."""


class SamplingError(BitlError):
    """A sampler could not deliver the draws that were asked for."""


class MissingExtraError(BitlError, ImportError):
    """An optional dependency is needed for this and is not installed."""
