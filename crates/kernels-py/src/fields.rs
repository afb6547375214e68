//! The shell of the fields of a head.

use outrider_kernels::fields;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::octets::Octets;

#[pyfunction]
pub(crate) fn head_fields<'py>(head: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = head.py();
    let octets = Octets::of(head)?;
    let pairs = fields::fields(octets.as_slice())
        .map(|(name, value)| (latin(py, name), latin(py, &value)).into_pyobject(py));
    PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}

#[pyfunction]
pub(crate) fn head_index<'py>(
    head: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let py = head.py();
    let octets = Octets::of(head)?;
    let (first, all) = (PyDict::new(py), PyDict::new(py));
    for (name, value) in fields::fields(octets.as_slice()) {
        let (name, value) = (lower(py, name), latin(py, &value));
        let Some(before) = first.get_item(&name)? else {
            first.set_item(name, value)?;
            continue;
        };
        match all.get_item(&name)? {
            Some(values) => values.cast::<PyList>()?.append(value)?,
            None => all.set_item(name, [before, value.into_any()])?,
        }
    }
    Ok((first, all))
}

/// A text in latin-1.
fn latin<'py>(py: Python<'py>, octets: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(octets).ok().filter(|text| text.is_ascii()) {
        Some(text) => PyString::new(py, text),
        None => PyString::new(py, &octets.iter().copied().map(char::from).collect::<String>()),
    }
}

/// The same in lower case.
fn lower<'py>(py: Python<'py>, octets: &[u8]) -> Bound<'py, PyString> {
    if octets.is_ascii() {
        return latin(py, &octets.to_ascii_lowercase());
    }
    let letters = octets.iter().copied().map(char::from).flat_map(char::to_lowercase);
    PyString::new(py, &letters.collect::<String>())
}
