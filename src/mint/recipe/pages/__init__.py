"""Pages a person reads: one HTML file each, without scripts and without anything from elsewhere."""
