//! The shell of the shapes of URLs.

use outrider_kernels::shapes as kernel;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::columns::{bytes_of, tuple_of};
use crate::octets::Octets;
use crate::{fingerprinter, on_spans};

/// See `outrider.kernels.shapes.shapes_of`.
#[pyfunction]
pub fn shapes_of<'py>(
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    ends: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    bytes_max: usize,
    sessions: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let print = fingerprinter(key)?;
    let sessions = Octets::of(sessions)?.as_slice().to_vec();
    let made = on_spans(arena, starts, ends, |octets, spans| {
        let mut names = Vec::with_capacity(16 * spans.len());
        let (mut counts, mut marks) = (Vec::new(), Vec::new());
        let mut text = Vec::new();
        for (row, &(start, end)) in spans.iter().enumerate() {
            let (authority, rest) = kernel::split(&octets[start..end]).ok_or(row)?;
            text.clear();
            text.extend_from_slice(authority);
            text.push(b'\n');
            let host = print.fingerprint(&text);
            kernel::shape(rest, bytes_max, &mut text);
            names.extend_from_slice(&print.fingerprint(&text).to_le_bytes());
            names.extend_from_slice(&host.to_le_bytes());
            counts.push(kernel::slashes(rest));
            marks.push(kernel::marks(rest, &sessions));
        }
        Ok::<_, usize>((names, counts, marks))
    })?;
    let (names, counts, marks) = made.map_err(|row| {
        PyValueError::new_err(format!("row {row}: a URL has an authority and a path"))
    })?;
    let py = arena.py();
    let counts: Bound<'py, PyBytes> = bytes_of(py, counts.into_iter().map(u32::to_le_bytes));
    tuple_of(py, [&names, counts.as_bytes(), &marks])
}
