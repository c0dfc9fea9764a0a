"""The engine process: carries operations from the store to the engine, and results home."""
