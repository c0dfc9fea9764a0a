"""What a type checker makes of our clients. pyright reads this file with the rest (`make types`);
the signatures that are written for it alone are compared with upstream's here."""

import ast
import asyncio
import inspect
from pathlib import Path
from typing import assert_type

import pytest
import tinker

import mint
from mint.client import compat


def _never_run(service: mint.ServiceClient, training: mint.TrainingClient) -> None:
    assert_type(service.create_lora_training_client("base").result(), mint.TrainingClient)
    assert_type(service.create_training_client_from_state("path").result(), mint.TrainingClient)
    assert_type(
        service.create_training_client_from_state_with_optimizer("path").result(),
        mint.TrainingClient,
    )
    assert_type(service.create_sampling_client("path").result(), mint.SamplingClient)
    assert_type(training.create_sampling_client("path").result(), mint.SamplingClient)
    assert_type(training.save_weights_and_get_sampling_client().result(), mint.SamplingClient)
    assert_type(service.create_rest_client(), mint.RestClient)
    upstreams: tinker.APIFuture[tinker.TrainingClient] = service.create_lora_training_client("base")
    as_upstreams: tinker.BackcompatSamplingClientFuture = service.create_sampling_client("path")
    del upstreams, as_upstreams


async def _never_awaited(service: mint.ServiceClient, training: mint.TrainingClient) -> None:
    assert_type(await service.create_lora_training_client("base"), mint.TrainingClient)
    assert_type(await service.create_lora_training_client_async("base"), mint.TrainingClient)
    assert_type(await service.create_training_client_from_state_async("p"), mint.TrainingClient)
    assert_type(await service.create_sampling_client("path"), mint.SamplingClient)
    assert_type(await service.create_sampling_client_async("path"), mint.SamplingClient)
    assert_type(await training.save_weights_and_get_sampling_client(), mint.SamplingClient)
    assert_type(await training.save_weights_and_get_sampling_client_async(), mint.SamplingClient)


def _written_for_the_checker() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(client, method) below `if TYPE_CHECKING` in our two clients."""
    tree = ast.parse(Path(compat.__file__).read_text())
    return [
        (cls.name, method)
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for block in cls.body
        if isinstance(block, ast.If)
        for method in block.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize(
    ("client", "method"),
    [pytest.param(c, m, id=f"{c}.{m.name}") for c, m in _written_for_the_checker()],
)
def test_a_signature_for_the_type_checker_is_upstreams(
    client: str, method: ast.FunctionDef | ast.AsyncFunctionDef
):
    upstream = getattr(getattr(tinker, client), method.name)
    taken = inspect.signature(inspect.unwrap(upstream)).parameters
    arguments = method.args

    assert asyncio.iscoroutinefunction(inspect.unwrap(upstream)) == isinstance(
        method, ast.AsyncFunctionDef
    )
    assert [argument.arg for argument in arguments.args] == list(taken)
    assert [ast.literal_eval(default) for default in arguments.defaults] == [
        parameter.default
        for parameter in taken.values()
        if parameter.default is not inspect.Parameter.empty
    ]
