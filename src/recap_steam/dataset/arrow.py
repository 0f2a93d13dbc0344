"""Arrow to NumPy and back without pandas, which PyArrow's own conversions import: a quarter of a CPU second in every short job."""

import numpy as np
import pyarrow as pa


def to_numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Numbers or booleans as (n,) NumPy, lists of equally many numbers as (n, width).

    Read-only and not copied, but for booleans, several chunks and nulls (which become NaN).
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if pa.types.is_list(array.type):
        return to_numpy(array.flatten()).reshape(len(array), -1)
    if array.null_count:
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(array.type):  # a bit each; DLPack knows bytes only
        return np.from_dlpack(array.cast(pa.uint8())).view(bool)
    return np.from_dlpack(array)


def to_arrow(values: np.ndarray) -> pa.Array:
    """(n,) numbers or booleans as an Arrow array, (n, width) as lists; not copied, but for booleans and strided arrays."""
    if values.ndim == 2:
        starts = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
        return pa.ListArray.from_arrays(to_arrow(starts), to_arrow(values.ravel()))
    kind = pa.from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def text_array(texts: list[str]) -> pa.StringArray:
    """Strings as an Arrow array."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
