"""Text and bytes to core values and back. Knows neither HTTP nor SQL nor torch."""
