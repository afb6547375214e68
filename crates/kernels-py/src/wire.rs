//! `WireServer`: turns of waiting events out, answers in; no Python object crosses to its threads.

use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use outrider_wire::{write_field, Chunk, Items, Kind, Server, Settings, Status, Taken};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// What one turn brought: calls, messages, and items in columns.
#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct WireTurn {
    taken: Taken,
}

/// A column of numbers, 8 bytes each, the lowest first.
fn numbers<'py>(py: Python<'py>, column: &[u64]) -> Bound<'py, PyBytes> {
    let octets: Vec<u8> = column.iter().flat_map(|number| number.to_le_bytes()).collect();
    PyBytes::new(py, &octets)
}

fn texts<'py>(
    py: Python<'py>,
    items: &Items,
    spans: &[(u32, u32)],
) -> PyResult<Bound<'py, PyList>> {
    let mut last: Option<((u32, u32), Bound<'py, PyString>)> = None;
    let mut found = Vec::with_capacity(spans.len());
    for span in spans {
        if let Some((known, text)) = &last {
            if known == span {
                found.push(text.clone());
                continue;
            }
        }
        let text = std::str::from_utf8(items.text(*span)) // the reader of messages refuses other octets
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let text = PyString::new(py, text);
        found.push(text.clone());
        last = Some((*span, text));
    }
    PyList::new(py, found)
}

#[pymethods]
impl WireTurn {
    #[getter]
    fn opened<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.taken.opened.iter().map(|(stream, method, header, peer)| {
            (*stream, *method, header.clone(), peer.to_string())
        });
        PyList::new(py, rows.collect::<Vec<_>>())
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self
            .taken
            .messages
            .iter()
            .map(|(stream, message)| (*stream, PyBytes::new(py, message)));
        PyList::new(py, rows.collect::<Vec<_>>())
    }

    #[getter]
    fn ended(&self) -> Vec<u64> {
        self.taken.ended.clone()
    }

    #[getter]
    fn gone(&self) -> Vec<(u64, u64)> {
        self.taken.gone.clone()
    }

    #[getter]
    fn room(&self) -> Vec<u64> {
        self.taken.room.clone()
    }

    fn __len__(&self) -> usize {
        self.taken.items.len()
    }

    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        numbers(py, &self.taken.items.streams)
    }

    #[getter]
    fn branches<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.taken.items.branches)
    }

    #[getter]
    fn urls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        texts(py, &self.taken.items, &self.taken.items.urls)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        texts(py, &self.taken.items, &self.taken.items.keys)
    }

    #[getter]
    fn crawls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        texts(py, &self.taken.items, &self.taken.items.crawls)
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = &self.taken.items;
        PyList::new(py, items.metadata.iter().map(|span| PyBytes::new(py, items.text(*span))))
    }

    #[getter]
    fn dates<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        numbers(py, &self.taken.items.dates)
    }

    #[getter]
    fn created<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        numbers(py, &self.taken.items.created)
    }
}

#[pyclass(module = "outrider._native")]
pub(crate) struct WireServer {
    server: Server,
}

/// Appends the entries of metadata: a list of texts each, and one text as a list of it.
fn write_metadata(out: &mut Vec<u8>, number: u32, metadata: &Bound<'_, PyDict>) -> PyResult<()> {
    for (name, value) in metadata.iter() {
        let mut list = Vec::new();
        let mut add = |text: &Bound<'_, PyAny>| -> PyResult<()> {
            let text: PyBackedStr = text.extract()?;
            // An empty text of a repeated field is sent all the same.
            outrider_wire::write_varint(&mut list, 1 << 3 | 2);
            outrider_wire::write_varint(&mut list, text.len() as u64);
            list.extend_from_slice(text.as_bytes());
            Ok(())
        };
        if let Ok(values) = value.cast::<PyList>() {
            for value in values.iter() {
                add(&value)?;
            }
        } else {
            add(&value)?;
        }
        let name: PyBackedStr = name.extract()?;
        let mut entry = Vec::new();
        write_field(&mut entry, 1, name.as_bytes());
        // A value without texts is an entry all the same.
        outrider_wire::write_varint(&mut entry, 2 << 3 | 2);
        outrider_wire::write_varint(&mut entry, list.len() as u64);
        entry.extend_from_slice(&list);
        outrider_wire::write_varint(out, u64::from(number << 3 | 2));
        outrider_wire::write_varint(out, entry.len() as u64);
        out.extend_from_slice(&entry);
    }
    Ok(())
}

