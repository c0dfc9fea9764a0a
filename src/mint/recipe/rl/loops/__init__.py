"""The three schedules of a run: when groups roll out, and when they are trained."""
