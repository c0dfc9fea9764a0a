"""Base models: finding their files, checking that we compute them rightly, loading them."""
