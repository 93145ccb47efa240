"""Abilities of a server, judged from its behaviour. Pure: replies in, findings out.

Servers ignore fields they don't know, so that a field is accepted says nothing; only a number that
comes out right does. The requests are sent by `orchestrator.runner.models.probe`.
"""
