"""Use cases, one method each: who may do what, what is queued for it, what the answer says.

Knows neither HTTP nor which engine there is. All methods may be called from the event loop:
whatever touches the database or converts a large body runs in a thread.
"""
