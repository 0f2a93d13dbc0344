"""The codec speaks with the client's, and reads nothing that could run, lie about its size or take long."""

import pickle
import time
import tracemalloc

import msgpack
import numpy as np
import pytest
from openpi_client import msgpack_numpy

from recap_steam.errors import UserError
from recap_steam.serving.codec import DTYPES, MAX_CONTAINERS, decode, encode


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_travel_both_ways_as_the_client_packs_them(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    assert encode({"array": array}) == msgpack_numpy.packb({"array": array})
    for found in (decode(msgpack_numpy.packb({"array": array})), msgpack_numpy.unpackb(encode({"array": array}))):
        assert found["array"].dtype == array.dtype
        np.testing.assert_array_equal(found["array"], array)


def test_scalars_texts_none_and_empty_arrays_travel():
    message = {
        "a": np.float32(1.5),
        "b": np.int64(3),
        "c": np.str_("text"),
        "d": None,
        "e": np.zeros((0, 3), np.float32),
        "f": np.array(2.0),
    }
    found = decode(msgpack_numpy.packb(message))
    assert [found[key] for key in "abcd"] == [1.5, 3, "text", None]
    assert found["e"].shape == (0, 3) and found["f"].shape == () and found["f"] == 2.0


def test_columns_in_fortran_order_keep_their_places():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(decode(msgpack_numpy.packb({"array": array}))["array"], array)


def marked(data, dtype, shape) -> bytes:
    return msgpack.packb({"array": {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}})


class Trap:
    """Unpickling this ends the test."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


MALFORMED = {
    "empty": b"",
    "a pickle": pickle.dumps({"state": Trap()}),
    "pickled objects as an array": marked(pickle.dumps(Trap()), "|O", [1]),
    "objects": marked(b"\0" * 8, "|O", [1]),
    "records": marked(b"\0" * 8, "|V8", [1]),
    "a dtype that is no text": marked(b"\0" * 8, ["<f8"], [1]),
    "a dtype with a recipe": marked(b"\0" * 8, "f8,(1000000,)f8", [1]),
    "too few bytes": marked(b"\0" * 8, "<f8", [2]),
    "a huge shape": marked(b"\0" * 8, "<f8", [2**62, 2**62]),
    "a huge empty shape": marked(b"", "<f8", [2**62, 2**62]),
    "a negative shape": marked(b"\0" * 8, "<f8", [-1, -1]),
    "a shape of truths": marked(b"\0" * 8, "<f8", [True]),
    "a shape of floats": marked(b"\0" * 8, "<f8", [1.0]),
    "too many dimensions": marked(b"\0" * 8, "<f8", [1] * 33),
    "no shape": marked(b"\0" * 8, "<f8", None),
    "text as bytes": marked("\0" * 8, "<f8", [1]),
    "a scalar that is a map": msgpack.packb({"a": {b"__npgeneric__": True, b"data": {}, b"dtype": "<f8"}}),
    "a list": msgpack.packb([1, 2]),
    "a number": msgpack.packb(7),
    "keys that are bytes": msgpack.packb({b"state": 1}),
    "keys that are numbers": msgpack.packb({1: 1}, strict_types=False),
    "an extension": msgpack.packb({"a": msgpack.ExtType(5, b"x")}),
    "a time": msgpack.packb({"a": msgpack.Timestamp(2**40)}),
    "no UTF-8": b"\x81\xa1a\xa1\xff",
    "one byte short": msgpack_numpy.packb({"state": np.zeros(3)})[:-1],
    "one byte more": msgpack_numpy.packb({"state": np.zeros(3)}) + b"\0",
    "a list that promises four thousand million": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "a map that promises as many": b"\xdf\xff\xff\xff\xff",
    "a text that promises as much": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "bytes that promise as much": b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "too deep": b"\x81\xa1a" + b"\x91" * 100_000,
    "a long text": msgpack.packb({"a": "x" * 100_000}),
    "a text frame": '{"state": 1}',
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_one_line(message):
    with pytest.raises(UserError) as refused:
        decode(message)
    assert str(refused.value).startswith("message: ") and "; send" in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 250


def test_a_message_of_millions_of_small_parts_costs_neither_time_nor_memory():
    bombs = [b"\x81\xa1a" + b"\xdc\x00\x40" + (b"\xdc\x00\x40" + b"\x90" * 64) * 64, msgpack.packb({"a": [[[0] * 64] * 64] * 64})]
    bombs.append(msgpack.packb({"a": [{f"{number}": [] for number in range(64)}] * 64}) * 100)
    tracemalloc.start()
    started = time.process_time()
    for bomb in bombs:
        with pytest.raises(UserError, match=f"more than {MAX_CONTAINERS} lists and maps"):
            decode(bomb)
    assert time.process_time() - started < 0.5
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def test_what_is_no_number_is_not_sent():
    for value in (np.array([None]), np.array(["text"]), object()):
        with pytest.raises(TypeError, match="cannot send"):
            encode({"a": value})
