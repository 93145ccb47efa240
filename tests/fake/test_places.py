"""The fake server's places: how long requests wait for one, and what is said of it."""

from tests.fake.places import Places


def test_without_steps_nobody_waits():
    places = Places(())
    assert [places.delay("m", 0.0, 1.0) for _ in range(5)] == [1.0] * 5
    assert places.waiting("m", 0.0) == 0


def test_others_wait_until_a_place_is_free():
    places = Places(((0, 2),))
    assert [places.delay("m", 0.0, 1.0) for _ in range(5)] == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert [places.waiting("m", now) for now in (0.0, 1.0, 2.0)] == [3, 1, 0]


def test_who_waits_is_counted_by_model():
    places = Places(((0, 1),))
    for model in ("a", "b", "b"):
        places.delay(model, 0.0, 1.0)
    assert (places.waiting("a", 0.0), places.waiting("b", 0.0)) == (0, 2)


def test_places_that_come_are_free_at_once():
    places = Places(((0, 1), (2, 4)))
    assert [places.delay("m", 0.0, 1.0) for _ in range(5)] == [1.0, 2.0, 1.0, 1.0, 1.0]


def test_with_fewer_places_who_has_a_turn_keeps_it():
    places = Places(((0, 4), (4, 1)))
    assert [places.delay("m", 0.0, 1.0) for _ in range(6)] == [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]
