"""The vocabulary of the house, as frozen values. Imports stdlib and numpy only."""
