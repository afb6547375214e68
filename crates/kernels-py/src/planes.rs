//! The shell of the planes of heads.

use crate::octets::Octets;
use outrider_kernels::planes;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// See `outrider.kernels.planes.shuffle_columns`.
#[pyfunction]
pub fn shuffle_columns<'py>(columns: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut shuffled = Vec::new();
    for object in columns.try_iter()? {
        let buffer = PyUntypedBuffer::get(&object?)?;
        shuffle(&buffer, &mut shuffled)?;
    }
    Ok(PyBytes::new(columns.py(), &shuffled))
}

#[allow(unsafe_code)]
fn shuffle(buffer: &PyUntypedBuffer, out: &mut Vec<u8>) -> PyResult<()> {
    let (width, rows) = (buffer.item_size(), buffer.item_count());
    let stride = match (buffer.dimensions(), buffer.strides()) {
        (1, [stride]) => usize::try_from(*stride).ok(),
        _ => None,
    };
    let Some(stride) = stride.filter(|_| buffer.suboffsets().is_none()) else {
        return Err(PyBufferError::new_err("a column has one dimension, and runs forwards"));
    };
    if rows == 0 || width == 0 {
        return Ok(());
    }
    // SAFETY: the export keeps the memory in place and alive as long as `buffer`; it holds `rows` initialised items of
    // `width` bytes, `stride` bytes apart with no indirection (checked above), and between the items of a strided view
    // lies memory of the same array. The GIL is held while it is looked at, so no Python code writes to it.
    let octets = unsafe {
        std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), (rows - 1) * stride + width)
    };
    planes::shuffle(octets, rows, stride, width, out);
    Ok(())
}

/// See `outrider.kernels.planes.pack_heads`.
#[pyfunction]
pub fn pack_heads<'py>(
    heads: &Bound<'py, PyAny>,
    whole: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (cells, flags) = (Octets::of(heads)?, Octets::of(whole)?);
    let (cells, flags) = (cells.as_slice(), flags.as_slice());
    let packed = planes::pack(cells, flags).ok_or_else(|| {
        let (size, rows, most) = (cells.len(), flags.len(), planes::ROWS_MAX);
        PyValueError::new_err(format!("{size} bytes are no heads of {rows} cards, 1 to {most}"))
    })?;
    Ok(PyBytes::new(heads.py(), &packed))
}

/// See `outrider.kernels.planes.unpack_heads`.
#[pyfunction]
pub fn unpack_heads<'py>(
    packed: &Bound<'py, PyAny>,
    rows: i64,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let octets = Octets::of(packed)?;
    let octets = octets.as_slice();
    let unpacked = usize::try_from(rows).ok().and_then(|rows| planes::unpack(octets, rows));
    let (heads, whole) = unpacked.ok_or_else(|| {
        let size = octets.len();
        PyValueError::new_err(format!("{size} bytes are no packed heads of {rows} cards"))
    })?;
    let py = packed.py();
    Ok((PyBytes::new(py, &heads), PyBytes::new(py, &whole)))
}
