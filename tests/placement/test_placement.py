"""Placement on made inventories: never over capacity, everything placed or named, no idle wave."""

from itertools import combinations, product

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.placement import GIB, Demand, Gpu, Inventory, Node, Size, fits, place
from orchestrator.serving import Footprint

ONE = Gpu("0", "made", 80 * GIB, 80 * GIB)


def gpus(*gib: float) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(str(number), "made", int(size * GIB), int(size * GIB))
        for number, size in enumerate(gib)
    )


def footprint(weights: float, cache: float = 1, overhead: float = 1, **more) -> Footprint:
    wanted = more.pop("cache_wanted", cache)
    in_bytes = [int(n * GIB) for n in (weights, cache, wanted, overhead)]
    return Footprint(in_bytes[0], in_bytes[1], in_bytes[2], in_bytes[3], **more)


def demand(name: str, weights: float, **more) -> Demand:
    depth, replicas = more.pop("depth", 0), more.pop("replicas", 1)
    return Demand(name, footprint(weights, **more), depth, replicas)


def names(placement) -> list[set[str]]:
    return [set(wave) for wave in placement.waves]


footprints = st.builds(
    footprint,
    st.floats(0.1, 120),
    cache=st.floats(0.01, 20),
    cache_wanted=st.floats(0.01, 60),
    overhead=st.floats(0, 3),
    splits=st.sampled_from([(1,), (1, 2), (1, 2, 4), (1, 3)]),
    cache_splits=st.integers(1, 4),
)
demands = st.lists(
    st.tuples(st.none() | footprints, st.integers(0, 1), st.integers(1, 3)), max_size=5
).map(lambda found: [Demand(f"m{number}", *parts) for number, parts in enumerate(found)])
inventories = st.builds(
    Inventory,
    st.lists(st.sampled_from([0.5, 16.0, 24.0, 80.0, 141.0]), max_size=3).map(lambda g: gpus(*g)),
    st.none() | st.integers(1, 4),
)


@given(demands, inventories)
def test_no_wave_takes_more_than_there_is(wanted, inventory):
    for wave in place(wanted, inventory).waves:
        assert fits([share for found in wave.values() for share in found], inventory)


@given(demands, inventories)
def test_fractions_of_a_gpu_sum_to_less_than_one(wanted, inventory):
    for wave in place(wanted, inventory).waves:
        for gpu in inventory.gpus:
            on_it = [s.fraction for found in wave.values() for s in found if gpu.index in s.gpus]
            assert sum(on_it) <= 0.92 + 1e-9


@given(demands, inventories)
def test_every_server_is_in_one_wave_or_named_as_impossible(wanted, inventory):
    placement = place(wanted, inventory)
    placed = [name for wave in placement.waves for name in wave]
    named = [*placement.impossible]
    assert sorted(placed + named) == [one.name for one in wanted]
    assert all(placement.waves)


@given(demands, inventories)
def test_every_process_gets_at_least_what_it_needs(wanted, inventory):
    needs = {one.name: one.footprint for one in wanted}
    for wave in place(wanted, inventory).waves:
        for name, shares in wave.items():
            assert shares
            for share in shares:
                need = needs[name]
                assert (need is None) == (not share.gpus)
                assert need is None or share.n_bytes >= need.least(len(share.gpus))
                assert len(set(share.gpus)) == len(share.gpus)


@given(demands, inventories)
def test_what_is_named_as_impossible_fits_on_no_set_of_gpus(wanted, inventory):
    needs = {one.name: one.footprint for one in wanted}
    for found in place(wanted, inventory).impossible:
        need = needs[found]
        assert need is not None
        for n_gpus in need.splits:
            for chosen in combinations(inventory.gpus, n_gpus):
                alike = len({gpu.total for gpu in chosen}) == 1
                assert not alike or min(gpu.usable for gpu in chosen) < need.least(n_gpus)


@given(demands, inventories)
def test_no_two_waves_could_be_one(wanted, inventory):
    waves = place(wanted, inventory).waves
    needs = {one.name: one.footprint for one in wanted}
    n_gpus = {name: len(shares[0].gpus) for wave in waves for name, shares in wave.items()}
    for one, other in combinations(waves, 2):
        both = [*one, *other]
        if inventory.max_servers is not None and len(both) > inventory.max_servers:
            continue
        least = [(needs[name].least(n_gpus[name]), n_gpus[name]) for name in both if n_gpus[name]]
        assert not _fit_somehow(least, inventory.gpus)


def _fit_somehow(least, gpus) -> bool:
    """By trying every assignment of every server to every set of equal GPUs."""
    choices = [
        [on for on in combinations(range(len(gpus)), n) if len({gpus[i].total for i in on}) == 1]
        for _, n in least
    ]
    for chosen in product(*choices):
        left = [gpu.usable for gpu in gpus]
        for (n_bytes, _), on in zip(least, chosen, strict=True):
            for gpu in on:
                left[gpu] -= n_bytes
        if all(n >= 0 for n in left):
            return True
    return False


