"""A message as the chat API has it."""

from typing import Any

from mint.recipe.messages import (
    ContentPart,
    Message,
    content_to_jsonable,
    ensure_list,
    get_text_content,
    has_thinking,
    tool_calls_of,
)


def as_openai_message(message: Message) -> dict[str, Any]:
    """Role and content, with reasoning, tool calls and names under their keys there.

    Content is one string, unless there are images or audio.
    """
    content = message["content"]
    parts = ensure_list(content)
    media = any(part["type"] in ("image", "audio") for part in parts)
    plain: dict[str, Any] = {
        "role": message["role"],
        "content": [_part(p) for p in parts if p["type"] != "thinking"]
        if media
        else get_text_content(message),
    }
    if has_thinking(content):
        plain["reasoning_content"] = "".join(
            p["thinking"] for p in parts if p["type"] == "thinking"
        )
    if calls := tool_calls_of(message):
        plain["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
        ]
    return plain | {key: message.get(key) for key in ("tool_call_id", "name") if key in message}


def _part(part: ContentPart) -> dict[str, Any]:
    plain = content_to_jsonable([part])
    assert not isinstance(plain, str)
    if part["type"] == "image":
        return {"type": "image_url", "image_url": {"url": plain[0]["image"]}}
    if part["type"] == "audio":
        sound = {"data": plain[0]["audio"], "format": part.get("format", "wav")}
        return {"type": "input_audio", "input_audio": sound}
    return plain[0]
