"""Messages to tokens and back, one file per model family."""

from mint.recipe.messages import Message as Message
from mint.recipe.renderers.base import ParseTermination as ParseTermination
from mint.recipe.renderers.base import RenderContext as RenderContext
from mint.recipe.renderers.base import RenderedMessage as RenderedMessage
from mint.recipe.renderers.base import Renderer as Renderer
from mint.recipe.renderers.base import TrainOnWhat as TrainOnWhat