@given(demands, inventories)
def test_no_more_replicas_than_asked(wanted, inventory):
    asked = {one.name: one.replicas for one in wanted}
    for wave in place(wanted, inventory).waves:
        assert all(len(shares) <= asked[name] for name, shares in wave.items())


def test_small_models_share_a_gpu_and_its_whole_memory():
    placement = place([demand("a", 2), demand("b", 2)], Inventory(gpus(24)))
    (wave,) = placement.waves
    assert wave["a"][0].gpus == wave["b"][0].gpus == ("0",)
    assert 0.91 < wave["a"][0].fraction + wave["b"][0].fraction <= 0.92


def test_who_wants_more_gets_more_of_what_is_left():
    wanted = [demand("a", 2, cache_wanted=4), demand("b", 2, cache_wanted=13)]
    (wave,) = place(wanted, Inventory(gpus(24))).waves
    spare = [wave[name][0].n_bytes - 4 * GIB for name in ("a", "b")]
    assert abs(spare[1] / spare[0] - 4) < 1e-6


def test_a_model_too_large_for_one_gpu_is_split_over_the_fewest_that_hold_it():
    big = demand("big", 140, splits=(1, 2, 4, 8), cache_splits=8)
    (wave,) = place([big], Inventory(gpus(80, 80, 80, 80))).waves
    assert len(wave["big"][0].gpus) == 2


def test_what_no_split_holds_is_named_with_its_need():
    placement = place([demand("big", 140, splits=(1, 2))], Inventory(gpus(24, 24)))
    (found,) = placement.impossible.values()
    assert "142.0 GiB or 72.0 GiB on each of 2 GPUs" in found
    assert "22.1 GiB, 22.1 GiB" in found


def test_without_a_gpu_what_needs_one_is_impossible():
    (found,) = place([demand("a", 1)], Inventory()).impossible.values()
    assert "usable here: no GPU" in found


def test_memory_that_others_hold_is_not_given_away():
    held = Gpu("0", "made", 80 * GIB, 10 * GIB)
    assert place([demand("a", 20)], Inventory((held,))).impossible


def test_models_that_do_not_fit_together_make_waves_with_the_judge_last():
    wanted = [demand("judge", 50, depth=1), demand("a", 30), demand("b", 30)]
    placement = place(wanted, Inventory((ONE,)))
    assert names(placement) == [{"a", "b"}, {"judge"}]


def test_servers_on_the_cpu_run_together_where_nothing_bounds_them():
    assert len(place([Demand(name) for name in "abcd"], Inventory()).waves) == 1


def test_a_bound_on_servers_makes_waves():
    wanted = [Demand("judge", depth=1), Demand("a"), Demand("b")]
    assert names(place(wanted, Inventory(max_servers=2))) == [{"a", "b"}, {"judge"}]


def test_fewer_waves_are_preferred_to_waves_by_depth():
    # By depth: 25+40 | 45 (+25) | ...; by size: 45+25, 40+25.
    wanted = [demand("a", 23), demand("b", 23), demand("c", 38, depth=1), demand("d", 43, depth=1)]
    assert len(place(wanted, Inventory((ONE,))).waves) == 2


@given(demands, inventories)
def test_replicas_bring_no_wave_more(wanted, inventory):
    alone = [msgspec.structs.replace(one, replicas=1) for one in wanted]
    assert names(place(wanted, inventory)) == names(place(alone, inventory))


@given(demands, inventories)
def test_a_replica_is_left_out_only_where_there_is_no_room_for_it(wanted, inventory):
    asked = {one.name: one for one in wanted}
    for wave in place(wanted, inventory).waves:
        shares = [share for found in wave.values() for share in found]
        if inventory.max_servers is not None and len(shares) >= inventory.max_servers:
            continue
        for name, found in wave.items():
            need = asked[name].footprint
            if len(found) == asked[name].replicas:
                continue
            assert need is not None
            least = [_least(asked[of], share) for of in wave for share in wave[of] if share.gpus]
            one_more = (need.least(len(found[0].gpus)), len(found[0].gpus))
            assert not _fit_somehow([*least, one_more], inventory.gpus)


def _least(demand, share) -> tuple[int, int]:
    return demand.footprint.least(len(share.gpus)), len(share.gpus)


@given(st.integers(1, 4), footprints, st.sampled_from([80.0, 141.0]))
def test_as_many_replicas_as_gpus_take_one_each(n, need, size):
    (wave,) = place([Demand("a", need, 0, n)], Inventory(gpus(*[size] * n))).waves or ({"a": ()},)
    if wave["a"] and len(wave["a"][0].gpus) == 1:
        assert sorted(share.gpus for share in wave["a"]) == [(str(gpu),) for gpu in range(n)]


def test_servers_of_a_wave_are_spread_over_the_gpus():
    (wave,) = place([demand("a", 2), demand("b", 2)], Inventory(gpus(24, 24))).waves
    assert {wave["a"][0].gpus, wave["b"][0].gpus} == {("0",), ("1",)}
    assert min(wave["a"][0].fraction, wave["b"][0].fraction) > 0.91


