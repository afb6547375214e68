//! The shell of `SimHashIndex`.

use outrider_kernels::simhash;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::column;

/// Fewer cost less than another turn at the GIL, for which a busy thread lets this one wait.
const LET_GO_FINGERPRINTS_MIN: usize = 1_024;

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

    fn add_many(&mut self, fingerprints: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = fingerprints.py();
        let fingerprints = column::<u64>(fingerprints, "fingerprints")?;
        let index = &mut self.0;
        if fingerprints.len() < LET_GO_FINGERPRINTS_MIN {
            return Ok(index.add_many(fingerprints.into_iter()));
        }
        Ok(py.detach(|| index.add_many(fingerprints.into_iter())))
    }

    fn near_many<'py>(
        &self,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let py = fingerprints.py();
        let fingerprints = column::<u64>(fingerprints, "fingerprints")?;
        let index = &self.0;
        let (found, counts) = py.detach(|| index.near_many(fingerprints.into_iter()));
        let found: Vec<u8> = found.iter().flat_map(|one| one.to_le_bytes()).collect();
        let counts: Vec<u8> = counts.iter().flat_map(|one| one.to_le_bytes()).collect();
        Ok((PyBytes::new(py, &found), PyBytes::new(py, &counts)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
