import pytest
import torch

from mint.torch_engine.kv_cache import KvCache, Place, place_length
from mint.torch_engine.kv_store import KvShape


@pytest.fixture
def kv() -> KvCache:
    shape = KvShape(
        layers=2, kv_heads=1, head_dim=3, dtype=torch.float32, device=torch.device("cpu")
    )
    return KvCache(shape, tokens=100)


def write(place: Place, value: float) -> None:
    place.shelf.k_LNKSD[:, place.slot] = value
    place.shelf.v_LNKSD[:, place.slot] = -value
    place.used = place.shelf.length


def holds(place: Place) -> float:
    k, v = place.shelf.k_LNKSD[:, place.slot], place.shelf.v_LNKSD[:, place.slot]
    assert k.unique().numel() == 1
    assert torch.equal(k, -v)
    return k.unique().item()


def test_a_place_is_at_most_half_as_long_again_as_what_it_holds():
    assert [place_length(n) for n in (1, 16, 17, 24, 25, 33, 49, 65, 1000)] == [
        16, 16, 24, 24, 32, 48, 64, 96, 1024,
    ]  # fmt: skip
    assert all(n <= place_length(n) <= 1.5 * n for n in range(16, 5000))


def test_places_in_use_stay_together_and_keep_their_content(kv: KvCache):
    places = kv.new_suffixes(5)
    for value, place in enumerate(places):
        write(place, value + 1)

    kv.give_back(places[1])
    kv.give_back(places[4])
    more = kv.new_suffixes(10)

    left = [places[0], places[2], places[3]]
    assert [holds(place) for place in left] == [1, 3, 4]
    assert [holds(place) for place in more] == [0] * 10  # nothing of those before
    assert sorted(p.slot for p in [*left, *more]) == list(range(13))


def test_a_longer_place_begins_with_what_the_shorter_held(kv: KvCache):
    stays, *grow = kv.new_suffixes(3)
    for value, place in enumerate([stays, *grow]):
        write(place, value + 1)

    longer = kv.lengthen(grow)

    assert [place.shelf.length for place in longer] == [24, 24]
    assert [place.used for place in longer] == [16, 16]
    for value, place in zip((2, 3), longer, strict=True):
        content = place.shelf.k_LNKSD[:, place.slot]
        assert (content[:, :, :16] == value).all()
        assert (content[:, :, 16:] == 0).all()
    assert holds(stays) == 1
    assert stays.shelf.places == [stays]


def test_a_place_that_cannot_grow_leaves_none_behind(kv: KvCache, monkeypatch):
    places = kv.new_suffixes(2)
    for value, place in enumerate(places):
        write(place, value + 1)

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as memory:
        memory.setattr(torch, "tensor", full)
        with pytest.raises(RuntimeError, match="out of memory"):
            kv.lengthen(places)

    assert kv.suffixes[24].places == []
    assert [holds(place) for place in places] == [1, 2]
    assert [place.shelf.length for place in kv.lengthen(places)] == [24, 24]


def test_memory_is_given_back_with_the_last_place(kv: KvCache):
    places = [kv.new_prompt(20), *kv.new_suffixes(3)]
    assert kv.nbytes >= (24 + 3 * 16) * 2 * 2 * 3 * 4

    for place in places:
        kv.give_back(place)

    assert kv.nbytes == 0


def test_the_budget_is_never_exceeded(kv: KvCache):
    assert kv.reserve(60)
    assert not kv.reserve(41)
    assert kv.reserve(40)
    kv.release(60)
    assert kv.reserve(41)
    assert kv.reserved == 81
