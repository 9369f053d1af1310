"""How work items are handed out: what each way leaves to the slot that ends last."""

import pytest

from fagen.plan.work_items import as_freed, asked_ahead, in_rounds

WAYS = (in_rounds, as_freed, asked_ahead)
FALLING = [float(cost) for cost in range(40, 0, -1)]


@pytest.mark.parametrize("hand_out", WAYS)
@pytest.mark.parametrize("slots", [1, 3, 7, 50])
def test_the_last_slot_is_through_no_sooner_than_an_equal_share_and_the_longest_item(hand_out, slots):
    end = hand_out(FALLING, slots)
    assert max(FALLING[0], sum(FALLING) / slots) <= end <= sum(FALLING)


@pytest.mark.parametrize("hand_out", WAYS)
def test_equal_items_take_as_long_as_their_rounds(hand_out):
    assert hand_out([2.0] * 9, 3) == 6.0
    assert hand_out([2.0] * 10, 3) == 8.0
    assert hand_out([2.0], 3) == 2.0


def test_who_asks_ahead_keeps_an_item_waiting_that_another_slot_is_free_for():
    costs = [9.0, 1.0, 1.0, 1.0]  # both slots ask for their second item at once, the first one among them
    assert as_freed(costs, 2) == 9.0
    assert asked_ahead(costs, 2) == 10.0


def test_who_asks_ahead_gets_no_further_item_before_starting_on_the_one_in_hand():
    costs = [9.0, 1.0, 5.0, 5.0, 3.0]  # at 1 the second slot starts on its 5 and asks: the 3 is its own
    assert asked_ahead(costs, 2) == 14.0
