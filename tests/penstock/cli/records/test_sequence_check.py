"""What is said of the numbers of a run."""

from __future__ import annotations

from random import Random

from penstock.cli.records.sequence_check import NUMBER_MAX, SHOWN_MAX, SequenceCheck


def checked(*records: tuple[int, int]) -> SequenceCheck:
    check = SequenceCheck()
    for partition, number in records:
        check.add(partition, number)
    return check


def test_a_whole_run_over_partitions_is_right() -> None:
    report = checked((0, 0), (1, 1), (1, 2), (0, 3)).report(4)
    assert report.is_right
    assert (report.records, report.missing) == (4, ())


def test_gaps_repeats_and_order_are_counted() -> None:
    report = checked((0, 0), (0, 4), (0, 2), (0, 4), (1, 1)).report()
    assert (report.records, report.missing_count, report.missing) == (4, 1, (3,))
    assert (report.duplicates, report.out_of_order) == (1, 1)
    assert not report.is_right


def test_the_end_of_a_run_is_missing_only_if_it_is_expected() -> None:
    assert checked((0, 0)).report().is_right
    report = checked((0, 0)).report(1000)
    assert (report.missing_count, len(report.missing)) == (999, SHOWN_MAX)
    assert SequenceCheck().report(5).missing_count == 5


def test_numbers_that_no_run_has_are_of_others() -> None:
    check = checked((0, -1), (0, NUMBER_MAX))
    check.add_other()
    assert check.report().others == 3


def test_any_order_and_any_holes_give_the_true_counts() -> None:
    random = Random(5)
    for _ in range(50):
        numbers = [random.randrange(300) for _ in range(random.randrange(1, 400))]
        report = checked(*((0, number) for number in numbers)).report(300)
        distinct = set(numbers)
        assert report.records == len(distinct)
        assert report.missing == tuple(number for number in range(300) if number not in distinct)[:SHOWN_MAX]
        assert (report.missing_count, report.duplicates) == (300 - len(distinct), len(numbers) - len(distinct))
