//! Columns of numbers as Python hands them over: raw bytes, little endian, or a buffer whose items have the very type.

use std::any::type_name;

use pyo3::buffer::{Element, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use outrider_kernels::rows::NONE;

/// A number that stands in columns.
pub(crate) trait Item: Element {
    const BYTES: usize;
    fn read(octets: &[u8]) -> Self;
}

macro_rules! item {
    ($($t:ty),*) => {$(
        impl Item for $t {
            const BYTES: usize = size_of::<$t>();
            fn read(octets: &[u8]) -> Self {
                let mut whole = [0; size_of::<$t>()];
                whole.copy_from_slice(octets);
                <$t>::from_le_bytes(whole)
            }
        }
    )*};
}
item!(u8, u16, u32, u64, i64);

/// The numbers of a column; BufferError for a buffer of another type, ValueError for bytes that do not come out even.
pub(crate) fn column<T: Item>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<T>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return read(bytes.as_bytes(), name);
    }
    let buffer = PyUntypedBuffer::get(object)?;
    if let Ok(typed) = buffer.as_typed::<T>() {
        return typed.to_vec(object.py());
    }
    let Ok(octets) = buffer.as_typed::<u8>() else {
        let (found, wanted) = (buffer.format().to_string_lossy(), type_name::<T>());
        let message = format!("{name}: items of type '{found}' are no {wanted}");
        return Err(PyBufferError::new_err(message));
    };
    read(&octets.to_vec(object.py())?, name)
}

fn read<T: Item>(octets: &[u8], name: &str) -> PyResult<Vec<T>> {
    if octets.len() % T::BYTES != 0 {
        let (size, item) = (octets.len(), T::BYTES);
        let message = format!("{name}: {size} bytes are no column of {item} bytes each");
        return Err(PyValueError::new_err(message));
    }
    Ok(octets.chunks_exact(T::BYTES).map(T::read).collect())
}

/// A column of rows; ValueError if one is NONE.
pub(crate) fn rows(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u32>> {
    let rows = column::<u32>(object, name)?;
    match rows.iter().position(|&row| row == NONE) {
        Some(at) => Err(PyValueError::new_err(format!("{name}: at {at} stands {NONE}, no row"))),
        None => Ok(rows),
    }
}

/// ValueError unless both columns have the same length.
pub(crate) fn same_length(
    (first, expected): (&str, usize),
    (name, actual): (&str, usize),
) -> PyResult<()> {
    if expected == actual {
        return Ok(());
    }
    let message = format!("{expected} {first} and {actual} {name} make no rows");
    Err(PyValueError::new_err(message))
}

/// ValueError if a number of the column exceeds `most`.
pub(crate) fn at_most(numbers: &[u8], most: u8, name: &str) -> PyResult<()> {
    match numbers.iter().find(|&&number| number > most) {
        Some(number) => Err(PyValueError::new_err(format!("{name}: {number} is more than {most}"))),
        None => Ok(()),
    }
}

/// ValueError if an instant lies before 1970.
pub(crate) fn instants(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<i64>> {
    let instants = column::<i64>(object, name)?;
    match instants.iter().find(|&&instant| instant < 0) {
        Some(instant) => Err(PyValueError::new_err(format!("{name}: {instant} lies before 1970"))),
        None => Ok(instants),
    }
}

/// One instant of a call; ValueError if it lies before 1970.
pub(crate) fn instant(object: &Bound<'_, PyAny>, name: &str) -> PyResult<i64> {
    match number::<i64>(object, "i64", name)? {
        instant if instant < 0 => {
            Err(PyValueError::new_err(format!("{name}: {instant} lies before 1970")))
        }
        instant => Ok(instant),
    }
}

/// The bytes of a buffer of bytes or of items of so many bytes each, as structured arrays have them.
pub(crate) fn octets(object: &Bound<'_, PyAny>, item: usize, name: &str) -> PyResult<Vec<u8>> {
    let octets = match object.cast::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes().to_vec(),
        Err(_) => {
            let view = PyMemoryView::from(object)?;
            let size = view.getattr("itemsize")?.extract::<usize>()?;
            if size != 1 && size != item {
                let message = format!("{name}: items of {size} bytes are not of {item}");
                return Err(PyBufferError::new_err(message));
            }
            view.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec()
        }
    };
    if octets.len() % item != 0 {
        let message = format!("{name}: {} bytes are no column of {item} bytes each", octets.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(octets)
}

/// What is to happen to each row at an instant of its own; ValueError for what is no row or lies before 1970.
pub(crate) fn rows_at(
    (rows_given, rows_name): (&Bound<'_, PyAny>, &str),
    (instants_given, instants_name): (&Bound<'_, PyAny>, &str),
) -> PyResult<impl Iterator<Item = (u32, i64)>> {
    let (rows, instants) = (rows(rows_given, rows_name)?, instants(instants_given, instants_name)?);
    same_length((rows_name, rows.len()), (instants_name, instants.len()))?;
    Ok(rows.into_iter().zip(instants))
}

/// An instant, and how many a call takes at the most; ValueError when one does not fit.
pub(crate) fn now_and_most(
    now: &Bound<'_, PyAny>,
    most: &Bound<'_, PyAny>,
) -> PyResult<(i64, usize)> {
    let (now, most) = (number::<i64>(now, "i64", "now")?, number::<u64>(most, "u64", "most")?);
    Ok((now, usize::try_from(most).unwrap_or(usize::MAX)))
}

/// One number of a call; ValueError when it does not fit `kind`, the name of `T`.
pub(crate) fn number<'py, T>(object: &Bound<'py, PyAny>, kind: &str, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    object.extract::<T>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            PyValueError::new_err(format!("{name} is a {kind}, not {object}"))
        } else {
            error
        }
    })
}

/// The numbers as bytes, little endian.
pub(crate) fn bytes_of<'py, const N: usize>(
    py: Python<'py>,
    numbers: impl Iterator<Item = [u8; N]>,
) -> Bound<'py, PyBytes> {
    let mut out = Vec::with_capacity(N * numbers.size_hint().0);
    for number in numbers {
        out.extend_from_slice(&number);
    }
    PyBytes::new(py, &out)
}

/// Columns of bytes, side by side.
pub(crate) fn tuple_of<'py, const N: usize>(
    py: Python<'py>,
    columns: [&[u8]; N],
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, columns.map(|column| PyBytes::new(py, column)))
}
