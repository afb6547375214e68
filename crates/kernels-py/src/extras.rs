//! The shell of the last parts of cards' bodies.

use outrider_kernels::backlog::HEAD_BYTES;
use outrider_kernels::extras::{fields_of, Cards};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::columns::{bytes_of, column, same_length, tuple_of};
use crate::octets::Octets;
use crate::{fingerprinter, objects_of};

/// See `outrider.kernels.extras.with_extras`.
#[pyfunction]
pub fn with_extras<'py>(
    heads: &Bound<'py, PyAny>,
    arena: &Bound<'py, PyAny>,
    starts: &Bound<'py, PyAny>,
    fields: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    contents: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
    let print = fingerprinter(key)?;
    let declared = text_of(fields)?;
    let fields = fields_of(declared).ok_or_else(|| {
        PyValueError::new_err(format!(
            "fields {declared}: declare them as d:bytes t:str, each letter once, and digests first"
        ))
    })?;
    let (heads, bodies) = (Octets::of_items(heads, HEAD_BYTES, "heads")?, Octets::of(arena)?);
    let heads = heads.as_slice().chunks_exact(HEAD_BYTES);
    let of_heads = |name, length| same_length(("heads", heads.len()), (name, length));
    let starts = column::<i64>(starts, "starts")?;
    of_heads("starts", starts.len())?;
    let contents = column::<u64>(contents, "contents")?;
    of_heads("contents", contents.len())?;
    let columns = objects_of(values)?;
    if columns.len() != fields.len() {
        let message = format!("{} columns of values, not {}", columns.len(), fields.len());
        return Err(PyValueError::new_err(message));
    }
    let held = columns.iter().map(objects_of).collect::<PyResult<Vec<_>>>()?;
    for (field, column) in fields.iter().zip(&held) {
        let name = format!("values of {}", char::from(field.name));
        same_length(("heads", heads.len()), (&name, column.len()))?;
    }
    let mut made = Cards::new(fields.clone());
    let mut values = Vec::with_capacity(fields.len());
    let mut offsets = Vec::with_capacity(8 * (heads.len() + 1));
    offsets.push(0);
    for (row, head) in heads.enumerate() {
        values.clear();
        for (field, column) in fields.iter().zip(&held) {
            let value = &column[row];
            values.push(if field.is_text { text_of(value)?.as_bytes() } else { octets_of(value)? });
        }
        let head = head.first_chunk().ok_or_else(|| PyValueError::new_err("a head is cut"))?;
        let end = made.add(head, bodies.as_slice(), starts[row], &values, contents[row], &print);
        offsets.push(end.ok_or_else(|| {
            PyValueError::new_err(format!("row {row}: its body lies outside, or is too long"))
        })?);
    }
    let py = arena.py();
    let offsets = bytes_of(py, offsets.into_iter().map(|end| (end as i64).to_le_bytes()));
    tuple_of(py, [&made.heads, &made.arena, offsets.as_bytes()])
}

fn octets_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    match value.cast::<PyBytes>() {
        Ok(octets) => Ok(octets.as_bytes()),
        Err(_) => Err(of_another_type(value, "bytes")),
    }
}

fn text_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    match value.cast::<PyString>() {
        Ok(text) => text.to_str(),
        Err(_) => Err(of_another_type(value, "str")),
    }
}

fn of_another_type(value: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    match value.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("a {wanted} is asked for, not {name}")),
        Err(error) => error,
    }
}