#[pymethods]
impl WireServer {
    #[new]
    #[pyo3(signature = (descriptor, methods, *, certificate, key, unfinished_bytes_max, streams_max, connections_max))]
    #[allow(clippy::too_many_arguments, unsafe_code)]
    fn new(
        descriptor: RawFd,
        methods: Vec<(String, u8, usize)>,
        certificate: Option<PyBackedBytes>,
        key: Option<PyBackedBytes>,
        unfinished_bytes_max: usize,
        streams_max: u32,
        connections_max: usize,
    ) -> PyResult<Self> {
        let kind = |kind| match kind {
            0 => Ok(Kind::Raw),
            1 => Ok(Kind::Items),
            2 => Ok(Kind::Batches),
            other => Err(PyValueError::new_err(format!("{other} is no kind of messages"))),
        };
        let methods = methods
            .into_iter()
            .map(|(path, one, most)| Ok((path, kind(one)?, most)))
            .collect::<PyResult<_>>()?;
        if descriptor < 0 {
            return Err(PyValueError::new_err(format!("{descriptor} is no descriptor")));
        }
        // SAFETY: the caller has detached this descriptor from its socket, so nothing else closes it.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let tls = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.to_vec(), key.to_vec())),
            _ => None,
        };
        let settings =
            Settings { methods, tls, unfinished_bytes_max, streams_max, connections_max };
        let server =
            Server::start(TcpListener::from(owned), settings).map_err(PyRuntimeError::new_err)?;
        Ok(Self { server })
    }

    /// Waits while items arrive, at most some milliseconds.
    fn gather(&self, py: Python<'_>) {
        py.detach(|| self.server.gather());
    }

    fn take(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<WireTurn>> {
        let wait = seconds_of(seconds)?;
        Ok(py.detach(|| self.server.take(wait)).map(|taken| WireTurn { taken }))
    }

    fn acknowledge(&self, py: Python<'_>, turn: &WireTurn, statuses: PyBackedBytes) {
        py.detach(|| {
            for (stream, messages) in turn.taken.items.acknowledgements(&statuses) {
                let _ = self.server.send(stream, Chunk::of(messages.iter().map(Vec::as_slice)));
            }
            self.server.answered(&turn.taken.sizes);
        });
    }

    fn send(&self, stream: u64, messages: Vec<PyBackedBytes>) -> bool {
        self.server.send(stream, Chunk::of(messages.iter().map(|one| &**one)))
    }

    /// Sends messages of the type `URLInfo`. rows: URL, key, crawl, and metadata or None.
    fn send_infos(&self, stream: u64, rows: &Bound<'_, PyList>) -> PyResult<bool> {
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows.iter() {
            let row = row.cast::<PyTuple>()?;
            let mut message = Vec::new();
            let url: PyBackedStr = row.get_item(0)?.extract()?;
            write_field(&mut message, 1, url.as_bytes());
            let key: PyBackedStr = row.get_item(1)?.extract()?;
            write_field(&mut message, 2, key.as_bytes());
            let metadata = row.get_item(3)?;
            if !metadata.is_none() {
                write_metadata(&mut message, 3, metadata.cast::<PyDict>()?)?;
            }
            let crawl: PyBackedStr = row.get_item(2)?.extract()?;
            write_field(&mut message, 4, crawl.as_bytes());
            messages.push(message);
        }
        Ok(self.server.send(stream, Chunk::of(messages.iter().map(Vec::as_slice))))
    }

    #[pyo3(signature = (stream, code, message, problem = String::new()))]
    fn finish(&self, stream: u64, code: u32, message: String, problem: String) {
        self.server.finish(stream, Status { code, message, problem });
    }

    fn wake(&self) {
        self.server.wake();
    }

    fn wait_idle(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let wait = seconds_of(seconds)?;
        py.detach(|| self.server.wait_idle(wait));
        Ok(())
    }

    fn drain(&self) {
        self.server.drain();
    }

    fn close(&mut self, py: Python<'_>) {
        let server = &mut self.server;
        py.detach(|| server.close());
    }
}

fn seconds_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}
