"""Messages to tokens and back, one file per model family."""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names
from mint.recipe.messages import ContentPart as ContentPart
from mint.recipe.messages import ImagePart as ImagePart
from mint.recipe.messages import Message as Message
from mint.recipe.messages import Role as Role
from mint.recipe.messages import TextPart as TextPart
from mint.recipe.messages import ThinkingPart as ThinkingPart
from mint.recipe.messages import ToolCall as ToolCall
from mint.recipe.messages import ToolSpec as ToolSpec
from mint.recipe.messages import UnparsedToolCall as UnparsedToolCall
from mint.recipe.messages import content_to_jsonable as content_to_jsonable
from mint.recipe.messages import ensure_list as ensure_list
from mint.recipe.messages import ensure_text as ensure_text
from mint.recipe.messages import format_content_as_string as format_content_as_string
from mint.recipe.messages import get_text_content as get_text_content
from mint.recipe.messages import has_thinking as has_thinking
from mint.recipe.messages import message_to_jsonable as message_to_jsonable
from mint.recipe.messages import remove_thinking as remove_thinking
from mint.recipe.renderers.base import Renderer as Renderer
from mint.recipe.renderers.examples import TrainOnWhat as TrainOnWhat
from mint.recipe.renderers.layout import ParseTermination as ParseTermination
from mint.recipe.renderers.layout import RenderContext as RenderContext
from mint.recipe.renderers.layout import RenderedMessage as RenderedMessage
from mint.recipe.renderers.registry import BUILT_IN
from mint.recipe.renderers.registry import (
    get_registered_renderer_names as get_registered_renderer_names,
)
from mint.recipe.renderers.registry import get_renderer as get_renderer
from mint.recipe.renderers.registry import is_renderer_registered as is_renderer_registered
from mint.recipe.renderers.registry import register_renderer as register_renderer
from mint.recipe.renderers.registry import unregister_renderer as unregister_renderer
from mint.recipe.renderers.streaming import MessageDelta as MessageDelta
from mint.recipe.renderers.streaming import StreamingMessageHeader as StreamingMessageHeader
from mint.recipe.renderers.streaming import StreamingTextDelta as StreamingTextDelta
from mint.recipe.renderers.streaming import StreamingThinkingDelta as StreamingThinkingDelta
from mint.recipe.text_encoder import Tokenizer as Tokenizer

if TYPE_CHECKING:
    from mint.recipe.renderers.hf_template import HFTemplateRenderer as HFTemplateRenderer
    from mint.recipe.renderers.llama3 import Llama3Renderer as Llama3Renderer
    from mint.recipe.renderers.qwen3 import (
        Qwen3DisableThinkingRenderer as Qwen3DisableThinkingRenderer,
    )
    from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer as Qwen3InstructRenderer
    from mint.recipe.renderers.qwen3 import Qwen3Renderer as Qwen3Renderer
    from mint.recipe.renderers.qwen3_5 import (
        Qwen35DisableThinkingRenderer as Qwen35DisableThinkingRenderer,
    )
    from mint.recipe.renderers.qwen3_5 import Qwen35Renderer as Qwen35Renderer
    from mint.recipe.renderers.role_colon import RoleColonRenderer as RoleColonRenderer

_FAMILIES = {kind: module for module, kind in BUILT_IN.values()}
"""Class -> its module."""

__getattr__, __dir__ = late_names(__name__, _FAMILIES)
