//! The shell of the pages of sorted keys.

use crate::columns::column;
use crate::fingerprint_set::{bytes_of_keys, KeyBytes, Keys, LET_GO_KEYS_MIN};
use crate::octets::Octets;
use outrider_kernels::key_pages::{self, PAGE_BYTES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn damaged(place: usize) -> PyErr {
    PyValueError::new_err(format!("page {place} is damaged"))
}

/// The numbers of the pages; ValueError if there are not as many as pages.
fn numbered(pages: &Octets<'_>, numbers: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let numbers = column::<u32>(numbers, "numbers")?;
    let size = pages.as_slice().len();
    if size != numbers.len() * PAGE_BYTES {
        let message = format!("{size} bytes are not {} pages", numbers.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(numbers)
}

/// The keys of a call, which ascend; ValueError for others.
fn ascending(slots: &Bound<'_, PyAny>, fingerprints: &Bound<'_, PyAny>) -> PyResult<Keys> {
    let keys = Keys::of(slots, fingerprints)?;
    if let Some(at) = key_pages::descends(&keys.0, &keys.1) {
        return Err(PyValueError::new_err(format!("place {at}: the keys do not ascend")));
    }
    Ok(keys)
}

#[pyfunction]
pub(crate) fn sort_keys<'py>(
    slots: &Bound<'py, PyAny>,
    fingerprints: &Bound<'py, PyAny>,
) -> PyResult<KeyBytes<'py>> {
    let (py, keys) = (slots.py(), Keys::of(slots, fingerprints)?);
    let work = || key_pages::sort_keys(&keys.0, &keys.1);
    let (slots, prints) = if keys.0.len() >= LET_GO_KEYS_MIN { py.detach(work) } else { work() };
    Ok(bytes_of_keys(py, &slots, &prints))
}

#[pyfunction]
pub(crate) fn rank_keys<'py>(
    slots: &Bound<'py, PyAny>,
    fingerprints: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (py, keys) = (slots.py(), Keys::of(slots, fingerprints)?);
    if u32::try_from(keys.0.len()).is_err() {
        return Err(PyValueError::new_err("keys: use 4,294,967,295 at most in a call"));
    }
    let work = || key_pages::rank_keys(&keys.0, &keys.1);
    let (slots, prints, places) =
        if keys.0.len() >= LET_GO_KEYS_MIN { py.detach(work) } else { work() };
    let places: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    let (slots, prints) = bytes_of_keys(py, &slots, &prints);
    Ok((slots, prints, PyBytes::new(py, &places)))
}

#[pyfunction]
pub(crate) fn pack_keys<'py>(
    slots: &Bound<'py, PyAny>,
    fingerprints: &Bound<'py, PyAny>,
    first: u32,
    whole: bool,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let (py, keys) = (slots.py(), ascending(slots, fingerprints)?);
    let work = || key_pages::pack(&keys.0, &keys.1, first, whole);
    let (pages, taken) = if keys.0.len() >= LET_GO_KEYS_MIN { py.detach(work) } else { work() };
    Ok((PyBytes::new(py, &pages), taken))
}

#[pyfunction]
pub(crate) fn unpack_keys<'py>(
    pages: &Bound<'py, PyAny>,
    numbers: &Bound<'py, PyAny>,
) -> PyResult<KeyBytes<'py>> {
    let octets = Octets::of(pages)?;
    let numbers = numbered(&octets, numbers)?;
    let found = octets.run(pages.py(), |pages| key_pages::unpack(pages, &numbers));
    let (slots, prints) = found.map_err(damaged)?;
    Ok(bytes_of_keys(pages.py(), &slots, &prints))
}

#[pyfunction]
pub(crate) fn find_keys<'py>(
    pages: &Bound<'py, PyAny>,
    numbers: &Bound<'py, PyAny>,
    slots: &Bound<'py, PyAny>,
    fingerprints: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let octets = Octets::of(pages)?;
    let numbers = numbered(&octets, numbers)?;
    let keys = ascending(slots, fingerprints)?;
    let found = octets.run(pages.py(), |pages| key_pages::find(pages, &numbers, &keys.0, &keys.1));
    Ok(PyBytes::new(pages.py(), &found.map_err(damaged)?))
}
