//! `PublicSuffixes`: hosts in, registrable domains out.

use outrider_kernels::suffixes::{self as kernel, Domain};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::octets::Octets;
use crate::on_spans;

#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct PublicSuffixes {
    kernel: kernel::PublicSuffixes,
}

#[pymethods]
impl PublicSuffixes {
    #[new]
    fn new(rules: &Bound<'_, PyAny>) -> PyResult<Self> {
        let octets = Octets::of(rules)?;
        let kernel =
            kernel::PublicSuffixes::of(octets.as_slice()).map_err(PyValueError::new_err)?;
        Ok(Self { kernel })
    }

    fn domains<'py>(
        &self,
        arena: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        ends: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = on_spans(arena, starts, ends, |octets, spans| {
            let mut found = Vec::with_capacity(8 * spans.len());
            for &(start, end) in spans {
                let place = match self.kernel.domain(&octets[start..end]) {
                    Domain::From(at) => (start + at) as i64,
                    Domain::Missing => -1,
                    Domain::Odd => -2,
                };
                found.extend_from_slice(&place.to_le_bytes());
            }
            found
        })?;
        Ok(PyBytes::new(arena.py(), &found))
    }

    fn texts<'py>(&self, hosts: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyList>, Vec<usize>)> {
        let py = hosts.py();
        if hosts.is_instance_of::<PyString>() {
            let message = "hosts must be a sequence of strings, not one string";
            return Err(PyTypeError::new_err(message));
        }
        let given: Vec<Bound<'py, PyAny>> = match hosts.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => hosts.try_iter()?.collect::<PyResult<_>>()?,
        };
        let mut domains: Vec<Option<Bound<'py, PyAny>>> = Vec::with_capacity(given.len());
        let mut odd = Vec::new();
        for (row, host) in given.into_iter().enumerate() {
            let Ok(string) = host.cast::<PyString>() else {
                let name = host.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "row {row}: a host must be a str, not {name}"
                )));
            };
            // Half characters have no UTF-8 form, and are not ASCII.
            let text = string.to_str().ok();
            let found = text.map_or(Domain::Odd, |text| self.kernel.domain(text.as_bytes()));
            let domain = match (found, text) {
                (Domain::From(start), Some(text)) => {
                    let domain = text[start..].strip_suffix('.').unwrap_or(&text[start..]);
                    if domain.bytes().any(|byte| byte.is_ascii_uppercase()) {
                        Some(PyString::new(py, &domain.to_ascii_lowercase()).into_any())
                    } else if domain.len() == text.len() {
                        Some(host)
                    } else {
                        Some(PyString::new(py, domain).into_any())
                    }
                }
                (Domain::Missing, _) => None,
                _ => {
                    odd.push(row);
                    None
                }
            };
            domains.push(domain);
        }
        Ok((PyList::new(py, domains)?, odd))
    }
}
