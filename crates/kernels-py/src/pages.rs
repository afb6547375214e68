//! The shell of `read_pages`.

use outrider_kernels::html::page::Bounds;
use outrider_kernels::pages::{Follow, Given, Kind, Limits, Links, Reader, Values};
use outrider_kernels::urls::Parts;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::columns::bytes_of;
use crate::fingerprinter;
use crate::html::columns_of;
use crate::octets::Octets;

type Sizes = (
    (usize, usize, usize, usize, usize, usize),
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
);

fn limits_of(sizes: Sizes) -> Limits {
    let (columns, base_characters, links_bytes, step_bytes, url_bytes, title_characters, ..) =
        sizes;
    let (.., description_characters, directives, directive_characters, words, block_words) = sizes;
    let (links, text_bytes, link_text_bytes, metas, attributes, value_bytes) = columns;
    Limits {
        bounds: Bounds { links, text_bytes, link_text_bytes, metas, attributes, value_bytes },
        base_characters,
        links_bytes,
        step_bytes,
        url_bytes,
        title_characters,
        description_characters,
        directives,
        directive_characters,
        words,
        block_words,
    }
}

/// See `outrider.kernels.pages.PagesRead`.
#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct PagesRead {
    values: Py<PyList>,
    followed: Py<PyTuple>,
    links: Vec<Option<Links>>,
}

#[pymethods]
impl PagesRead {
    fn values(&self, py: Python<'_>) -> Py<PyList> {
        self.values.clone_ref(py)
    }

    fn followed(&self, py: Python<'_>) -> Py<PyTuple> {
        self.followed.clone_ref(py)
    }

    fn links<'py>(&self, py: Python<'py>, page: i64) -> PyResult<Bound<'py, PyTuple>> {
        let found = usize::try_from(page).ok().and_then(|page| self.links.get(page)?.as_ref());
        let Some(links) = found else {
            return Err(PyIndexError::new_err(format!("there are no links of page {page}")));
        };
        let offsets = std::iter::once(0).chain(links.ends.iter().map(|end| i64::from(*end)));
        let mut columns = vec![
            PyBytes::new(py, &links.arena).into_any(),
            bytes_of(py, offsets.map(i64::to_le_bytes)).into_any(),
            flags(py, &links.parts).into_any(),
            host_lengths(py, &links.parts).into_any(),
            path_starts(py, &links.parts).into_any(),
        ];
        columns.extend(columns_of(py, &links.said)?);
        PyTuple::new(py, columns)
    }
}

fn flags<'py>(py: Python<'py>, parts: &[Parts]) -> Bound<'py, PyBytes> {
    bytes_of(py, parts.iter().map(|parts| [parts.flags]))
}

fn host_lengths<'py>(py: Python<'py>, parts: &[Parts]) -> Bound<'py, PyBytes> {
    bytes_of(py, parts.iter().map(|parts| parts.host_length.to_le_bytes()))
}

fn path_starts<'py>(py: Python<'py>, parts: &[Parts]) -> Bound<'py, PyBytes> {
    bytes_of(py, parts.iter().map(|parts| parts.path_start.to_le_bytes()))
}

/// Bytes of a page while the GIL is let go of: those that somebody could change are copied.
enum Body<'a> {
    Fixed(&'a [u8]),
    Copied(Vec<u8>),
}

