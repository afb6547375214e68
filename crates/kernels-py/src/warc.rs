//! The shell of `warc_records`.

use outrider_kernels::warc::{self, Exchange, IDS_BYTES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::columns::number;
use crate::octets::Octets;

/// Fewer bytes are hashed in some 10 µs, in which no thread waits long for the GIL.
const LET_GO_BYTES_MIN: usize = 16 * 1024;
const FIELDS: usize = 10;

#[pyfunction]
pub(crate) fn warc_records<'py>(
    exchanges: &Bound<'py, PyAny>,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let py = exchanges.py();
    let mut rows = Vec::with_capacity(exchanges.len().unwrap_or(0));
    for (row, exchange) in exchanges.try_iter()?.enumerate() {
        rows.push(fields_of(&exchange?, row)?);
    }
    let mut octets = Vec::with_capacity(rows.len());
    for fields in &rows {
        octets.push(Parts::of(fields)?);
    }
    let mut read = Vec::with_capacity(rows.len());
    for (row, (fields, parts)) in rows.iter().zip(&octets).enumerate() {
        read.push(exchange_of(fields, parts, row)?);
    }
    let ids = Octets::of(ids)?;
    let ids = ids.as_slice();
    if ids.len() != IDS_BYTES * read.len() {
        let message = format!("{} bytes are no ids of {} exchanges", ids.len(), read.len());
        return Err(PyValueError::new_err(message));
    }
    let size: usize = read.iter().map(|one| one.head.len() + one.body.len()).sum();
    // A copy of the ids, which may lie in a buffer that others write to.
    let ids = ids.to_vec();
    let make = || {
        let mut out = Vec::with_capacity(size + 2_048 * read.len());
        let made = warc::warc_records(&read, &ids, &mut out);
        (made, out)
    };
    let may_let_go = size >= LET_GO_BYTES_MIN && octets.iter().all(Parts::are_fixed);
    let (made, out) = if may_let_go { py.detach(make) } else { make() };
    let records = made.into_iter().map(|one| {
        let shown = PyString::from_bytes(py, &warc::shown(&one.payload))?;
        let content = PyBytes::new(py, &one.content);
        let (response, request) = (&out[one.response], &out[one.request]);
        (shown, content, PyBytes::new(py, response), PyBytes::new(py, request)).into_pyobject(py)
    });
    PyList::new(py, records.collect::<PyResult<Vec<_>>>()?)
}

type Fields<'py> = [Bound<'py, PyAny>; FIELDS];

fn fields_of<'py>(exchange: &Bound<'py, PyAny>, row: usize) -> PyResult<Fields<'py>> {
    let exchange = exchange.cast::<PyTuple>()?;
    let fields: Vec<_> = exchange.iter().collect();
    fields.try_into().map_err(|fields: Vec<_>| {
        let message = format!("row {row}: an exchange has {FIELDS} fields, not {}", fields.len());
        PyValueError::new_err(message)
    })
}

/// The bytes of an exchange.
struct Parts<'a> {
    request_head: Octets<'a>,
    head: Octets<'a>,
    body: Octets<'a>,
    content: Option<Octets<'a>>,
    payload: Option<Octets<'a>>,
}

impl<'a> Parts<'a> {
    fn of(fields: &'a Fields<'_>) -> PyResult<Self> {
        let other = |field: &'a Bound<'_, PyAny>| match field.is_none() {
            true => Ok(None),
            false => Octets::of(field).map(Some),
        };
        Ok(Self {
            request_head: Octets::of(&fields[3])?,
            head: Octets::of(&fields[4])?,
            body: Octets::of(&fields[5])?,
            content: other(&fields[8])?,
            payload: other(&fields[9])?,
        })
    }

    fn are_fixed(&self) -> bool {
        let parts = [Some(&self.request_head), Some(&self.head), Some(&self.body)];
        let others = [self.content.as_ref(), self.payload.as_ref()];
        parts.into_iter().chain(others).flatten().all(Octets::is_fixed)
    }
}

fn exchange_of<'a>(
    fields: &'a Fields<'_>,
    parts: &'a Parts<'_>,
    row: usize,
) -> PyResult<Exchange<'a>> {
    let truncated = &fields[6];
    let token = &fields[7];
    Ok(Exchange {
        url: visible(&fields[0], "URL", row)?,
        address: visible(&fields[1], "address", row)?,
        at: number(&fields[2], "u64", "an instant")?,
        request_head: parts.request_head.as_slice(),
        head: parts.head.as_slice(),
        body: parts.body.as_slice(),
        truncated: match truncated.is_none() {
            true => None,
            false => Some(visible(truncated, "reason", row)?),
        },
        token: match token.is_none() {
            true => None,
            false => Some(number(token, "u64", "a token")?),
        },
        content: parts.content.as_ref().map(Octets::as_slice),
        payload: parts.payload.as_ref().map(Octets::as_slice),
    })
}

/// A text that can stand in a field.
fn visible<'a>(text: &'a Bound<'_, PyAny>, name: &str, row: usize) -> PyResult<&'a str> {
    let text = text.cast::<PyString>()?;
    text.to_str().ok().filter(|text| warc::is_visible(text)).ok_or_else(|| {
        PyValueError::new_err(format!("row {row}: this {name} cannot stand in a record"))
    })
}
