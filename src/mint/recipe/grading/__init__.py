r"""Graders: pieces to make a reward of, each a plain function over the text of a response.

    def __call__(self, prompt, response):
        text = self.response_text(response)
        parts = {"correct": number_matches(text, 42), "tidy": follows_tags(text)}
        return Reward(*weighted_sum(parts, {"correct": 0.9, "tidy": 0.1}))

Verifiers answer with a bool, similarities with 0 to 1, penalties with -1 to 0. Extraction gives None
where a response has no answer or no clear one. None of them raises on any text, however long or
hostile; what is raised is about your own arguments.
"""

from mint.recipe.grading.answers import answer_text as answer_text
from mint.recipe.grading.answers import extract_boxed as extract_boxed
from mint.recipe.grading.answers import extract_tag as extract_tag
from mint.recipe.grading.answers import follows_tags as follows_tags
from mint.recipe.grading.answers import without_reasoning as without_reasoning
from mint.recipe.grading.choices import choice_matches as choice_matches
from mint.recipe.grading.choices import extract_choice as extract_choice
from mint.recipe.grading.graded import Graded as Graded
from mint.recipe.grading.graded import weighted_sum as weighted_sum
from mint.recipe.grading.json_values import extract_json as extract_json
from mint.recipe.grading.json_values import json_matches as json_matches
from mint.recipe.grading.json_values import schema_errors as schema_errors
from mint.recipe.grading.math_equality import MathVerdict as MathVerdict
from mint.recipe.grading.math_equality import compare_math as compare_math
from mint.recipe.grading.math_equality import math_equal as math_equal
from mint.recipe.grading.numbers import extract_number as extract_number
from mint.recipe.grading.numbers import number_matches as number_matches
from mint.recipe.grading.numbers import read_number as read_number
from mint.recipe.grading.patterns import pattern_matches as pattern_matches
from mint.recipe.grading.patterns import search_pattern as search_pattern
from mint.recipe.grading.penalties import format_penalty as format_penalty
from mint.recipe.grading.penalties import length_penalty as length_penalty
from mint.recipe.grading.penalties import repetition_penalty as repetition_penalty
from mint.recipe.grading.penalties import soft_overlong_penalty as soft_overlong_penalty
from mint.recipe.grading.similarity import bleu as bleu
from mint.recipe.grading.similarity import edit_similarity as edit_similarity
from mint.recipe.grading.texts import exact_match as exact_match
from mint.recipe.grading.texts import normalise_text as normalise_text
from mint.recipe.grading.texts import normalised_match as normalised_match
from mint.recipe.grading.texts import token_f1 as token_f1
