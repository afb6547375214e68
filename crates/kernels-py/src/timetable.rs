//! `Timetable`: columns in, columns out.

use outrider_kernels::timetable as kernel;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{bytes_of, now_and_most, rows, rows_at};

#[pyclass(module = "outrider._native")]
pub(crate) struct Timetable {
    pub(crate) kernel: kernel::Timetable,
}

#[pymethods]
impl Timetable {
    #[new]
    fn new() -> Self {
        Self { kernel: kernel::Timetable::default() }
    }

    fn rest(&mut self, hosts: &Bound<'_, PyAny>, until: &Bound<'_, PyAny>) -> PyResult<()> {
        for (host, until) in rows_at((hosts, "hosts"), (until, "until"))? {
            self.kernel.rest(host, until);
        }
        Ok(())
    }

    fn cancel(&mut self, hosts: &Bound<'_, PyAny>) -> PyResult<()> {
        for host in rows(hosts, "hosts")? {
            self.kernel.cancel(host);
        }
        Ok(())
    }

    fn due<'py>(
        &mut self,
        py: Python<'py>,
        now: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (now, most) = now_and_most(now, most)?;
        let due = std::iter::from_fn(|| self.kernel.pop_due(now)).take(most);
        Ok(bytes_of(py, due.map(u32::to_le_bytes)))
    }

    fn next(&self) -> i64 {
        self.kernel.next().unwrap_or(-1)
    }

    fn until<'py>(&self, hosts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let rows = rows(hosts, "hosts")?;
        let until = rows.into_iter().map(|host| self.kernel.until(host).to_le_bytes());
        Ok(bytes_of(hosts.py(), until))
    }

    fn __len__(&self) -> usize {
        self.kernel.len()
    }
}
