"""Wire formats: bytes of requests and replies, without sockets."""
