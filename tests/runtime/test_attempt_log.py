"""Deaths of a process count against the work that it was doing, not against other packets that it had in work."""

from __future__ import annotations

from framekiln.runtime.recovery.attempt_log import PAUSED, SET_UP, AttemptTable


def test_a_death_in_a_logged_call_counts_for_that_packet_only():
    for order in (("bad", "good"), ("good", "bad")):
        log = AttemptTable()
        for work in order:
            log.begin(work, "one")
        log.note("bad", "row 7")
        past = {work: log.begin(work, "two") for work in order}
        assert past["bad"].deaths == 1 and past["bad"].suspects == {"row 7"}
        assert past["good"].deaths == 0


def test_a_death_that_no_call_explains_counts_for_each_packet_in_work():
    log = AttemptTable()
    log.begin("a", "one"), log.begin("b", "one"), log.begin("other machine", "two")
    log.begin("paused", "one"), log.note("paused", PAUSED)
    assert [log.begin(work, "three").deaths for work in ("a", "b", "paused")] == [1, 1, 0]
    log.end("other machine")
    assert log.begin("other machine", "four").deaths == 0


def test_work_that_kills_again_and_again_is_counted_whatever_is_beside_it():
    log = AttemptTable()
    for number in range(5):
        past = log.begin("bad", str(number)), log.begin("good", str(number))
        log.note("bad", f"row {number}")
    assert [one.deaths for one in past] == [4, 0] and len(past[0].suspects) == 4


def test_only_new_work_and_new_suspects_are_an_advance():
    log = AttemptTable()
    for number in range(3):  # a process that dies while it hands on its second packet, again and again
        for work in (f"{SET_UP}a", "first packet"):
            log.begin(work, str(number)), log.end(work)
        log.begin("decoding", str(number)), log.note("decoding", PAUSED)
        assert log.advances() == 1
    log.note("decoding", "row 7")
    log.begin("decoding", "3"), log.note("decoding", "row 7")
    log.begin("decoding", "4")
    assert log.advances() == 2
    log.end("decoding")
    assert log.advances() == 3
