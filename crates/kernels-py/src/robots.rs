//! `RobotsText`, `RobotsRules` and `RobotsUsages`: a robots.txt in, the deciding lines of URLs out.

use std::borrow::Cow;

use outrider_kernels::robots as kernel;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::octets::Octets;

#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct RobotsText {
    kernel: kernel::Text,
}

#[pymethods]
impl RobotsText {
    #[new]
    #[pyo3(signature = (text, lenient = false))]
    fn new(text: &Bound<'_, PyAny>, lenient: bool) -> PyResult<Self> {
        let octets = Octets::of(text)?;
        if u32::try_from(octets.as_slice().len()).is_err() {
            return Err(PyValueError::new_err("a robots.txt of 4 GiB or more cannot be read"));
        }
        let read = |octets: &[u8]| kernel::Text::of(octets.to_vec(), lenient);
        Ok(Self { kernel: octets.run(text.py(), read) })
    }

    #[getter]
    fn records(&self) -> usize {
        self.kernel.records()
    }

    #[getter]
    fn agents(&self) -> usize {
        self.kernel.agents()
    }

    fn has(&self, token: &Bound<'_, PyString>) -> PyResult<bool> {
        Ok(self.kernel.has(&octets_of(token)?))
    }

    fn delay(&self, token: &Bound<'_, PyString>) -> PyResult<Option<f64>> {
        Ok(self.kernel.delay(&octets_of(token)?))
    }

    fn sitemaps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.kernel.sitemaps().map(|value| PyBytes::new(py, value)).collect::<Vec<_>>(),
        )
    }

    fn line<'py>(&self, py: Python<'py>, number: i64) -> PyResult<Bound<'py, PyBytes>> {
        let found = usize::try_from(number).ok().and_then(|number| self.kernel.line(number));
        found.map(|line| PyBytes::new(py, line)).ok_or_else(|| {
            let lines = self.kernel.lines();
            PyValueError::new_err(format!("there is no line {number}, only {lines}"))
        })
    }

    fn rules(&self, token: &Bound<'_, PyString>, globs_max: usize) -> PyResult<RobotsRules> {
        let octets = octets_of(token)?;
        let kernel = token.py().detach(|| self.kernel.rules(&octets, globs_max));
        Ok(RobotsRules { kernel })
    }

    fn remarks<'py>(
        &self,
        token: &Bound<'py, PyString>,
        name: &str,
        lines_max: usize,
    ) -> PyResult<Vec<(u32, Bound<'py, PyBytes>)>> {
        let found = self.kernel.remarks(&octets_of(token)?, name, lines_max);
        Ok(found.iter().map(|(line, value)| (*line, PyBytes::new(token.py(), value))).collect())
    }

    fn usages(&self, token: &Bound<'_, PyString>, lines_max: usize) -> PyResult<RobotsUsages> {
        Ok(RobotsUsages { kernel: self.kernel.usages(&octets_of(token)?, lines_max) })
    }
}

/// Bytes of a Python object before what it holds.
const PYTHON_BYTES: usize = 16;

#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct RobotsRules {
    kernel: kernel::Rules,
}

#[pymethods]
impl RobotsRules {
    fn __len__(&self) -> usize {
        self.kernel.len()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        PYTHON_BYTES + self.kernel.memory_bytes()
    }

    fn verdict(&self, url: &Bound<'_, PyString>) -> PyResult<i64> {
        Ok(self.kernel.verdict(&octets_of(url)?))
    }

    fn __repr__(&self) -> String {
        format!("<RobotsRules {} rules, {} bytes>", self.kernel.len(), self.memory_bytes())
    }
}

#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct RobotsUsages {
    kernel: kernel::Usages,
}

#[pymethods]
impl RobotsUsages {
    fn __len__(&self) -> usize {
        self.kernel.len()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        PYTHON_BYTES + self.kernel.memory_bytes()
    }

    fn lines(&self, url: &Bound<'_, PyString>) -> PyResult<Vec<u32>> {
        Ok(self.kernel.lines(&octets_of(url)?))
    }

    fn __repr__(&self) -> String {
        format!("<RobotsUsages {} lines, {} bytes>", self.kernel.len(), self.memory_bytes())
    }
}

#[pyfunction]
pub(crate) fn robots_verdicts<'py>(
    rules: &Bound<'py, PyAny>,
    urls: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (count, other) = (rules.len()?, urls.len()?);
    if count != other {
        return Err(PyValueError::new_err(format!("{count} rules for {other} URLs")));
    }
    let mut found = Vec::with_capacity(8 * count);
    for (one, url) in rules.try_iter()?.zip(urls.try_iter()?) {
        let (one, url) = (one?, url?);
        let verdict = one.cast::<RobotsRules>()?.get().verdict(url.cast::<PyString>()?)?;
        found.extend_from_slice(&verdict.to_le_bytes());
    }
    Ok(PyBytes::new(rules.py(), &found))
}

/// A text as UTF-8; half characters, which have none, as they would be encoded.
fn octets_of<'text>(text: &'text Bound<'_, PyString>) -> PyResult<Cow<'text, [u8]>> {
    if let Ok(plain) = text.to_str() {
        return Ok(Cow::Borrowed(plain.as_bytes()));
    }
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    Ok(Cow::Owned(encoded.cast::<PyBytes>()?.as_bytes().to_vec()))
}
