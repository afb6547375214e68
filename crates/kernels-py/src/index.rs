//! The shell of `Index`.

use crate::buffers::numbers_of;
use outrider_kernels::index;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// See `outrider.kernels.index.Index`.
#[pyclass(module = "outrider._native")]
pub struct Index(index::Index);

#[pymethods]
impl Index {
    #[new]
    fn new() -> Self {
        Self(index::Index::new())
    }

    // The GIL is kept: a million look-ups take less time than getting it back from one busy thread ten times.
    fn find<'py>(&self, hashes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = self.0.find(&numbers_of(hashes)?);
        let mut out = Vec::with_capacity(4 * rows.len());
        for row in rows {
            out.extend_from_slice(&row.to_le_bytes());
        }
        Ok(PyBytes::new(hashes.py(), &out))
    }

    fn add(&mut self, hashes: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let hashes: Vec<u64> = numbers_of(hashes)?;
        let rows: Vec<u32> = numbers_of(rows)?;
        if hashes.len() != rows.len() {
            let message = format!("{} hashes and {} rows make no pairs", hashes.len(), rows.len());
            return Err(PyValueError::new_err(message));
        }
        self.0.add(&hashes, &rows).map_err(|at| {
            PyValueError::new_err(format!("place {at}: 4294967295 is no row, it means none"))
        })
    }

    fn remove(&mut self, hashes: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.remove(&numbers_of(hashes)?);
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn statistics(&self) -> std::collections::HashMap<&'static str, usize> {
        [("entries", self.0.len()), ("bytes", self.0.bytes())].into()
    }
}
