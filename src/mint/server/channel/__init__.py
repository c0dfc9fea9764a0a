"""The link between the API process and the engine process: wake-ups one way, endings the other.

What is queued and what came of it is in the store; a lost message costs time, never work.
"""

from mint.server.channel.health import EngineHealth, EnginePhase
from mint.server.channel.link import EngineLink

__all__ = ["EngineHealth", "EngineLink", "EnginePhase"]
