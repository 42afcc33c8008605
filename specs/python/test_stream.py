"""Streams as arguments, where there is no device: what is asked of an object, and that its answer is given back."""

import sys

import pytest

import moonferry as mf


class Theirs:
    """Another library's stream, by a method or, if that is what it gives, an attribute."""

    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class Failing:
    @property
    def __cuda_stream__(self):
        raise ZeroDivisionError


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_what_an_object_answers_is_given_back():
    pair = (1, 10**12)
    before = sys.getrefcount(pair)
    for _ in range(3):
        with pytest.raises(TypeError, match=r"must give \(0, handle\), not \(1, 1000000000000\)"):
            mf.Stream.wrap(Theirs(pair))
    assert sys.getrefcount(pair) == before


def test_a_number_is_given_back():
    number, t, counts = Number(10**12), mf.zeros(2), []
    for _ in range(4):
        with pytest.raises(ValueError, match="stream must be None or -1 for a tensor on the cpu"):
            t.__dlpack__(stream=number)
        counts.append(sys.getrefcount(number.value))
    assert counts[1] == counts[3]


def test_an_error_of_an_object_is_what_is_raised():
    with pytest.raises(ZeroDivisionError):
        mf.Stream.wrap(Failing())


def test_a_handle_is_not_negative():
    with pytest.raises(ValueError, match="a stream's handle must not be negative, but is -5"):
        mf.Stream.wrap(Theirs((0, -5)))