def test_spreading_leaves_room_for_what_fits_on_one_gpu_only():
    wanted = [demand("a", 20), demand("b", 20), demand("large", 70)]
    (wave,) = place(wanted, Inventory(gpus(80, 80))).waves
    assert wave["a"][0].gpus == wave["b"][0].gpus != wave["large"][0].gpus


def test_replicas_fill_the_room_that_is_left():
    wanted = [demand("a", 30, replicas=3), demand("judge", 30)]
    (wave,) = place(wanted, Inventory(gpus(80, 40))).waves
    assert (len(wave["a"]), len(wave["judge"])) == (2, 1)


sizes = st.builds(
    Size, st.integers(1, 6), st.integers(0, 4), st.none() | st.integers(1, 100).map(GIB.__mul__)
)
clusters = st.builds(
    lambda found, most: Inventory((), most, tuple(Node(f"n{i}", s) for i, s in enumerate(found))),
    st.lists(sizes, min_size=1, max_size=4),
    st.none() | st.integers(1, 4),
)
wishes = st.builds(lambda size, n: replace(size, nodes=n), sizes, st.integers(1, 3))
sized = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3), wishes), max_size=5).map(
    lambda found: [Demand(f"m{number}", None, *parts) for number, parts in enumerate(found)]
)


@given(sized, clusters)
def test_no_node_gives_more_than_it_has_and_every_server_is_placed_or_named(wanted, inventory):
    found = place(wanted, inventory)
    by_name = {node.name: node.size for node in inventory.nodes}
    for wave in found.waves:
        every = [share for shares in wave.values() for share in shares]
        assert fits(every, inventory)
        for name, has in by_name.items():
            on_it = [share.size for share in every if name in share.nodes]
            assert sum(size.cpus for size in on_it) <= has.cpus
            assert sum(size.gpus for size in on_it) <= has.gpus
            if has.n_bytes is not None:
                assert sum(size.n_bytes or 0 for size in on_it) <= has.n_bytes
    assert sorted([name for wave in found.waves for name in wave]) == sorted(
        one.name
        for one in wanted
        if sum(fits_on(node, one) for node in inventory.nodes) >= one.size.nodes
    )
    for wave in found.waves:
        for name, shares in wave.items():
            (demand,) = [one for one in wanted if one.name == name]
            assert 1 <= len(shares) <= demand.replicas
            assert all(share.size == demand.size for share in shares)
            assert all(len(set(share.nodes)) == demand.size.nodes for share in shares)


def fits_on(node, demand):
    has, wants = node.size, demand.size
    enough = has.n_bytes is None or has.n_bytes >= (wants.n_bytes or 0)
    return has.cpus >= wants.cpus and has.gpus >= wants.gpus and enough


def nodes(*found: Size) -> Inventory:
    return Inventory(nodes=tuple(Node(f"n{number}", size) for number, size in enumerate(found, 1)))


def test_servers_of_a_wave_share_nodes_and_tensor_parallel_stays_on_one():
    big, small = Size(4, 4), Size(2, 1)
    wanted = [Demand("a", size=small), Demand("big", size=big), Demand("b", size=small)]
    (wave,) = place(wanted, nodes(Size(8, 4), Size(8, 4))).waves
    assert wave["a"][0].node == wave["b"][0].node != wave["big"][0].node


def test_replicas_are_spread_over_nodes_as_far_as_there_is_room():
    wanted = [Demand("a", replicas=3, size=Size(1, 2)), Demand("judge", size=Size(1, 1))]
    (wave,) = place(wanted, nodes(Size(4, 3), Size(4, 2))).waves
    assert sorted(share.node for share in wave["a"]) == ["n1", "n2"]
    assert [share.node for share in wave["judge"]] == ["n1"]


def test_a_server_that_is_too_large_for_each_node_is_told_the_largest():
    inventory = nodes(Size(8, 2, 64 * GIB), Size(4, 4, 32 * GIB))
    (found,) = place([Demand("m", size=Size(2, 8, 200 * GIB))], inventory).impossible.values()
    assert found == (
        "it needs 2 CPUs, 8 GPUs, 200.0 GiB on one node; the largest node, n2, has 4 CPUs, "
        "4 GPUs, 32.0 GiB"
    )


def test_a_server_of_more_nodes_than_are_large_enough_is_told_how_many_are():
    inventory = nodes(Size(8, 8), Size(8, 8), Size(8, 4))
    (found,) = place([Demand("m", size=Size(1, 8, nodes=3))], inventory).impossible.values()
    assert found == "it needs 1 CPU, 8 GPUs on each of 3 nodes; nodes with so much: 2"
    (wave,) = place([Demand("m", size=Size(1, 8, nodes=2))], inventory).waves
    assert wave["m"][0].node == "n1,n2"


def test_where_memory_is_not_counted_there_is_enough():
    assert not place([Demand("m", size=Size(1, 0, 10**15))], nodes(Size(1))).impossible


def test_many_servers_on_many_nodes_are_placed_at_once():
    wanted = [Demand(f"m{n}", replicas=16, size=Size(8, 1)) for n in range(20)]
    found = place(wanted, nodes(*[Size(64, 8)] * 32))
    assert len(found.waves) == 1
    assert sum(map(len, found.waves[0].values())) == 256
