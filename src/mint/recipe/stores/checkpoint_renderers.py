"""Which renderer a checkpoint was trained with: it is noted with the training run on the server."""

from typing import Any

from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import blocking


async def get_renderer_name_from_checkpoint_async(service_client: Any, path: str) -> str | None:
    """The renderer noted with the run that a checkpoint comes from; None if none was.

    Args:
        path: tinker://…
    """
    return (await Service(service_client).user_metadata_of(path)).get("renderer_name")


def get_renderer_name_from_checkpoint(service_client: Any, path: str) -> str | None:
    """get_renderer_name_from_checkpoint_async for code that is not async."""
    return blocking(get_renderer_name_from_checkpoint_async(service_client, path))


async def resolve_renderer_name_from_checkpoint_or_default_async(
    *,
    model_name: str,
    explicit_renderer_name: str | None,
    load_checkpoint_path: str | None,
    base_url: str | None = None,
) -> str:
    """The renderer to use: the one that is named, else the checkpoint's, else the model's.

    Args:
        load_checkpoint_path: where training starts from, if not from the base model.
        base_url: the server that has the checkpoint; None: as the settings say.

    Raises:
        RendererError: there is none for the model.
    """
    from mint.recipe.model_info import get_recommended_renderer_name

    if explicit_renderer_name is not None:
        return explicit_renderer_name
    if load_checkpoint_path is not None:
        async with await Service.connect(base_url=base_url, user_metadata={}) as service:
            metadata = await service.user_metadata_of(load_checkpoint_path)
        noted = metadata.get("renderer_name")
        if noted is not None:
            return noted
    return get_recommended_renderer_name(model_name)


def resolve_renderer_name_from_checkpoint_or_default(
    *,
    model_name: str,
    explicit_renderer_name: str | None,
    load_checkpoint_path: str | None,
    base_url: str | None = None,
) -> str:
    """resolve_renderer_name_from_checkpoint_or_default_async for code that is not async."""
    return blocking(
        resolve_renderer_name_from_checkpoint_or_default_async(
            model_name=model_name,
            explicit_renderer_name=explicit_renderer_name,
            load_checkpoint_path=load_checkpoint_path,
            base_url=base_url,
        )
    )
