//! The kinds of values in columns of Python's objects. Python's types are all that it reads, so no kernel stands behind
//! this shell.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFrozenSet, PyList, PyString, PyTuple};

use crate::objects_of;

/// See `outrider.kernels.values.kinds_of`.
#[pyfunction]
pub fn kinds_of<'py>(columns: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let told = objects_of(columns)?.iter().map(kinds_of_one).collect::<PyResult<Vec<_>>>()?;
    PyList::new(columns.py(), told)
}

fn kinds_of_one<'py>(column: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyFrozenSet>, i64)> {
    let values = if let Ok(list) = column.cast::<PyList>() {
        list.to_tuple()
    } else if let Ok(tuple) = column.cast::<PyTuple>() {
        tuple.clone()
    } else {
        let name = column.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a column is a list or tuple, not {name}")));
    };
    let (mut kinds, mut last) = (Vec::new(), std::ptr::null_mut());
    let (mut longest, mut others) = (0, false);
    for value in values.iter_borrowed() {
        let kind = value.get_type_ptr();
        if kind != last {
            last = kind;
            let kind = value.get_type();
            if !kinds.iter().any(|known| kind.is(known)) {
                kinds.push(kind);
            }
        } else if others {
            continue;
        }
        match length_of(&value) {
            Some(length) => longest = longest.max(length),
            None => others = true,
        }
    }
    let longest = if others { -1 } else { longest as i64 };
    Ok((PyFrozenSet::new(column.py(), &kinds)?, longest))
}

/// None for a value that is neither None nor bytes nor a text in ASCII.
fn length_of(value: &Bound<'_, PyAny>) -> Option<usize> {
    if value.is_none() {
        return Some(0);
    }
    if let Ok(octets) = value.cast_exact::<PyBytes>() {
        return Some(octets.as_bytes().len());
    }
    let text = value.cast_exact::<PyString>().ok()?;
    text.to_str().ok().filter(|text| text.is_ascii()).map(str::len)
}
