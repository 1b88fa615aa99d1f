"""One family of errors: each message is one sentence that says what is wrong, where, and what to do."""


class BitlError(Exception):
    """Base of every error that bitl raises on purpose; the command line turns it into exit code 2."""


class DataError(BitlError, ValueError):
    """The input cannot be used as it is: a wrong shape, an id out of range, a value that is not a number."""


class InfeasibleError(BitlError):
    """No model satisfies the constraints; the message names state, actions and amount, and so do the attributes."""

    def __init__(
        self,
        message: str,
        *,
        state: int | None = None,
        action: int | None = None,
        amount: float | None = None,
        largest_epsilon: float | None = None,
    ) -> None:
        super().__init__(message)
        self.state = state  #: the state in conflict
        self.action = action  #: the action there that cannot have the value it needs
        self.amount = amount  #: by how much the best model still misses
        self.largest_epsilon = largest_epsilon  #: the largest epsilon that works, where it can be told


class SamplingError(BitlError):
    """A sampler could not deliver the draws that were asked for."""


class MissingExtraError(BitlError, ImportError):
    """An optional dependency is needed for this and is not installed."""


class UndecidedError(BitlError):
    """No model was found that satisfies the constraints, and none could be ruled out either."""
