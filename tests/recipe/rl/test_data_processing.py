"""Turns that continue each other are one datum; sampled tokens are trained on as they were sampled."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.rl.episodes import episode, group, rewarded, turn

from mint import ModelInput, types
from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl import data_processing
from mint.recipe.rl.data_processing import (
    assemble_training_data,
    split_substeps,
    training_logprobs,
    trajectory_to_data,
    without_mask,
)
from mint.recipe.rl.types import Trajectory, Transition

PICTURE = types.ImageChunk(data=b"one", format="png", expected_tokens=3)
OTHER = types.ImageChunk(data=b"two", format="png", expected_tokens=3)


def text(*tokens: int) -> types.EncodedTextChunk:
    return types.EncodedTextChunk(tokens=list(tokens))


def arrays(datum: types.Datum) -> dict[str, list]:
    return {name: value.tolist() for name, value in datum.loss_fn_inputs.items()}


def test_three_turns_that_continue_each_other_are_one_datum():
    played = episode(
        turn([1, 2, 3], [10, 11], logprobs=[-0.1, -0.2]),
        turn([1, 2, 3, 10, 11, 4], [12], logprobs=[-0.3]),
        turn([1, 2, 3, 10, 11, 4, 12, 5, 6], [13, 14], logprobs=[-0.4, -0.5]),
    )

    [datum] = trajectory_to_data(played, 2.0)

    assert datum.model_input.to_ints() == [1, 2, 3, 10, 11, 4, 12, 5, 6, 13]
    assert arrays(datum) == {
        "target_tokens": [2, 3, 10, 11, 4, 12, 5, 6, 13, 14],
        "logprobs": pytest.approx([0, 0, -0.1, -0.2, 0, -0.3, 0, 0, -0.4, -0.5]),
        "advantages": [0, 0, 2, 2, 0, 2, 0, 0, 2, 2],
        "mask": [0, 0, 1, 1, 0, 1, 0, 0, 1, 1],
    }
    dtypes = {name: value.dtype for name, value in datum.loss_fn_inputs.items()}
    assert dtypes == {"target_tokens": "int64"} | dict.fromkeys(
        ("logprobs", "advantages", "mask"), "float32"
    )


def test_an_env_that_shows_only_the_increment_trains_as_several_datums_of_one_advantage():
    played = episode(turn([1, 2], [3]), turn([4], [5, 6]), turn([7], [8]))

    data = trajectory_to_data(played, -0.5)

    assert [datum.model_input.to_ints() for datum in data] == [[1, 2], [4, 5], [7]]
    assert [arrays(datum)["advantages"] for datum in data] == [[0, -0.5], [-0.5, -0.5], [-0.5]]


def test_a_history_that_was_rewritten_begins_a_new_datum_and_may_be_continued():
    played = episode(
        turn([1, 2], [8, 9]),
        turn([1, 2, 9, 3], [4]),  # the 8 (a thought, say) is gone from the prompt
        turn([1, 2, 9, 3, 4, 5], [6]),
    )

    data = trajectory_to_data(played, 1.0)

    assert [arrays(datum)["target_tokens"] for datum in data] == [[2, 8, 9], [2, 9, 3, 4, 5, 6]]
    assert arrays(data[1])["mask"] == [0, 0, 0, 1, 0, 1]


def test_a_prompt_shorter_than_what_was_said_does_not_continue_it():
    played = episode(turn([1, 2], [3, 4]), turn([1, 2, 3], [9]))

    assert len(trajectory_to_data(played, 1.0)) == 2


def test_an_episode_that_ended_before_its_first_token_gives_no_datum():
    overflow = episode(turn([], [], -0.1, stop__max_tokens=1.0))

    assert trajectory_to_data(overflow, 1.0) == []


def test_one_token_alone_gives_no_datum():
    assert trajectory_to_data(episode(turn([], [7])), 1.0) == []
    assert trajectory_to_data(episode(turn([7], [])), 1.0) == []


def test_the_reward_of_an_initial_overflow_counts_and_its_member_gives_no_datum():
    played = group(
        episode(turn([], [], -0.1, stop__max_tokens=1.0)), episode(turn([1, 2], [3], 0.9))
    )
    advantages = data_processing.advantages_of([played])

    data, origins = assemble_training_data([played], advantages)

    assert [arrays(datum)["advantages"] for datum in data] == [[0.0, 0.5]]  # mean 0.4
    assert origins == [{"group_idx": 0, "traj_idx": 1}]


def test_nothing_but_overflows_gives_no_data_at_all():
    played = group(*(episode(turn([], [], -0.1)) for _ in range(2)))

    assert assemble_training_data([played], [[0.0, 0.0]]) == ([], [])


def test_a_turn_masked_for_its_parse_error_is_context_that_is_not_learnt():
    played = episode(
        turn([1], [2, 3], parse_error_masked=1.0, logprobs=[-1.0, -2.0]), turn([1, 2, 3, 4], [5])
    )

    [datum] = trajectory_to_data(played, 3.0)

    assert arrays(datum) == {
        "target_tokens": [2, 3, 4, 5],
        "logprobs": [-1.0, -2.0, 0, -0.5],
        "advantages": [0, 0, 0, 3.0],
        "mask": [0, 0, 0, 1],
    }


def test_an_action_needs_a_logprob_for_each_token():
    with pytest.raises(DataValidationError, match="2 tokens of an action, but 1 logprobs"):
        trajectory_to_data(episode(turn([1], [2, 3], logprobs=[-1.0])), 1.0)


def test_advantages_of_any_kind_are_taken():
    import torch

    played = rewarded(1.0, 0.0)
    for kind in ([0.5, -0.5], np.array([0.5, -0.5]), torch.tensor([0.5, -0.5])):
        data, _ = assemble_training_data([played], [kind])
        assert [arrays(datum)["advantages"][-1] for datum in data] == [0.5, -0.5]


def test_one_advantage_too_few_is_refused():
    with pytest.raises(DataValidationError, match="2 members in group 0, but 1 advantages"):
        assemble_training_data([rewarded(1.0, 0.0)], [[0.5]])


def test_the_prompt_that_a_group_shows_is_in_all_of_its_data_and_copied_into_none():
    prompt = ModelInput(chunks=[text(1, 2), text(3)])
    played = group(episode(turn(prompt, [4, 5])), episode(turn(prompt, [6])))

    data, _ = assemble_training_data([played], [[0.5, -0.5]])

    assert [datum.model_input.to_ints() for datum in data] == [[1, 2, 3, 4], [1, 2, 3]]
    for datum in data:
        assert all(a is b for a, b in zip(datum.model_input.chunks, prompt.chunks, strict=False))


def test_making_data_changes_no_prompt():
    first, second = ModelInput.from_ints([1, 2]), ModelInput.from_ints([1, 2, 3, 4])

    trajectory_to_data(episode(turn(first, [3]), turn(second, [])), 1.0)

    assert [first.to_ints(), second.to_ints()] == [[1, 2], [1, 2, 3, 4]]


# ---------------------------------------------------------------------------- images


def test_an_image_takes_its_positions_and_is_never_a_target():
    prompt = ModelInput(chunks=[text(1, 2), PICTURE, text(3)])

    [datum] = trajectory_to_data(episode(turn(prompt, [4, 5])), 1.0)

    assert datum.model_input.chunks == [text(1, 2), PICTURE, text(3), text(4)]
    assert arrays(datum)["target_tokens"] == [2, 0, 0, 0, 3, 4, 5]
    assert arrays(datum)["mask"] == [0, 0, 0, 0, 0, 1, 1]


def test_an_identical_image_continues_and_another_does_not():
    def played(second: types.ImageChunk) -> Trajectory:
        again = ModelInput(chunks=[text(1), second, text(2, 3), text(4)])
        return episode(turn(ModelInput(chunks=[text(1), PICTURE, text(2)]), [3]), turn(again, [5]))

    same = types.ImageChunk(data=b"one", format="png", expected_tokens=3)

    assert [len(trajectory_to_data(played(image), 1.0)) for image in (same, OTHER)] == [1, 2]


def test_an_image_at_the_start_and_one_at_the_very_end():
    prompt = ModelInput(chunks=[PICTURE, text(1)])
    ends_in_image = ModelInput(chunks=[PICTURE, text(1, 2), OTHER])

    [datum] = trajectory_to_data(episode(turn(prompt, [2]), turn(ends_in_image, [])), 1.0)

    assert datum.model_input.chunks == [PICTURE, text(1)]
    assert arrays(datum)["target_tokens"] == [0, 0, 1, 2]


def test_an_image_of_unknown_size_is_refused():
    unknown = types.ImageChunk(data=b"", format="png")

    with pytest.raises(DataValidationError, match="Set its expected_tokens"):
        trajectory_to_data(episode(turn(ModelInput(chunks=[unknown, text(1)]), [2])), 1.0)


# ---------------------------------------------------------------------------- any split


flagged_tokens = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=24)


def in_turns(flagged: list[tuple[int, bool]], cuts: set[int], size: int) -> Trajectory:
    """The tokens as an episode: those with the flag were sampled, in turns that also end at `cuts`;
    prompts come in chunks of `size`."""
    tokens = [token for token, _ in flagged]
    ends = [
        i
        for i in range(1, len(flagged) + 1)
        if flagged[i - 1][1] and (i in cuts or i == len(flagged) or not flagged[i][1])
    ]
    turns: list[Transition] = []
    for begin, end in pairwise([0, *ends]):
        start = next(i for i in range(begin, end) if flagged[i][1])
        shown: list[types.ModelInputChunk] = [
            text(*tokens[:start][a : a + size]) for a in range(0, start, size)
        ]
        logprobs = [-(i + 1) / 8 for i in range(start, end)]
        turns.append(turn(ModelInput(chunks=shown), tokens[start:end], logprobs=logprobs))
    return episode(*turns)


@given(flagged_tokens, st.sets(st.integers(1, 23)), st.integers(1, 30))
def test_any_split_of_a_sequence_into_turns_and_chunks_gives_the_same_datum(flagged, cuts, size):
    while flagged and not flagged[-1][1]:
        flagged.pop()  # what follows the last action is shown to nobody

    data = trajectory_to_data(in_turns(flagged, cuts, size), 2.0)

    if len(flagged) < 2:
        assert data == []
        return
    [datum] = data
    assert datum.model_input.to_ints() == [token for token, _ in flagged][:-1]
    assert arrays(datum) == {
        "target_tokens": [token for token, _ in flagged[1:]],
        "logprobs": [-(i + 1) / 8 if flag else 0 for i, (_, flag) in enumerate(flagged)][1:],
        "advantages": [2.0 * flag for _, flag in flagged[1:]],
        "mask": [float(flag) for _, flag in flagged[1:]],
    }


@given(st.lists(st.tuples(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2))), max_size=5))
def test_whatever_the_prompts_every_sampled_token_is_trained_on_exactly_once(turns):
    played = episode(*(turn(prompt, action) for prompt, action in turns))

    data = trajectory_to_data(played, 1.0)

    # a token that nothing precedes has no position to be predicted from
    alone = sum(_first_is_sampled(sequence) for sequence in data_processing.merge_turns(played))
    sampled = sum(len(action) for _, action in turns)
    assert sum(sum(arrays(datum)["mask"]) for datum in data) == sampled - alone


def _first_is_sampled(sequence: data_processing.MergedSequence) -> bool:
    return any(one.start == 0 and one.stop > 0 for one in sequence.turns)


# ---------------------------------------------------------------------------- provenance


def test_runs_say_of_each_position_which_request_it_came_from():
    played = episode(
        turn([1, 2, 3], [10, 11], sequence_id="a"),
        turn([1, 2, 3, 10, 11, 4], [12, 13], sequence_id="b"),
    )

    [datum] = trajectory_to_data(played, 1.0)

    def prompt(name: str, offset: int, length: int) -> types.PromptProvenanceSpan:
        return types.PromptProvenanceSpan(sequence_id=name, offset=offset, length=length)

    def sampled(name: str, offset: int, length: int) -> types.SampledProvenanceSpan:
        return types.SampledProvenanceSpan(sequence_id=name, offset=offset, length=length)

    assert datum.model_input_spans == [
        prompt("a", 0, 3), sampled("a", 0, 2), prompt("b", 5, 1), sampled("b", 0, 1),
    ]  # fmt: skip
    assert datum.loss_fn_input_spans == [
        prompt("a", 1, 2), sampled("a", 0, 2), prompt("b", 5, 1), sampled("b", 0, 2),
    ]  # fmt: skip


def test_a_second_datum_starts_at_the_start_of_its_own_prompt():
    played = episode(turn([1, 2], [3], sequence_id="a"), turn([4], [5, 6], sequence_id="b"))

    spans = [datum.loss_fn_input_spans or [] for datum in trajectory_to_data(played, 1.0)]

    assert [[(s.sequence_id, s.offset, s.length) for s in one] for one in spans] == [
        [("a", 1, 1), ("a", 0, 1)],
        [("b", 0, 2)],
    ]


@pytest.mark.parametrize(("names", "asked"), [((None, "b"), True), (("a", "b"), False)])
def test_there_is_none_where_an_action_has_no_name_or_nobody_asked(names, asked):
    first, second = names
    played = episode(turn([1], [2], sequence_id=first), turn([1, 2, 3], [4], sequence_id=second))

    [datum] = trajectory_to_data(played, 1.0, include_provenance=asked)

    assert datum.model_input_spans is None


def test_an_sdk_that_knows_none_gets_none(monkeypatch):
    monkeypatch.delattr(types.Datum, "with_provenance")
    played = episode(turn([1], [2], sequence_id="a"))

    [datum] = trajectory_to_data(played, 1.0)

    assert datum.model_input_spans is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=5))
def test_runs_cover_every_datum(turns):
    shown: list[int] = [0]
    transitions = []
    for number, (more, length) in enumerate(turns):
        shown += range(more)
        action = list(range(length))
        transitions.append(turn(shown, action, sequence_id=f"s{number}"))
        shown = shown + action

    [datum] = trajectory_to_data(episode(*transitions), 1.0)  # with_provenance checks the cover

    assert sum(span.length for span in datum.loss_fn_input_spans or []) == len(shown) - 1


# ---------------------------------------------------------------------------- to the service


def test_the_mask_stays_here_and_the_runs_go_along():
    [datum] = trajectory_to_data(episode(turn([1], [2], sequence_id="a")), 1.0)

    sent = without_mask(datum)

    assert set(sent.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
    assert sent.model_input_spans == datum.model_input_spans
    assert "mask" in datum.loss_fn_inputs


def test_substeps_are_contiguous_and_of_nearly_equal_size():
    data = [trajectory_to_data(episode(turn([n], [n])), 1.0)[0] for n in range(7)]

    def sizes(datums: list[types.Datum], steps: int) -> list[int]:
        parts = split_substeps(datums, steps)
        assert [datum for part in parts for datum in part] == datums
        return [len(part) for part in parts]

    assert sizes(data, 1) == [7]
    assert sizes(data, 3) == [2, 2, 3]
    assert sizes(data[:2], 5) == [1, 1]
    assert sizes([], 3) == []


def test_training_logprobs_of_unequal_parts_come_in_the_order_of_the_data():
    def answer(*values: float) -> types.ForwardBackwardOutput:
        outputs = [{"logprobs": types.TensorData.from_numpy(np.array([v]))} for v in values]
        return types.ForwardBackwardOutput("TorchLossReturn", outputs)

    found = training_logprobs([answer(-0.0, -1.0), answer(-2.0, -3.0), answer(-4.0)])

    assert [one.tolist() for one in found] == [[-0.0], [-1.0], [-2.0], [-3.0], [-4.0]]
