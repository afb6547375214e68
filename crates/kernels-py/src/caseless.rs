//! The shell of `holds_all`.

use outrider_kernels::caseless;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::octets::Octets;

#[pyfunction]
pub(crate) fn holds_all(
    text: &Bound<'_, PyAny>,
    pieces: &Bound<'_, PyTuple>,
    bytes_max: usize,
) -> PyResult<bool> {
    let octets = Octets::of(text)?;
    let held: Vec<_> = pieces.iter().collect();
    let pieces = held.iter().map(Octets::of).collect::<PyResult<Vec<_>>>()?;
    let pieces: Vec<&[u8]> = pieces.iter().map(Octets::as_slice).collect();
    let text = octets.as_slice();
    // A few µs for the pages that are asked about: too few to let go of the GIL.
    Ok(caseless::holds_all(&text[..text.len().min(bytes_max)], &pieces))
}
