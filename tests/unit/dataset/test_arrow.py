import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from recap_steam.dataset.arrow import text_array, to_arrow, to_numpy


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float32, np.float64, bool])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000])
def test_conversion_round_trip(dtype, length):
    values = np.random.default_rng(length).integers(0, 2, length).astype(dtype)
    array = to_arrow(values)
    array.validate(full=True)
    assert array.equals(pa.array(values))
    found = to_numpy(array)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("values", [np.arange(20), np.arange(20) % 3 == 0], ids=["int64", "bool"])
def test_slices_and_chunks(values):
    array = to_arrow(values)
    np.testing.assert_array_equal(to_numpy(array[3:14]), values[3:14])
    np.testing.assert_array_equal(to_numpy(pa.chunked_array([array[3:9], array[11:]])), np.concatenate([values[3:9], values[11:]]))
    np.testing.assert_array_equal(to_numpy(to_arrow(values[::3])), values[::3])


def test_nulls_become_nan():
    np.testing.assert_array_equal(to_numpy(pa.array([1, None, 3])), [1, np.nan, 3])


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "öffne die Schublade", "打开抽屉"]])
def test_texts(texts):
    assert text_array(texts).equals(pa.array(texts, pa.string()))


def test_conversions_do_not_import_pandas():
    code = (
        "import sys, numpy as np; from recap_steam.dataset.arrow import to_arrow, to_numpy, text_array\n"
        "for values in (np.arange(9), np.ones(9, bool)): to_numpy(to_arrow(values)); to_numpy(to_arrow(values[:0]))\n"
        "text_array(['a']); assert 'pandas' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
