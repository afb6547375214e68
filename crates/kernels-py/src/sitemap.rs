//! The shell of `read_sitemap_xml`.

use outrider_kernels::sitemap::{self, Limits};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::octets::Octets;

#[pyfunction]
pub(crate) fn read_sitemap_xml<'py>(
    octets: &Bound<'py, PyAny>,
    limits: (usize, usize, usize, usize),
) -> PyResult<Bound<'py, PyTuple>> {
    let (entries, depth, problems, field_characters) = limits;
    let limits = Limits { entries, depth, problems, field_characters };
    let py = octets.py();
    let found = Octets::of(octets)?.run(py, |octets| sitemap::read(octets, limits));
    let numbers = |column: &[i64]| {
        PyBytes::new(py, &column.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>())
    };
    let shares: Vec<u8> = found.priorities.iter().flat_map(|share| share.to_le_bytes()).collect();
    let bases: Vec<u8> = found.bases.iter().flat_map(|base| base.to_le_bytes()).collect();
    PyTuple::new(
        py,
        [
            found.kind.into_pyobject(py)?.into_any(),
            PyBytes::new(py, &found.arena).into_any(),
            numbers(&found.offsets).into_any(),
            PyBytes::new(py, &found.dates).into_any(),
            numbers(&found.date_offsets).into_any(),
            PyBytes::new(py, &found.date_kinds).into_any(),
            PyBytes::new(py, &found.changes).into_any(),
            PyBytes::new(py, &shares).into_any(),
            PyBytes::new(py, &bases).into_any(),
            found.base_texts.into_pyobject(py)?.into_any(),
            found.problems.into_pyobject(py)?.into_any(),
        ],
    )
}
