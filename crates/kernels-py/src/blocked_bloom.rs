//! The shell of `BlockedBloom`.

use crate::columns::{column, same_length};
use crate::fingerprint_set::{Keys, LET_GO_KEYS_MIN};
use outrider_kernels::blocked_bloom::{self, BITS_PER_KEY_MAX};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The most lines: a filter of 64 GB.
const LINES_MAX: u64 = 1 << 30;

fn checked(lines: u64) -> PyResult<u64> {
    if (1..=LINES_MAX).contains(&lines) {
        return Ok(lines);
    }
    Err(PyValueError::new_err(format!("lines: use 1 to {LINES_MAX}, not {lines}")))
}

fn replaces(is_begun: bool) -> PyResult<()> {
    if is_begun {
        return Ok(());
    }
    Err(PyValueError::new_err("no part is being replaced: use begin first"))
}

fn bytes_of<'py>(py: Python<'py>, numbers: &[u64]) -> Bound<'py, PyBytes> {
    let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    PyBytes::new(py, &octets)
}

/// See `outrider.kernels.blocked_bloom.BlockedBloom`.
#[pyclass(module = "outrider._native")]
pub struct BlockedBloom(blocked_bloom::BlockedBloom);

#[pymethods]
impl BlockedBloom {
    #[new]
    fn new(lines: u64, hashes: u32) -> PyResult<Self> {
        checked(lines)?;
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

    fn begin(
        &mut self,
        part: usize,
        firsts: &Bound<'_, PyAny>,
        lines: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (firsts, lines) = (column::<u64>(firsts, "firsts")?, column::<u64>(lines, "lines")?);
        same_length(("firsts", firsts.len()), ("lines", lines.len()))?;
        let parts = self.0.parts().0;
        let Some(&first) = parts.get(part) else {
            let message = format!("part: use 0 to {}, not {part}", parts.len() - 1);
            return Err(PyValueError::new_err(message));
        };
        let end = parts.get(part + 1).copied();
        let ascend = firsts.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = end.is_none_or(|end| firsts.last().is_some_and(|&last| last < end));
        if firsts.first() != Some(&first) || !ascend || !inside {
            return Err(PyValueError::new_err(
                "firsts: use keys of the part that ascend from its first one",
            ));
        }
        for &some in &lines {
            checked(some)?;
        }
        self.0.begin(part, &firsts, &lines);
        Ok(())
    }

    fn fill(&mut self, slots: &Bound<'_, PyAny>, fingerprints: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Keys::of(slots, fingerprints)?;
        replaces(if keys.0.len() >= LET_GO_KEYS_MIN {
            slots.py().detach(|| self.0.fill(&keys.0, &keys.1))
        } else {
            self.0.fill(&keys.0, &keys.1)
        })
    }

    fn replace(&mut self) -> PyResult<()> {
        replaces(self.0.replace())
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn parts<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (firsts, keys, lines) = self.0.parts();
        (bytes_of(py, &firsts), bytes_of(py, &keys), bytes_of(py, &lines))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn statistics(&self) -> std::collections::HashMap<&'static str, u64> {
        let (lines, larger) = self.0.lines();
        let hashes = u64::from(self.0.hashes());
        [
            ("keys", self.0.len()),
            ("bits", 512 * lines),
            ("bytes", 64 * (lines + larger)),
            ("hashes", hashes),
        ]
        .into()
    }
}
