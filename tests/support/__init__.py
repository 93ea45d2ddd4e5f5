"""Fault injection for tests: a breakable network, killable processes and servers, and a ledger of effects."""
