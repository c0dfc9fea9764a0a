"""What an engine must do."""
