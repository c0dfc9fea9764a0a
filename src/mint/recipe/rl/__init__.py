"""Reinforcement learning: environments, rollouts, groups, and the loops that train on them."""
