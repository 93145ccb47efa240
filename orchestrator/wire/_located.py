"""Search for the tokens that spell a text."""

from itertools import accumulate


def located(tokens: list[bytes], text: bytes, *, last: bool) -> range | None:
    """The tokens that spell a text, the first or last ones; None where there are none.

    Before the first ones only white space may stand.
    """
    joined = b"".join(tokens)
    at = joined.rfind(text) if last else joined.find(text)
    if at < 0 or (not last and joined[:at].strip()):
        return None
    return _covering(tokens, at, len(text))


def after(tokens: list[bytes], end: bytes, text: bytes) -> range | None:
    """The tokens of a text that follows the end of the thinking, line breaks between them."""
    joined = b"".join(tokens)
    begin = joined.find(end)
    begin = begin if begin < 0 else begin + len(end)
    at = joined.find(text, begin) if begin >= 0 else -1
    if at < 0 or joined[begin:at].strip(b"\r\n"):
        return None
    return _covering(tokens, at, len(text))


def _covering(tokens: list[bytes], at: int, n_bytes: int) -> range:
    """The tokens that hold any of the bytes from `at` on."""
    ends = list(accumulate(map(len, tokens)))
    first = next((i for i, end in enumerate(ends) if end > at), len(tokens))
    starts = [0, *ends[:-1]]
    stop = next((i for i, start in enumerate(starts) if start >= at + n_bytes), len(tokens))
    return range(min(first, stop), stop)
