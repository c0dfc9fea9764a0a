"""KV_LAYOUTS: the ways in which keys and values may lie in memory, by the names a setting has."""

KV_LAYOUTS = ("auto", "contiguous", "paged")
