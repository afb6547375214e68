//! The shell of `Index`.

use crate::columns::{bytes_of, column, same_length};
use outrider_kernels::index;
use outrider_kernels::rows::NONE;
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
        let hashes = column::<u64>(hashes, "hashes")?;
        let rows = run(py, hashes.len(), || self.0.find(&hashes));
        Ok(bytes_of(py, rows.iter().map(|row| row.to_le_bytes())))
    }

    fn add(&mut self, hashes: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = hashes.py();
        let hashes = column::<u64>(hashes, "hashes")?;
        let rows = column::<u32>(rows, "rows")?;
        same_length(("hashes", hashes.len()), ("rows", rows.len()))?;
        run(py, hashes.len(), || self.0.add(&hashes, &rows))
            .map_err(|at| PyValueError::new_err(format!("rows: at {at} stands {NONE}, no row")))
    }

    fn remove(&mut self, hashes: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = hashes.py();
        let hashes = column::<u64>(hashes, "hashes")?;
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
