//! The shell of `BlockedBloom`.

use crate::fingerprint_set::{Keys, LET_GO_KEYS_MIN};
use outrider_kernels::blocked_bloom::{self, BITS_PER_KEY_MAX};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The most lines: a filter of 64 GB.
const LINES_MAX: u64 = 1 << 30;

/// See `outrider.kernels.blocked_bloom.BlockedBloom`.
#[pyclass(module = "outrider._native")]
pub struct BlockedBloom(blocked_bloom::BlockedBloom);

#[pymethods]
impl BlockedBloom {
    #[new]
    fn new(lines: u64, hashes: u32) -> PyResult<Self> {
        if !(1..=LINES_MAX).contains(&lines) {
            let message = format!("lines: use 1 to {LINES_MAX}, not {lines}");
            return Err(PyValueError::new_err(message));
        }
        if !(1..=BITS_PER_KEY_MAX).contains(&hashes) {
            let message = format!("hashes: use 1 to {BITS_PER_KEY_MAX}, not {hashes}");
            return Err(PyValueError::new_err(message));
        }
        Ok(Self(blocked_bloom::BlockedBloom::new(lines, hashes)))
    }

    fn add(&mut self, slots: &Bound<'_, PyAny>, fingerprints: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Keys::of(slots, fingerprints)?;
        if keys.0.len() >= LET_GO_KEYS_MIN {
            slots.py().detach(|| self.0.add(&keys.0, &keys.1));
        } else {
            self.0.add(&keys.0, &keys.1);
        }
        Ok(())
    }

    fn check<'py>(
        &self,
        slots: &Bound<'py, PyAny>,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, keys) = (slots.py(), Keys::of(slots, fingerprints)?);
        let work = || self.0.check(&keys.0, &keys.1);
        let found = if keys.0.len() >= LET_GO_KEYS_MIN { py.detach(work) } else { work() };
        Ok(PyBytes::new(py, &found))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn statistics(&self) -> std::collections::HashMap<&'static str, u64> {
        let (bits, hashes) = (self.0.bits(), u64::from(self.0.hashes()));
        [("keys", self.0.len()), ("bits", bits), ("bytes", bits / 8), ("hashes", hashes)].into()
    }
}
