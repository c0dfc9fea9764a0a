"""Evaluations: see `mint.recipe.eval.evaluators`."""
