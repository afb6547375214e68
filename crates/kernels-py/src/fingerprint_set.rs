//! The shell of `FingerprintSet`.

use crate::columns::{column, same_length};
use outrider_kernels::fingerprint_set::{self, wrong_slot};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// So many keys take 2 to 8 ms. Fewer cost others less than the 5 ms that a busy thread of Python may keep the GIL from us.
pub(crate) const LET_GO_KEYS_MIN: usize = 16_384;

/// See `outrider.kernels.fingerprint_set.FingerprintSet`.
#[pyclass(module = "outrider._native")]
pub struct FingerprintSet(fingerprint_set::FingerprintSet);

/// The keys of a call: slots and fingerprints.
pub(crate) struct Keys(pub(crate) Vec<u16>, pub(crate) Vec<u64>);

impl Keys {
    pub(crate) fn of(slots: &Bound<'_, PyAny>, fingerprints: &Bound<'_, PyAny>) -> PyResult<Self> {
        let slots = column::<u16>(slots, "slots")?;
        let fingerprints = column::<u64>(fingerprints, "fingerprints")?;
        same_length(("slots", slots.len()), ("fingerprints", fingerprints.len()))?;
        if let Some(at) = wrong_slot(&slots) {
            let message = format!("place {at}: a slot is below 4096, not {}", slots[at]);
            return Err(PyValueError::new_err(message));
        }
        Ok(Self(slots, fingerprints))
    }

    fn run<'py>(
        self,
        py: Python<'py>,
        work: impl FnOnce(&[u16], &[u64]) -> Vec<u8> + Send,
    ) -> Bound<'py, PyBytes> {
        let work = || work(&self.0, &self.1);
        let answers = if self.0.len() >= LET_GO_KEYS_MIN { py.detach(work) } else { work() };
        PyBytes::new(py, &answers)
    }
}

/// Keys as two columns of bytes.
pub(crate) type KeyBytes<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

pub(crate) fn bytes_of_keys<'py>(
    py: Python<'py>,
    slots: &[u16],
    fingerprints: &[u64],
) -> KeyBytes<'py> {
    let slots: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    let prints: Vec<u8> = fingerprints.iter().flat_map(|print| print.to_le_bytes()).collect();
    (PyBytes::new(py, &slots), PyBytes::new(py, &prints))
}

#[pymethods]
impl FingerprintSet {
    #[new]
    fn new() -> Self {
        Self(fingerprint_set::FingerprintSet::new())
    }

    fn check<'py>(
        &self,
        slots: &Bound<'py, PyAny>,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = Keys::of(slots, fingerprints)?;
        Ok(keys.run(slots.py(), |slots, fingerprints| self.0.check(slots, fingerprints)))
    }

    fn add<'py>(
        &mut self,
        slots: &Bound<'py, PyAny>,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = Keys::of(slots, fingerprints)?;
        Ok(keys.run(slots.py(), |slots, fingerprints| self.0.add(slots, fingerprints)))
    }

    fn remove<'py>(
        &mut self,
        slots: &Bound<'py, PyAny>,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = Keys::of(slots, fingerprints)?;
        Ok(keys.run(slots.py(), |slots, fingerprints| self.0.remove(slots, fingerprints)))
    }

    fn keys_from<'py>(
        &self,
        py: Python<'py>,
        slot: u16,
        fingerprint: u64,
        most: usize,
    ) -> PyResult<KeyBytes<'py>> {
        if wrong_slot(&[slot]).is_some() {
            return Err(PyValueError::new_err(format!("a slot is below 4096, not {slot}")));
        }
        let (slots, fingerprints) = py.detach(|| self.0.keys_from(slot, fingerprint, most));
        Ok(bytes_of_keys(py, &slots, &fingerprints))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn statistics(&self) -> std::collections::HashMap<&'static str, usize> {
        [("keys", self.0.len()), ("bytes", self.0.bytes())].into()
    }
}
