//! `FetchEngine`: batches of requests in, answers out in columns; no Python object crosses to its threads.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outrider_fetch::{Answer, Engine, Job, Limits, Settings, Tls, TypeLimits};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::columns::bytes_of;

/// No wait is longer than this, and an instant so far ahead is still one.
const SECONDS_MAX: f64 = 1e8;

const SENT: u8 = 1;
const NEW_CONNECTION: u8 = 2;
const AMBIGUOUS: u8 = 4;
const KEPT_DIED: u8 = 8;
const LEFT_OUT: u8 = 16;

/// One request as Python tells it: id, TLS (0 none, 1 verified, 2 not verified), host, address, port, bytes to send, whether the connection must be new and
/// is closed, bytes of the answer, bytes by type, seconds to connect, between bytes, in all.
type Row = (
    u64,
    u8,
    String,
    String,
    u16,
    PyBackedBytes,
    bool,
    usize,
    Option<Py<FetchLimits>>,
    f64,
    f64,
    f64,
);

/// Bytes of a body by its type, made once for the requests of many.
#[pyclass(module = "outrider._native", frozen)]
pub(crate) struct FetchLimits {
    types: Arc<TypeLimits>,
}

#[pymethods]
impl FetchLimits {
    #[new]
    fn new(limits: Vec<(String, usize)>) -> Self {
        Self { types: Arc::new(TypeLimits::new(limits)) }
    }
}

#[pyclass(module = "outrider._native")]
pub(crate) struct FetchEngine {
    engine: Engine,
    rate_min: u32,
    rate_after: Duration,
}

fn time(seconds: f64) -> Duration {
    // NaN and what is negative wait for nothing.
    Duration::try_from_secs_f64(seconds.min(SECONDS_MAX)).unwrap_or(Duration::ZERO)
}

impl FetchEngine {
    fn here(&self) -> PyResult<&Engine> {
        if !self.engine.is_here() {
            let text = "this downloader was made before a fork, and its threads stayed in the other process: \
                        make a new one here";
            return Err(PyRuntimeError::new_err(text));
        }
        if self.engine.is_closed() {
            return Err(PyRuntimeError::new_err("this downloader is closed"));
        }
        Ok(&self.engine)
    }
}

fn job(row: Row, rate_min: u32, rate_after: Duration, submitted: Instant) -> PyResult<Job> {
    let (id, tls, host, address, port, head, fresh, bytes_max, types, connect, idle, total) = row;
    let address: IpAddr = address
        .parse()
        .map_err(|_| PyValueError::new_err(format!("{address:?} is no IP address")))?;
    let tls = match tls {
        0 => Tls::None,
        1 => Tls::Verified,
        2 => Tls::Unverified,
        other => return Err(PyValueError::new_err(format!("{other} is no kind of TLS"))),
    };
    let limits = Limits {
        bytes_max,
        connect: time(connect),
        idle: time(idle),
        total: time(total),
        rate_min,
        rate_after,
    };
    let types = types.map(|limits| Arc::clone(&limits.get().types));
    let (address, head) = (SocketAddr::new(address, port), head.to_vec());
    Ok(Job { id, tls, host, address, head, fresh, limits, types, submitted: submitted.into() })
}

fn flags(answer: &Answer) -> u8 {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(answer.sent, SENT)
        | flag(answer.new_connection, NEW_CONNECTION)
        | flag(answer.ambiguous, AMBIGUOUS)
        | flag(answer.kept_died, KEPT_DIED)
        | flag(answer.left_out, LEFT_OUT)
}

#[pymethods]
impl FetchEngine {
    #[new]
    #[pyo3(signature = (roots_pem, *, threads, connections_max, keep_seconds, inbox_bytes_max, large_bytes_max,
                        large_wait_seconds, head_bytes_max, head_lines_max, rate_bytes_min, rate_after_seconds, train_seconds, missing))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        roots_pem: PyBackedBytes,
        threads: usize,
        connections_max: usize,
        keep_seconds: f64,
        inbox_bytes_max: usize,
        large_bytes_max: usize,
        large_wait_seconds: f64,
        head_bytes_max: usize,
        head_lines_max: usize,
        rate_bytes_min: u32,
        rate_after_seconds: f64,
        train_seconds: f64,
        missing: Vec<u16>,
    ) -> PyResult<Self> {
        let settings = Settings {
            threads,
            roots_pem: roots_pem.to_vec(),
            connections_max,
            keep: time(keep_seconds),
            inbox_bytes_max,
            large_bytes_max,
            large_wait: time(large_wait_seconds),
            head_bytes_max,
            head_lines_max,
            train: time(train_seconds),
            missing,
        };
        let engine = py.detach(|| Engine::start(&settings)).map_err(PyRuntimeError::new_err)?;
        Ok(Self { engine, rate_min: rate_bytes_min, rate_after: time(rate_after_seconds) })
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.here()?.descriptor())
    }

    fn submit(&self, trains: Vec<Vec<Row>>) -> PyResult<()> {
        let engine = self.here()?;
        // One instant for all: the caller adds their times to one of its own, and a train's requests never overlap.
        let submitted = Instant::now();
        let train_of = |rows: Vec<Row>| {
            rows.into_iter()
                .map(|row| job(row, self.rate_min, self.rate_after, submitted))
                .collect()
        };
        engine.submit(trains.into_iter().map(train_of).collect::<PyResult<_>>()?);
        Ok(())
    }

    fn let_go(&self, one: u64) -> PyResult<()> {
        self.here()?.let_go(one);
        Ok(())
    }

    fn cancel(&self, one: u64) -> PyResult<()> {
        self.here()?.cancel(one);
        Ok(())
    }

    fn rest(&self, resting: bool) -> PyResult<()> {
        self.here()?.rest(resting);
        Ok(())
    }

    fn drain<'py>(&self, py: Python<'py>, bytes_max: usize) -> PyResult<Bound<'py, PyTuple>> {
        let answers = self.here()?.take(bytes_max);
        let rows = || answers.iter();
        let texts = PyList::new(py, rows().map(|answer| PyString::new(py, &answer.text)))?;
        let heads = rows().map(|answer| PyBytes::new(py, &answer.raw[..answer.head_bytes]));
        let bodies = rows().map(|answer| PyBytes::new(py, &answer.raw[answer.head_bytes..]));
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let took = rows().map(|answer| micros(answer.took));
        let waited = rows().map(|answer| micros(answer.waited).to_le_bytes());
        let lasted = rows().map(|answer| micros(answer.lasted).to_le_bytes());
        // An answer's first byte may come within the first microsecond; 0 says that none came.
        let first = rows().map(|answer| answer.first_byte.map_or(0, |time| micros(time).max(1)));
        (
            bytes_of(py, rows().map(|answer| answer.id.to_le_bytes())),
            bytes_of(py, rows().map(|answer| answer.status.to_le_bytes())),
            bytes_of(py, rows().map(|answer| [answer.fault as u8])),
            bytes_of(py, rows().map(|answer| [answer.truncated as u8])),
            bytes_of(py, rows().map(|answer| [flags(answer)])),
            bytes_of(py, took.map(u64::to_le_bytes)),
            bytes_of(py, first.map(u64::to_le_bytes)),
            bytes_of(py, waited),
            bytes_of(py, lasted),
            texts,
            PyList::new(py, heads)?,
            PyList::new(py, bodies)?,
        )
            .into_pyobject(py)
    }

    fn open(&self) -> usize {
        self.engine.open()
    }

    fn close(&mut self, py: Python<'_>) {
        let engine = &mut self.engine;
        py.detach(|| engine.close());
    }
}
