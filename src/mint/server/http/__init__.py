"""Routes: a request in, a service called, an answer out. One file per group of routes."""
