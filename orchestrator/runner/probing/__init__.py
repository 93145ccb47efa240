"""Probes of servers: what is sent, and the records of what servers were found to do."""
