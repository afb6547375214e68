//! The shell of the planes of heads.

use crate::Octets;
use outrider_kernels::planes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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
