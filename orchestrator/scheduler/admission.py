"""The answer to whether a request may be sent now."""

import enum


class Admission(enum.Enum):
    """Permission to send a request.

    Attributes:
        SEND: It may.
        WAIT: Not before another request has ended: until then nothing is sent.
        STOP: It may not, nor may others: sending ends.
    """

    SEND = enum.auto()
    WAIT = enum.auto()
    STOP = enum.auto()
