"""From messages to datums: what the shape of an env does to what is trained."""

import numpy as np
from tests.recipe.rl.players import RENDERER, Chat, Envs, Script, run, said

from mint.recipe.messages import Message
from mint.recipe.rl.data_processing import trajectory_to_data
from mint.recipe.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from mint.recipe.rl.rollouts import do_group_rollout
from mint.recipe.rl.types import TrajectoryGroup


def group(*envs: MessageEnv, room: int | None = None) -> TrajectoryGroup:
    wrapped = [EnvFromMessageEnv(RENDERER, env, max_trajectory_tokens=room) for env in envs]
    return run(do_group_rollout(Envs(wrapped), Script("4")))


def test_an_episode_that_keeps_its_history_is_one_datum_with_each_action_in_it():
    [episode] = group(Chat(turns=3)).trajectories_G
    [datum] = trajectory_to_data(episode, 0.5)

    mask = datum.loss_fn_inputs["mask"].to_numpy()
    targets = datum.loss_fn_inputs["target_tokens"].to_numpy()
    assert targets[mask == 1].tolist() == said("4") * 3
    assert set(datum.loss_fn_inputs["advantages"].to_numpy()[mask == 1]) == {np.float32(0.5)}


def test_an_episode_that_shows_only_the_increment_is_a_datum_each_turn_with_one_advantage():
    class Increment(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            result = await super().step(message)
            return MessageStepResult(result.reward, result.episode_done, self.history[-1:])

    [episode] = group(Increment(turns=3)).trajectories_G
    data = trajectory_to_data(episode, 0.5)

    # the first prompt, "hi", differs from the later ones, "more", and those from each other's end
    assert len(data) == 3
    for datum in data:
        mask = datum.loss_fn_inputs["mask"].to_numpy()
        assert datum.loss_fn_inputs["advantages"].to_numpy()[mask == 1].tolist() == [0.5, 0.5]


def test_a_member_without_room_counts_in_the_group_and_gives_no_datum():
    played = group(Chat(), Chat(opening="a question that is far too long"), room=40)

    assert played.get_total_rewards() == [1.0, -0.1]
    first, second = played.trajectories_G
    assert len(trajectory_to_data(first, 0.55)) == 1
    assert trajectory_to_data(second, -0.55) == []
