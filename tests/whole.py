"""A reader for `Transport.post` that reads nothing out of a reply."""

from backends._transport import Reply


def whole(reply: Reply) -> Reply:
    return reply
