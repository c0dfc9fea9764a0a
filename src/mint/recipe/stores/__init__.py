"""What a run leaves behind: its folder, metrics, checkpoints ledger, times, and what a person sees."""
