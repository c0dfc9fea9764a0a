"""Adapters and whole models as files on this machine: merged, and computed by others' code.

Needs torch, and so do its callers only when they are used. Nothing here talks to a server.
"""
