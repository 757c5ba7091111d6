from hypothesis import given
from hypothesis import strategies as st

from prfaas_coord.guarded_port import Places


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_there_are_never_more_than_so_many_and_none_is_lost(
    steps: list[tuple[str, bool]],
) -> None:
    places = Places(most=5, most_each=3)
    taken: list[str] = []
    for address, takes in steps:
        if takes:
            fits = len(taken) < 5 and taken.count(address) < 3
            assert places.take(address) is fits
            taken += [address] if fits else []
        elif address in taken:
            places.give_back(address)
            taken.remove(address)
    for address in taken:
        places.give_back(address)
    assert [places.take("d") for _ in range(4)] == [True, True, True, False]


def test_who_has_none_is_forgotten() -> None:
    places = Places(most=5, most_each=3)
    for number in range(1000):
        assert places.take(str(number))
        places.give_back(str(number))
    assert not places._taken
