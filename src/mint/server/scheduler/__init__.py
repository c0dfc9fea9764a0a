"""What runs next: pure functions of values. No store, no clock, no engine."""
