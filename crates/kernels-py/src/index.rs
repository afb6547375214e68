//! The shell of `Index`.

use crate::buffers::numbers_of;
use outrider_kernels::index;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// So many hashes take 2 to 7 ms. Fewer cost others less than the 5 ms that a busy thread of Python may keep the GIL from us.
const LET_GO_HASHES_MIN: usize = 65_536;

/// See `outrider.kernels.index.Index`.
#[pyclass(module = "outrider._native")]
pub struct Index(index::Index);

/// Runs work on so many hashes, without the GIL when they are many.
fn run<T: Send>(py: Python<'_>, hashes: usize, work: impl FnOnce() -> T + Send) -> T {
    if hashes >= LET_GO_HASHES_MIN {
        py.detach(work)
    } else {
        work()
    }
}

#[pymethods]
impl Index {
    #[new]
    fn new() -> Self {
        Self(index::Index::new())
    }

    fn find<'py>(&self, hashes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = hashes.py();
        let hashes: Vec<u64> = numbers_of(hashes)?;
        let rows = run(py, hashes.len(), || self.0.find(&hashes));
        let mut out = Vec::with_capacity(4 * rows.len());
        for row in rows {
            out.extend_from_slice(&row.to_le_bytes());
        }
        Ok(PyBytes::new(py, &out))
    }

    fn add(&mut self, hashes: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = hashes.py();
        let hashes: Vec<u64> = numbers_of(hashes)?;
        let rows: Vec<u32> = numbers_of(rows)?;
        if hashes.len() != rows.len() {
            let message = format!("{} hashes and {} rows make no pairs", hashes.len(), rows.len());
            return Err(PyValueError::new_err(message));
        }
        run(py, hashes.len(), || self.0.add(&hashes, &rows)).map_err(|at| {
            PyValueError::new_err(format!("place {at}: 4294967295 is no row, it means none"))
        })
    }

    fn remove(&mut self, hashes: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = hashes.py();
        let hashes: Vec<u64> = numbers_of(hashes)?;
        run(py, hashes.len(), || self.0.remove(&hashes));
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn statistics(&self) -> std::collections::HashMap<&'static str, usize> {
        [("entries", self.0.len()), ("bytes", self.0.bytes())].into()
    }
}
