"""Evaluations: see `mint.recipe.eval.evaluators`."""

from mint.recipe.eval import evaluators as evaluators
