"""The clock of a solve: limits of the user's are seconds that pass, those of a question work."""

import itertools

import pytest

from quadsense.watch import Stop, Watch, look


def ticking(step):
    """A clock that goes on by `step` whenever it is looked at."""
    counter = itertools.count()
    return lambda: step * next(counter)


def look_often():
    for _ in range(100):
        look()


def busy(time_limit=None):
    """A watch on a machine where others take all the time: seconds pass, no work is done."""
    watch = Watch(ticking(1.0), time_limit=time_limit)
    watch.worked = lambda: 0.0
    return watch


def test_what_a_question_may_take_is_work():
    watch = busy()
    with watch.heeded(), watch.within(5.0):
        look_often()
        assert not watch.late
    assert watch.left is None


def test_work_is_cut_where_it_took_what_it_may():
    watch = busy()
    watch.worked = ticking(1.0)
    with watch.heeded(), watch.within(5.0):
        with pytest.raises(Stop):
            look_often()
        assert watch.late
    assert not watch.late


def test_work_of_other_threads_does_not_count():
    watch = Watch(lambda: 0.0)
    watch.worked = ticking(1.0)
    with watch.heeded(), watch.within(5.0):
        look_often()
        assert not watch.late


def test_work_ahead_counts():
    watch = Watch(lambda: 0.0)
    with watch.heeded(), watch.within(5.0):
        look(1e10)
        with pytest.raises(Stop):
            look(1e12)


def test_a_time_limit_is_time_that_passes():
    watch = busy(time_limit=20.0)
    with watch.heeded(), watch.within(5.0), pytest.raises(Stop):
        look_often()
    assert watch.late