#[pyfunction]
#[pyo3(signature = (pages, limits, likeness_key, agent = None, key = None))]
pub(crate) fn read_pages(
    pages: &Bound<'_, PyAny>,
    limits: Sizes,
    likeness_key: &Bound<'_, PyAny>,
    agent: Option<&str>,
    key: Option<&Bound<'_, PyAny>>,
) -> PyResult<PagesRead> {
    let py = pages.py();
    let limits = limits_of(limits);
    let likeness = fingerprinter(likeness_key)?;
    let print = key.map(fingerprinter).transpose()?;
    let mut rows: Vec<Bound<'_, PyTuple>> = Vec::with_capacity(pages.len().unwrap_or(0));
    for (number, row) in pages.try_iter()?.enumerate() {
        let row = row?.cast_into::<PyTuple>()?;
        if row.len() != 5 {
            let message = format!("page {number}: a page has 5 fields, not {}", row.len());
            return Err(PyValueError::new_err(message));
        }
        rows.push(row);
    }
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        held.push((row.get_item(0)?, row.get_item(1)?, row.get_item(2)?));
    }
    let mut bodies = Vec::with_capacity(rows.len());
    for (body, ..) in &held {
        bodies.push(match Octets::of(body)? {
            Octets::Fixed(octets) => Body::Fixed(octets),
            exported @ Octets::Exported(_) => Body::Copied(exported.as_slice().to_vec()),
        });
    }
    let mut given = Vec::with_capacity(rows.len());
    for (number, (row, (body, (_, url, label)))) in
        rows.iter().zip(bodies.iter().zip(&held)).enumerate()
    {
        given.push(Given {
            body: match body {
                Body::Fixed(octets) => octets,
                Body::Copied(octets) => octets,
            },
            // Half characters stand in no canonical URL, and in no label.
            url: url.cast::<PyString>()?.to_str().unwrap_or(""),
            label: if label.is_none() { None } else { label.cast::<PyString>()?.to_str().ok() },
            kind: match row.get_item(3)?.extract::<i64>()? {
                0 => Kind::Html,
                1 => Kind::Xhtml,
                2 => Kind::Text,
                kind => return Err(beyond(number, "kind", kind)),
            },
            follow: match row.get_item(4)?.extract::<i64>()? {
                0 => Follow::AsSaid,
                1 => Follow::All,
                2 => Follow::None,
                follow => return Err(beyond(number, "follow", follow)),
            },
        });
    }
    let (read, followed) = py.detach(|| {
        let mut reader = Reader::new(limits, agent, &likeness, print.as_ref());
        let read: Vec<_> = given.iter().map(|given| reader.read(*given)).collect();
        (read, reader.followed)
    });
    let values = PyList::empty(py);
    let mut links = Vec::with_capacity(read.len());
    for page in read {
        match page {
            Some((found, columns)) => {
                values.append(tuple_of(py, found)?)?;
                links.push(Some(columns));
            }
            None => {
                values.append(py.None())?;
                links.push(None);
            }
        }
    }
    let followed = PyTuple::new(
        py,
        [
            PyBytes::new(py, &followed.arena),
            bytes_of(py, followed.offsets.iter().map(|offset| offset.to_le_bytes())),
            flags(py, &followed.parts),
            host_lengths(py, &followed.parts),
            path_starts(py, &followed.parts),
            bytes_of(py, followed.hashes.iter().map(|hash| hash.to_le_bytes())),
            bytes_of(py, followed.host_hashes.iter().map(|hash| hash.to_le_bytes())),
        ],
    )?;
    Ok(PagesRead { values: values.unbind(), followed: followed.unbind(), links })
}

fn beyond(number: usize, name: &str, value: i64) -> PyErr {
    PyValueError::new_err(format!("page {number}: a {name} is 0, 1 or 2, not {value}"))
}

fn tuple_of(py: Python<'_>, found: Values) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(
        py,
        [
            PyString::intern(py, &found.charset).into_any(),
            found.title.into_pyobject(py)?.into_any(),
            found.description.into_pyobject(py)?.into_any(),
            found.language.into_pyobject(py)?.into_any(),
            found.robots.into_pyobject(py)?.into_any(),
            found.refresh.into_pyobject(py)?.into_any(),
            found.base.into_pyobject(py)?.into_any(),
            found.canonical.into_pyobject(py)?.into_any(),
            found.left_out.into_pyobject(py)?.into_any(),
            PyBytes::new(py, &found.text).into_any(),
            found.simhash.into_pyobject(py)?.into_any(),
            found.shingles.into_pyobject(py)?.into_any(),
            found.digest.into_pyobject(py)?.into_any(),
            found.links.into_pyobject(py)?.into_any(),
            found.followed.into_pyobject(py)?.into_any(),
            found.left_alone.into_pyobject(py)?.into_any(),
        ],
    )
}
