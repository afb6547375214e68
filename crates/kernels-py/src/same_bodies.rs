//! `SameBodies`: columns in, columns out.

use outrider_kernels::same_bodies as kernel;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::{bytes_of, column, number, same_length};

/// See `outrider.kernels.same_bodies.SameBodies`.
#[pyclass(module = "outrider._native")]
pub struct SameBodies(kernel::SameBodies);

#[pymethods]
impl SameBodies {
    #[new]
    fn new(most: &Bound<'_, PyAny>, enough: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (most, enough) = (number(most, "u64", "most")?, number(enough, "u64", "enough")?);
        Ok(Self(kernel::SameBodies::new(most, enough)))
    }

    fn take<'py>(
        &mut self,
        hosts: &Bound<'py, PyAny>,
        bodies: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        copies: &Bound<'py, PyAny>,
        paths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = hosts.py();
        let hosts = column::<u64>(hosts, "hosts")?;
        let of_hosts = |name: &str, length| same_length(("hosts", hosts.len()), (name, length));
        let bodies = column::<u64>(bodies, "bodies")?;
        of_hosts("bodies", bodies.len())?;
        let tokens = column::<u64>(tokens, "tokens")?;
        of_hosts("tokens", tokens.len())?;
        let copies = column::<u8>(copies, "copies")?;
        of_hosts("copies", copies.len())?;
        let paths = column::<u64>(paths, "paths")?;
        of_hosts("paths", paths.len())?;
        let signs = (0..hosts.len()).filter(|&row| {
            self.0.take(&kernel::Page {
                host: hosts[row],
                body: bodies[row],
                token: tokens[row],
                copy: copies[row] != 0,
                path: paths[row],
            })
        });
        let signs: Vec<u32> = signs.map(|row| row as u32).collect();
        Ok(bytes_of(py, signs.into_iter().map(u32::to_le_bytes)))
    }
}
