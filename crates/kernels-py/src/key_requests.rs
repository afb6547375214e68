//! The shell of the requests of DRUM.

use crate::octets::Octets;
use outrider_kernels::key_requests::{self, Fault, Layout, OPERATIONS};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Fewer requests are answered in a fraction of a millisecond.
const LET_GO_BYTES_MIN: usize = 64 * 1024;

/// The whole items of a buffer; ValueError for a part of one.
fn items<'a>(octets: &'a Octets<'_>, item: usize, name: &str) -> PyResult<&'a [u8]> {
    let found = octets.as_slice();
    if found.len() % item != 0 {
        let message = format!("{name}: {} bytes are no column of {item} bytes each", found.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(found)
}

fn fault(fault: Fault) -> PyErr {
    PyValueError::new_err(match fault {
        Fault::Operation(place, operation) => {
            let (least, most) = (OPERATIONS.start(), OPERATIONS.end());
            format!("place {place}: an operation is {least} to {most}, not {operation}")
        }
        Fault::Order(block) => format!("block {block}: the keys do not ascend"),
    })
}

#[pyfunction]
pub(crate) fn answer_requests<'py>(
    requests: &Bound<'py, PyAny>,
    payload_bytes: u32,
    valued: bool,
    blocks: Vec<Bound<'py, PyAny>>,
    whole: bool,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let py = requests.py();
    let layout = Layout { payload_bytes: payload_bytes as usize, valued };
    let given = Octets::of(requests)?;
    let octets = items(&given, layout.request_bytes(), "requests")?;
    if u32::try_from(octets.len() / layout.request_bytes()).is_err() {
        return Err(PyValueError::new_err("requests: use 4,294,967,295 at most in a call"));
    }
    let held = blocks.iter().map(Octets::of).collect::<PyResult<Vec<_>>>()?;
    let mut rows = Vec::with_capacity(held.len());
    for (number, block) in held.iter().enumerate() {
        rows.push(items(block, layout.row_bytes(), &format!("block {number}"))?);
    }
    let work = || key_requests::answer(octets, layout, &rows, whole);
    let fixed = given.is_fixed() && held.iter().all(Octets::is_fixed);
    let size = octets.len() + rows.iter().map(|block| block.len()).sum::<usize>();
    let answers = if fixed && size >= LET_GO_BYTES_MIN { py.detach(work) } else { work() };
    let key_requests::Answers { known, values, rows } = answers.map_err(fault)?;
    Ok((PyBytes::new(py, &known), PyBytes::new(py, &values), PyBytes::new(py, &rows)))
}
