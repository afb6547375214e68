//! The shell of `SimHashIndex`.

use outrider_kernels::simhash;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// See `outrider.kernels.simhash.SimHashIndex`.
#[pyclass(module = "outrider._native")]
pub struct SimHashIndex(simhash::SimHashIndex);

#[pymethods]
impl SimHashIndex {
    #[new]
    #[pyo3(signature = (distance = 3, tables = 4))]
    fn new(distance: i64, tables: i64) -> PyResult<Self> {
        if !(0..=3).contains(&distance) {
            let message = format!("a distance of {distance} bits: it is 0 to 3");
            return Err(PyValueError::new_err(message));
        }
        let made = usize::try_from(tables)
            .ok()
            .and_then(|tables| simhash::SimHashIndex::new(distance as u32, tables));
        made.map(Self).ok_or_else(|| {
            PyValueError::new_err(format!("{tables} tables: there are designs of 4, 10, 16 and 20"))
        })
    }

    fn add(&mut self, fingerprint: u64) -> bool {
        self.0.add(fingerprint)
    }

    fn near(&self, fingerprint: u64) -> Vec<u64> {
        self.0.near(fingerprint).0
    }

    fn candidates(&self, fingerprint: u64) -> usize {
        self.0.near(fingerprint).1
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
